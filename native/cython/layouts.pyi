"""The border to the core's layouts. Programs use `stf_places.partition` and its neighbours."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

#: Length of an array axis, elements of a block, and by part what it adds to the place's index.
Axis: TypeAlias = tuple[int, int, Sequence[int]]
#: Start, stride, length, count, stop and step: range number k goes from ``start + k * stride`` over `length` elements
#: but never beyond `stop`, every `step`-th of them.
Ranges: TypeAlias = tuple[int, int, int, int, int, int]

class LayoutHandle:
    """Hold a layout of the core.

    Parameters
    ----------
    axes : sequence of Axis
        One for each axis of the array: ``(length, block, places)``; block number b belongs to part
        ``b % len(places)``, and the parts of all axes add up to the place's index.
    place_count : int
        Places of the grid.
    """

    def __init__(self, axes: Sequence[Axis], place_count: int) -> None: ...
    def owners(self, coords: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
        """Write the owner of each row of `coords` (count, rank), C-contiguous, into `out` (count,), C-contiguous.

        Raises
        ------
        IndexError
            If a row lies outside the array: the first is named.
        """
    def ranges(self, axis: int, part: int) -> Ranges:
        """Return what a part owns of an axis."""
    def parts_of(self, place: int) -> tuple[int, ...] | None:
        """Return the part of each axis that a place has; None for a place that owns nothing (a replica's)."""
    def elements(self) -> npt.NDArray[np.int64]:
        """Return how many elements each place owns."""
    def pages(self, itemsize: int, page: int) -> npt.NDArray[np.int64]:
        """Return runs of pages as rows (place, first page, pages), shape (n, 3)."""
    def misplaced(self, itemsize: int, page: int) -> int:
        """Return the bytes that lie on pages of another owner."""
