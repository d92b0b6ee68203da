"""Plain Warp: a loop of launches on one whole device. Its result is what the others are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from benchmarks.environment import current_driver
from benchmarks.heat.kernels import compare, diffuse, fill
from benchmarks.heat.programs import WARM_UP, Case, patches, require_close
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "Plain"]

NAME = "plain Warp, one whole device, same kernel"


class Plain:
    """Do a case without places, on the first device of a real machine, else on the CPU.

    Parameters
    ----------
    case : Case
        The array.
    steps : int
        Steps in the timed part.
    """

    def __init__(self, case: Case, steps: int) -> None:
        self._case = case
        self._steps = steps
        self.device: Any = wp.get_device("cpu" if current_driver().simulated else "cuda:0")
        shape = (case.rows, case.columns)
        self._arrays = [wp.empty(shape, dtype=wp.float32, device=self.device) for _ in range(2)]
        self._worst: Any = wp.zeros(1, dtype=wp.float32, device=self.device)
        self._patches = patches(case, WARM_UP + steps)

    def measure_ms(self) -> float:
        """Do all steps and check them against NumPy; return the milliseconds of a step.

        Raises
        ------
        WrongResult
            If a cell is wrong.
        """
        case, (u, v) = self._case, self._arrays
        wp.launch(fill, (case.rows, case.columns), inputs=[u, 0, 0], device=self.device)
        u, v = self._run(u, v, WARM_UP)
        wp.synchronize_device(self.device)
        with collector_off():
            begin = wall_us()
            u, v = self._run(u, v, self._steps)
            wp.synchronize_device(self.device)
            duration = wall_us() - begin
        self.result = u
        for patch in self._patches:
            found = u[patch.rows, patch.columns].numpy()
            require_close(NAME, case, float(np.abs(found - patch.values).max()))
        return duration / 1e3 / self._steps

    def _run(self, u: Any, v: Any, steps: int) -> tuple[Any, Any]:
        shape = (self._case.rows, self._case.columns)
        for _ in range(steps):
            wp.launch(diffuse, shape, inputs=[u, v, 0, 0], device=self.device)
            u, v = v, u
        return u, v

    def comparison(self, found: Any, first_row: int = 0) -> tuple[Any, Any, list[Any]]:
        """Return kernel, dimensions and arguments of a launch that compares rows of an array with the result."""
        self._worst.zero_()
        wp.synchronize_device(self.device)
        return compare, found.shape, [found, self.result, first_row, self._worst]

    def largest_difference(self) -> float:
        """Return what the comparisons found since the last call of `comparison`, all of them done."""
        return float(self._worst.numpy()[0])

    def difference_at(self, addresses: list[tuple[int, int]]) -> float:
        """Compare blocks of rows that follow each other, each at an address that the first device can read.

        Parameters
        ----------
        addresses : list of (int, int)
            Address and rows of each block.
        """
        first, worst = 0, 0.0
        for address, rows in addresses:
            shape = (rows, self._case.columns)
            found: Any = wp.array(ptr=address, dtype=wp.float32, shape=shape, device=self.device)
            kernel, dim, inputs = self.comparison(found, first)
            wp.launch(kernel, dim, inputs=inputs, device=self.device)
            worst = max(worst, self.largest_difference())
            first += rows
        return worst
