"""The boxes of a place: products of what it owns of each axis, made when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import prod
from operator import index
from typing import SupportsIndex, TypeAlias, overload

__all__ = ["Box", "Boxes"]

#: What a place owns of an axis, as `Boxes` takes it.
Ranges: TypeAlias = tuple[int, int, int, int, int, int]
#: One slice for each axis, with start, stop and step.
Box: TypeAlias = tuple[slice, ...]

_SHOWN = 4


class Boxes(Sequence[Box]):
    """List boxes, the last axis varying fastest, as a tuple would; equal to the tuple of the same boxes.

    Parameters
    ----------
    ranges : iterable of (start, stride, length, count, stop, step)
        For each axis what the place owns of it: range number k from ``start + k * stride`` over `length` elements but
        never beyond `stop`, every `step`-th of them.

    Examples
    --------
    >>> boxes = Boxes([(0, 4, 2, 2, 6, 1), (0, 0, 8, 1, 8, 2)])
    >>> len(boxes), boxes[1]
    (2, (slice(4, 6, 1), slice(0, 8, 2)))
    """

    def __init__(self, ranges: Iterable[Ranges]) -> None:
        self._ranges = tuple(ranges)
        self._count = prod(count for _, _, _, count, _, _ in self._ranges) if self._ranges else 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    @overload
    def __getitem__(self, key: SupportsIndex) -> Box: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Box, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Box | tuple[Box, ...]:
        """Return a box, or those of a slice.

        Raises
        ------
        IndexError
            If there is none.
        """
        if isinstance(key, slice):
            return tuple(self[number] for number in range(*key.indices(self._count)))
        number = index(key)
        if not -self._count <= number < self._count:
            raise IndexError(f"a place's boxes are counted from 0: got {number}, and there are {self._count}")
        number %= self._count
        box: list[slice] = []
        for start, stride, length, count, stop, step in reversed(self._ranges):
            number, one = divmod(number, count)
            begin = start + one * stride
            box.append(slice(begin, min(begin + length, stop), step))
        return tuple(reversed(box))

    def __eq__(self, other: object) -> bool:
        """Return whether the other holds the same boxes in the same order."""
        if not isinstance(other, (Boxes, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    # Slices, and so boxes, have no hash before Python 3.12.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return their number and the first few."""
        shown = [repr(box) for box in islice(self, _SHOWN)]
        if self._count > _SHOWN:
            shown.append("...")
        return f"<{self._count} box{'' if self._count == 1 else 'es'}: {', '.join(shown) or 'none'}>"
