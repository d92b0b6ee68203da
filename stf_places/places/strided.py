"""Shapes and strides of arrays, and what an index selects of them. Strides are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from operator import index
from types import EllipsisType
from typing import SupportsIndex, TypeAlias

__all__ = ["Key", "Strided", "checked_shape"]

Key: TypeAlias = SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType, ...]

_LIMIT = 1 << 63


def checked_shape(size: object) -> tuple[int, ...]:
    """Return a shape given as an int or as a sequence of ints.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If a length is negative.
    """
    try:
        if isinstance(size, (bool, str, bytes)):
            raise TypeError
        shape = (index(size),) if hasattr(type(size), "__index__") else tuple(map(index, size))  # type: ignore[arg-type, call-overload]
    except TypeError:
        raise TypeError(f"a shape is an int or a sequence of ints: got {size!r}") from None
    if min(shape, default=0) < 0:
        raise ValueError(f"no length of a shape is negative: got {shape}")
    return shape


@dataclass(frozen=True)
class Strided:
    """Lay an array over memory: element (0, ..., 0) lies `offset` bytes behind the block's start.

    Parameters
    ----------
    shape : tuple of int
        One length an axis.
    strides : tuple of int
        One stride an axis, in bytes; may be negative.
    itemsize : int
        Bytes of an element.
    offset : int
        In bytes.

    Examples
    --------
    >>> Strided.contiguous((2, 3), 4).select((slice(None), 1))
    Strided(shape=(2,), strides=(12,), itemsize=4, offset=4)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    offset: int = 0

    @classmethod
    def contiguous(cls, shape: tuple[int, ...], itemsize: int) -> Strided:
        """Return the C-ordered array of a shape.

        Raises
        ------
        ValueError
            If it has 2**63 bytes or more.
        """
        # As NumPy: a length of 0 does not excuse the others.
        if prod(length or 1 for length in shape) * itemsize >= _LIMIT:
            raise ValueError(
                f"an array has fewer than 2**63 bytes: got shape={shape} with {itemsize} bytes an element"
            )
        strides = []
        step = itemsize
        for length in reversed(shape):
            strides.append(step)
            step *= max(length, 1)
        return cls(shape, tuple(reversed(strides)), itemsize)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True when the elements lie in C order without gaps."""
        if self.size == 0:
            return True
        step = self.itemsize
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return False
            step *= length
        return True

    def select(self, key: Key) -> Strided:
        """Return what a basic index selects: ints drop their axis, slices keep it.

        Raises
        ------
        IndexError
            If an int is out of range, or there are more indices than axes.
        TypeError
            If an index is no int, slice or ``...``.
        """
        shape: list[int] = []
        strides: list[int] = []
        offset = self.offset
        for axis, (one, length, stride) in enumerate(
            zip(self._full_key(key), self.shape, self.strides, strict=True)
        ):
            if isinstance(one, slice):
                start, stop, step = one.indices(length)
                kept = len(range(start, stop, step))
                offset += start * stride if kept else 0
                shape.append(kept)
                strides.append(stride * step)
                continue
            number = index(one)
            if not -length <= number < length:
                raise IndexError(f"index {number} is outside axis {axis} of shape {self.shape}")
            offset += number % length * stride
        return Strided(tuple(shape), tuple(strides), self.itemsize, offset)

    def _full_key(self, key: Key) -> list[SupportsIndex | slice]:
        """Return one int or slice for each axis."""
        given = list(key) if isinstance(key, tuple) else [key]
        for one in given:
            if isinstance(one, bool) or not (
                isinstance(one, (slice, EllipsisType)) or hasattr(type(one), "__index__")
            ):
                raise TypeError(f"a device array is indexed with ints, slices and '...': got {one!r}")
        ellipses = [place for place, one in enumerate(given) if one is Ellipsis]
        if len(ellipses) > 1:
            raise IndexError("an index has one ellipsis ('...') at most")
        count = len(given) - len(ellipses)
        if count > len(self.shape):
            raise IndexError(f"too many indices: {count} for an array of shape {self.shape}")
        gap = ellipses[0] if ellipses else len(given)
        given[gap : gap + 1] = [slice(None)] * (len(self.shape) - count)
        return given  # type: ignore[return-value]
