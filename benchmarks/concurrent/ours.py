"""The kernels as tasks of stf_places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import stf_places as stf
from benchmarks.concurrent.programs import BLOCK_US, BLOCKS, Case, WrongResult
from benchmarks.spin_kernels import Spin, SpinTasks, wall_us
from benchmarks.timing import collector_off

__all__ = ["Ours"]


class Ours:
    """Measure a case; `simulated_us` is the virtual time of the last repeat, 0 on a GPU."""

    def __init__(self, tasks: SpinTasks, case: Case) -> None:
        self._tasks = tasks
        self._case = case
        places: Sequence[stf.exec_place] = [stf.exec_place.device(0)]
        if case.partitioned:
            places = stf.green_places(BLOCKS, case.lanes, exact=True)
        lanes = range(case.kernels)
        self._spins = [Spin(places[i % len(places)], BLOCKS, BLOCK_US) for i in lanes]
        self.simulated_us = 0.0

    def measure_ms(self) -> float:
        """Return the milliseconds from the first kernel's submission to the end of all.

        Raises
        ------
        WrongResult
            If a block ran too often or too rarely.
        """
        arrays = [np.zeros(BLOCKS, np.int32) for _ in self._spins]
        with stf.context() as ctx:
            data = [ctx.logical_data(array) for array in arrays]
            tokens = [ctx.token() for _ in range(self._case.lanes)]

            def run_all() -> None:
                streams = {}
                for i, spin in enumerate(self._spins):
                    lane = i % self._case.lanes
                    streams[lane] = self._tasks.submit(ctx, spin, data[i], tokens[lane].rw())
                for lane, stream in streams.items():
                    self._tasks.wait(ctx, tokens[lane], stream)

            run_all()
            with collector_off():
                virtual, begin = self._tasks.now_us(), wall_us()
                run_all()
                duration = wall_us() - begin
            self.simulated_us = self._tasks.now_us() - virtual
        if any((array != 2).any() for array in arrays):
            raise WrongResult(f"{self._case.name}: not every block ran twice")
        return duration / 1e3
