"""Layouts of stf_places' core."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.layouts.programs import ITEMSIZE, PAGE, PLACES, Program
from stf_places._native.layouts import LayoutHandle

__all__ = ["handle_of", "misplaced", "owners", "pages"]


def handle_of(program: Program) -> LayoutHandle:
    """Make the layout of a program."""
    axes = [
        (axis.length, axis.block, [part * axis.stride for part in range(axis.parts)]) for axis in program.axes
    ]
    return LayoutHandle(axes, PLACES)


def owners(handle: LayoutHandle, coords: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
    """Write the owners of `coords`, one coordinate an element, into `out`."""
    handle.owners(coords.reshape(-1, 1), out)


def pages(handle: LayoutHandle) -> npt.NDArray[np.int64]:
    """Return the runs of pages: place, first page, pages."""
    return handle.pages(ITEMSIZE, PAGE)


def misplaced(handle: LayoutHandle) -> int:
    """Return the bytes that lie on pages of another owner."""
    return handle.misplaced(ITEMSIZE, PAGE)
