"""The program of ours on the peer, ``cuda.stf._experimental``, where it is installed.

Its array has one axis, so that a mapper means the same whichever order of axes it is given.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import warp as wp

from benchmarks.environment import current_driver
from benchmarks.heat.kernels import diffuse, fill
from benchmarks.heat.programs import WARM_UP, Case, require_close
from benchmarks.heat.warp_plain import Plain
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "Peer", "load"]

NAME = "cuda.stf._experimental"


def load() -> Any | None:
    """Import the peer; None where it is not installed or does not load."""
    try:
        return importlib.import_module(NAME)
    except (ImportError, OSError, RuntimeError):
        return None


def in_blocks(data_coords: Any, data_dims: Any, grid_dims: Any) -> tuple[int, int, int, int]:
    """Return the place of an element, or of a byte: blocks of equal length, one a place."""
    block = max(-(-data_dims[0] // grid_dims[0]), 1)
    return min(data_coords[0] // block, grid_dims[0] - 1), 0, 0, 0


class Peer:
    """Do a case on the first devices.

    Parameters
    ----------
    peer : module
        From `load`.
    case : Case
        The array.
    steps : int
        Steps in the timed part.
    plain : Plain
        What the result is compared with, measured before.
    """

    def __init__(self, peer: Any, case: Case, steps: int, plain: Plain) -> None:
        self._peer = peer
        self._case = case
        self._steps = steps
        self._plain = plain
        peer.machine_init()
        self._grid = peer.exec_place_grid.from_devices(list(range(case.places)))
        self._place = peer.data_place.composite(self._grid, in_blocks)

    def measure_ms(self) -> float:
        """Do all steps in a context of their own and check them; return the milliseconds of a step.

        Raises
        ------
        WrongResult
            If a cell is not exactly that of plain Warp.
        """
        case = self._case
        with collector_off(), self._peer.context() as ctx:
            u, v = (ctx.logical_data_empty((case.cells,), np.float32, name=name) for name in "uv")
            with ctx.task(self._grid, u.write(self._place)) as t:
                self._launch(t, fill, 1)
            u, v = self._run(ctx, u, v, WARM_UP)
            wait(ctx)
            begin = wall_us()
            u, v = self._run(ctx, u, v, self._steps)
            wait(ctx)
            duration = wall_us() - begin
            with ctx.task(self._peer.exec_place.device(0), u.read(self._place)) as t:
                address = int(t.get_arg(0))
                wait_for(int(t.stream_ptr()))
                worst = self._plain.difference_at([(address, case.rows)])
        require_close(NAME, case, worst, allowed=0.0)
        return duration / 1e3 / self._steps

    def _run(self, ctx: Any, u: Any, v: Any, steps: int) -> tuple[Any, Any]:
        for _ in range(steps):
            with ctx.task(self._grid, u.read(self._place), v.write(self._place)) as t:
                self._launch(t, diffuse, 2)
            u, v = v, u
        return u, v

    def _launch(self, task: Any, kernel: Any, arrays: int) -> None:
        case = self._case
        height = -(-case.rows // case.places)
        for number in range(case.places):
            first = number * height
            shape = (min(height, case.rows - first), case.columns)
            device = wp.get_device(f"cuda:{number}")
            inputs = [self._array(task, index, device) for index in range(arrays)]
            stream = wp.Stream(device, cuda_stream=int(task.get_stream_at_index(number)))
            wp.launch(kernel, shape, inputs=[*inputs, first, 0], stream=stream)

    def _array(self, task: Any, index: int, device: Any) -> Any:
        shape = (self._case.rows, self._case.columns)
        return wp.array(ptr=int(task.get_arg(index)), dtype=wp.float32, shape=shape, device=device)


def wait(ctx: Any) -> None:
    """Wait for all tasks of a context."""
    wait_for(int(ctx.fence()))


def wait_for(stream: int) -> None:
    """Wait for a stream."""
    current_driver().synchronize_stream(stream)
