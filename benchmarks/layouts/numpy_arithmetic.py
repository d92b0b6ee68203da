"""The same questions answered with NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.layouts.programs import ITEMSIZE, PAGE, PLACES, Axis, Program

__all__ = ["NAME", "bytes_by_page", "owners"]

NAME = "NumPy arithmetic"

Counts = npt.NDArray[np.int64]


def owners(axis: Axis, coords: Counts, out: Counts) -> None:
    """Write the owners of `coords` into `out`: no other array of their size is made, none that is not needed."""
    if coords.min() < 0 or coords.max() >= axis.length:
        raise IndexError("a coordinate lies outside the array")
    if axis.block == 1:
        np.remainder(coords, axis.parts, out=out)
        return
    np.floor_divide(coords, axis.block, out=out)
    if axis.length > axis.block * axis.parts:
        np.remainder(out, axis.parts, out=out)


def count_below(axis: Axis, part: int, x: Counts) -> Counts:
    """Return how many elements of a part lie below each x of an axis."""
    blocks, rest = np.divmod(x, axis.block)
    rounds, turn = np.divmod(blocks, axis.parts)
    return rounds * axis.block + np.where(part < turn, axis.block, np.where(part == turn, rest, 0))


def bytes_by_page(program: Program) -> Counts:
    """Return the bytes of each page, shape (pages, places), that each place of a 2-D layout owns."""
    rows, columns = program.axes
    total = rows.length * columns.length
    step = PAGE // ITEMSIZE
    borders = np.minimum(np.arange(-(-total // step) + 1) * step, total)
    row, column = np.divmod(borders, columns.length)
    row_part = row // rows.block % rows.parts
    result = np.empty((borders.size - 1, PLACES), dtype=np.int64)
    for p in range(rows.parts):
        whole_rows = count_below(rows, p, row)
        for q in range(columns.parts):
            in_row = count_below(columns, q, np.array(columns.length))
            below = whole_rows * in_row + np.where(row_part == p, count_below(columns, q, column), 0)
            result[:, p * rows.stride + q * columns.stride] = np.diff(below) * ITEMSIZE
    return result
