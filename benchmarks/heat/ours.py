"""The program of examples/heat.py: one array over a grid, a grid task a step, a launch a shard."""

from __future__ import annotations

from typing import Any

import numpy as np

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.heat.kernels import diffuse, fill
from benchmarks.heat.programs import WARM_UP, Case, require_close
from benchmarks.heat.warp_plain import Plain
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off
from stf_places.interop import warp as stf_warp

__all__ = ["NAME", "Ours", "rows_over"]

NAME = "stf_places"


def rows_over(places: list[stf.exec_place]) -> stf.exec_place_grid:
    """Return the grid of some places, with arrays laid over it by rows."""
    return stf.exec_place_grid.create(places).with_data(stf.partition(stf.blocked("x"), stf.whole))


class Ours:
    """Do a case on a grid; `simulated_ms` gets what a simulated machine's clock said of each measurement.

    Parameters
    ----------
    case : Case
        The array.
    grid : exec_place_grid
        From `rows_over`.
    steps : int
        Steps in the timed part.
    plain : Plain
        What the result is compared with, measured before.
    """

    def __init__(self, case: Case, grid: stf.exec_place_grid, steps: int, plain: Plain) -> None:
        self._case = case
        self._grid = grid
        self._steps = steps
        self._plain = plain
        self.simulated_ms: list[float] = []

    def measure_ms(self) -> float:
        """Do all steps in a context of their own and check them; return the milliseconds of a step.

        Raises
        ------
        WrongResult
            If a cell is not exactly that of plain Warp.
        """
        shape = (self._case.rows, self._case.columns)
        with collector_off(), stf.context() as ctx:
            u, v = (ctx.logical_data_empty(shape, np.float32, name=name) for name in "uv")
            with ctx.task(self._grid, u.write(), symbol="fill") as t:
                for shard in t.shards(0):
                    stf_warp.launch(shard, fill, shard.shape, inputs=[stf_warp.array(shard, 0), *shard.start])
            u, v = self._run(ctx, u, v, WARM_UP)
            wait(ctx)
            virtual, begin = now_us(), wall_us()
            u, v = self._run(ctx, u, v, self._steps)
            wait(ctx)
            duration, simulated = wall_us() - begin, now_us() - virtual
            worst = self._largest_difference(ctx, u)
        require_close(NAME, self._case, worst, allowed=0.0)
        self.simulated_ms.append(simulated / 1e3 / self._steps)
        return duration / 1e3 / self._steps

    def _run(self, ctx: Any, u: Any, v: Any, steps: int) -> tuple[Any, Any]:
        for _ in range(steps):
            with ctx.task(self._grid, u.read(), v.write(), symbol="heat") as t:
                for shard in t.shards(1):
                    arrays = [stf_warp.array(shard, 0), stf_warp.array(shard, 1)]
                    stf_warp.launch(shard, diffuse, dim=shard.shape, inputs=[*arrays, *shard.start])
            u, v = v, u
        return u, v

    def _largest_difference(self, ctx: Any, u: Any) -> float:
        """Compare where the array lies: the first device reads all of it."""
        with ctx.task(stf.exec_place.device(0), u.read(self._grid.affine_data_place), symbol="compare") as t:
            kernel, dim, inputs = self._plain.comparison(stf_warp.array(t, 0))
            stf_warp.launch(t, kernel, dim=dim, inputs=inputs)
        wait(ctx)
        return self._plain.largest_difference()


def wait(ctx: Any) -> None:
    """Wait for all tasks of a context."""
    current_driver().synchronize_stream(ctx.fence())


def now_us() -> float:
    """Return a simulated machine's virtual time in microseconds; 0 on a real one."""
    return current_driver().now_us() if current_driver().simulated else 0.0
