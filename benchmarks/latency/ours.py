"""The two kernels as tasks of stf_places."""

from __future__ import annotations

import numpy as np

import stf_places as stf
from benchmarks.latency.programs import (
    BULK_BLOCK_US,
    BULK_REPEATS,
    BULK_WAVES,
    URGENT_SMS,
    URGENT_US,
    WARM_UP,
    Samples,
    require_counts,
)
from benchmarks.spin_kernels import BLOCKS_PER_SM, Spin, SpinTasks, wall_us
from benchmarks.timing import collector_off

__all__ = ["Ours"]

#: The driver takes the highest that it has, which on today's GPUs is this.
HIGHEST_PRIORITY = 5


class Ours:
    """Measure a way; `samples` are of this computer's clock, `simulated` of a simulated machine's."""

    def __init__(self, tasks: SpinTasks, way: str) -> None:
        self._tasks = tasks
        self._way = way
        self.samples, self.simulated = Samples(), Samples()
        device = stf.exec_place.device(0)
        place, rest = device, device
        if way == "own_partition":
            (place,) = stf.green_places(URGENT_SMS, 1, exact=True)
            rest = stf.exec_place.rest([place])
        self.sm_counts = place.sm_count, rest.sm_count
        priority = HIGHEST_PRIORITY if way == "highest_priority" else 0
        self._urgent = Spin(place, 1, URGENT_US, priority)
        self._bulk = Spin(rest, BULK_WAVES * BLOCKS_PER_SM * device.sm_count, BULK_BLOCK_US)

    def measure_us(self, probes: int) -> float:
        """Submit urgent kernels, each behind a fresh bulk kernel; return the p50 from submission to done.

        Raises
        ------
        WrongResult
            If a block ran too often or too rarely.
        """
        urgent, bulk = np.zeros(self._urgent.blocks, np.int32), np.zeros(self._bulk.blocks, np.int32)
        tasks = self._tasks
        with collector_off(), stf.context() as ctx:
            urgent_data, bulk_data = ctx.logical_data(urgent), ctx.logical_data(bulk)
            urgent_done, bulk_done = ctx.token(), ctx.token()

            def timed(spin: Spin, data: stf.logical_data, done: stf.logical_data) -> tuple[float, float]:
                virtual, begin = tasks.now_us(), wall_us()
                tasks.wait(ctx, done, tasks.submit(ctx, spin, data, done.rw()))
                return wall_us() - begin, tasks.now_us() - virtual

            def probe() -> tuple[float, float]:
                stream = tasks.submit(ctx, self._bulk, bulk_data, bulk_done.rw())
                duration = timed(self._urgent, urgent_data, urgent_done)
                tasks.wait(ctx, bulk_done, stream)
                return duration

            probed = [probe() for _ in range(WARM_UP + probes)]
            alone = [timed(self._bulk, bulk_data, bulk_done) for _ in range(BULK_REPEATS)]
        require_counts(self._way, urgent, bulk, probes)
        self.simulated.add([virtual for _, virtual in probed], [virtual for _, virtual in alone])
        return self.samples.add([wall for wall, _ in probed], [wall for wall, _ in alone])
