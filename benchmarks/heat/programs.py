"""The cases, the first value of each cell, and what NumPy makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "BLOCK",
    "BYTES_A_CELL",
    "RATE",
    "TOLERANCE",
    "WARM_UP",
    "Case",
    "Patch",
    "WrongResult",
    "cases",
    "patches",
    "require_close",
]

#: Part of the difference to its neighbours that a cell takes over in a step.
RATE = 0.2
#: Memory that a step has to read and write for a cell of float32.
BYTES_A_CELL = 8
#: Steps before the timed part of a measurement.
WARM_UP = 4
#: Values are from 0 to 1; two ways of rounding the same steps may differ by this.
TOLERANCE = 1e-6
#: Side of the squares that have one value at first: wide enough to be seen after all steps.
BLOCK = 8
#: Cells of a patch that is compared with NumPy.
PATCH = 24

Image = npt.NDArray[np.float32]


class WrongResult(Exception):
    """Report a system whose result is wrong: there is no measurement of it."""


@dataclass(frozen=True)
class Case:
    """Describe an array and the places that work on it."""

    scaling: Literal["strong", "weak"]
    kind: Literal["devices", "partitions"]
    places: int
    rows: int
    columns: int

    @property
    def name(self) -> str:
        """The case's name in its record."""
        kind = self.kind if self.places > 1 else self.kind[:-1]
        return f"{self.scaling}_{self.places}_{kind}"

    @property
    def cells(self) -> int:
        """Cells of the array."""
        return self.rows * self.columns


def cases(kind: Literal["devices", "partitions"], counts: Sequence[int], size: int) -> Iterator[Case]:
    """Yield the cases for these numbers of places, the smallest number of each scaling first.

    Parameters
    ----------
    size : int
        Rows and columns with strong scaling. With weak scaling the largest number of places has as many rows.
    """
    for places in counts:
        yield Case("strong", kind, places, size, size)
    rows = -(-size // max(counts))
    for places in counts:
        yield Case("weak", kind, places, rows * places, size)


def first_values(rows: slice, columns: slice) -> Image:
    """Return the first values of some cells, as the kernels compute them."""
    i = np.arange(rows.start, rows.stop)[:, None] // BLOCK
    j = np.arange(columns.start, columns.stop)[None, :] // BLOCK
    return np.asarray(((i * 37 + j * 101) & 255) / np.float32(256), np.float32)


@dataclass(frozen=True)
class Patch:
    """Hold some cells of the result, computed with NumPy from the cells that they depend on."""

    rows: slice
    columns: slice
    values: Image


def patches(case: Case, steps: int) -> list[Patch]:
    """Compute patches at the corners, at the borders of the places and elsewhere."""
    generator = np.random.default_rng(0)
    last = max(case.rows - PATCH, 0), max(case.columns - PATCH, 0)
    corners = {(0, 0), (0, last[1]), (last[0], 0), last}
    block = -(-case.rows // case.places)
    borders = {(min(max(block * k - PATCH // 2, 0), last[0]), last[1] // 2) for k in range(1, case.places)}
    others = {(int(generator.integers(last[0] + 1)), int(generator.integers(last[1] + 1))) for _ in range(4)}
    return [
        compute(case, steps, row, column) for row, column in sorted({*corners, *sorted(borders)[:8], *others})
    ]


def compute(case: Case, steps: int, row: int, column: int) -> Patch:
    """Do all steps of a patch, in float32, from the cells at most `steps` away."""
    rows = slice(row, min(row + PATCH, case.rows))
    columns = slice(column, min(column + PATCH, case.columns))
    wide = [
        slice(max(one.start - steps, 0), min(one.stop + steps, length))
        for one, length in ((rows, case.rows), (columns, case.columns))
    ]
    u = first_values(*wide)
    for _ in range(steps):  # at a cut edge the padding is wrong; that reaches one cell further in each step
        padded = np.pad(u, 1, mode="edge")
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        u = u + np.float32(RATE) * (around - np.float32(4) * u)
    inside = [
        slice(one.start - all_.start, one.stop - all_.start)
        for one, all_ in zip((rows, columns), wide, strict=True)
    ]
    return Patch(rows, columns, u[inside[0], inside[1]])


def require_close(system: str, case: Case, worst: float, allowed: float = TOLERANCE) -> None:
    """Refuse a result that is too far away.

    Raises
    ------
    WrongResult
        If `worst` is above `allowed`, or no number.
    """
    if not worst <= allowed:
        raise WrongResult(
            f"{case.name}, {system}: a cell differs by {worst:.3g} from the reference, allowed {allowed:.3g}"
        )
