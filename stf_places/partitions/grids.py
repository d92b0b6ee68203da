"""What partitions ask of a grid and of an array: checked lengths, and names of the grid's axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, Protocol

from stf_places.errors import PartitionError

__all__ = ["Grid", "GridAxes", "checked_int", "checked_shape"]

#: Names of the axes of a grid that names none.
DEFAULT_AXES = ("x", "y", "z", "t")
#: Elements and bytes of an array stay below, so that sums of two fit into 64 bits.
LIMIT = 1 << 62


class Grid(Protocol):
    """Arrange places along axes: an `exec_place_grid`, or anything of this form.

    A grid may also have ``axes``, a tuple of names; without them they are x, y, z and t.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Places along each axis."""

    @property
    def size(self) -> int:
        """Number of places."""


@dataclass(frozen=True)
class GridAxes:
    """Name the axes of a grid, in C order.

    Parameters
    ----------
    shape : tuple of int
        Places along each axis.
    axes : tuple of str
        Their names.

    Raises
    ------
    PartitionError
        If there is no axis, one is shorter than 1, or names are missing, too many or not unique.

    Examples
    --------
    >>> axes = GridAxes((2, 4), ("gpu", "sm"))
    >>> axes.size, axes.strides, axes.coords(6)
    (8, (4, 1), (1, 2))
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        if not self.shape or min(self.shape) < 1:
            raise PartitionError(
                f"a grid has one axis or more, each of 1 place or more: got shape={self.shape}"
            )
        if len(self.axes) != len(self.shape):
            raise PartitionError(
                f"{len(self.axes)} axes for a rank-{len(self.shape)} grid: got axes={self.axes}, shape={self.shape}"
            )
        if len(set(self.axes)) != len(self.axes):
            raise PartitionError(f"a grid's axes have different names: got axes={self.axes}")

    @classmethod
    def of(cls, grid: Grid) -> GridAxes:
        """Return the axes of a grid.

        Raises
        ------
        TypeError
            If it has no ``shape`` of ints and no ``size``, or its axes are no strings.
        PartitionError
            If what it says about itself does not fit together.
        """
        try:
            if hasattr(grid, "__array__"):
                raise TypeError
            shape = tuple(map(index, grid.shape))
            size = index(grid.size)
        except (AttributeError, TypeError):
            raise TypeError(
                "a grid has shape, axes and size, as exec_place_grid.from_devices([0, 1]) has: got "
                f"{grid!r} ({type(grid).__name__})"
            ) from None
        named: Any = getattr(grid, "axes", None)
        axes = DEFAULT_AXES[: len(shape)] if named is None else named
        if not isinstance(axes, tuple) or not all(isinstance(axis, str) for axis in axes):
            raise TypeError(f"a grid's axes are a tuple of strings: got axes={axes!r}")
        checked = cls(shape, axes)
        if checked.size != size:
            raise PartitionError(
                f"a grid's size is the product of its shape: got size={size}, shape={shape}, which makes {checked.size}"
            )
        return checked

    @property
    def size(self) -> int:
        """Number of places."""
        return prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """What a step along each axis adds to the index of a place."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def lengths(self, axes: Iterable[str]) -> list[tuple[int, int]]:
        """Return length and stride of each named axis."""
        known = dict(zip(self.axes, zip(self.shape, self.strides, strict=True), strict=True))
        return [known[axis] for axis in axes]

    def coords(self, place: int) -> tuple[int, ...]:
        """Return the coordinates of a place."""
        return tuple(
            place // stride % length for length, stride in zip(self.shape, self.strides, strict=True)
        )

    def __str__(self) -> str:
        """Return what messages call it."""
        return f"the grid with axes={self.axes}, shape={self.shape}"


def checked_int(name: str, value: object, least: int = 1) -> int:
    """Return an argument as an int.

    Raises
    ------
    TypeError
        If it is no int.
    PartitionError
        If it is too small.
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} is an int: got {value!r} ({type(value).__name__})")
    number = index(value)  # type: ignore[arg-type]
    if number < least:
        raise PartitionError(f"{name} is {least} or more: got {name}={number}")
    return number


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return the shape of an array to partition, given as an int or as a sequence of ints.

    Raises
    ------
    TypeError
        If it is neither.
    PartitionError
        If it has no axis, a length is below 1, or there are 2**62 elements or more.
    """
    try:
        if isinstance(shape, (bool, str, bytes)):
            raise TypeError
        lengths = (
            tuple(map(index, shape)) if isinstance(shape, Iterable) else (index(shape),)  # type: ignore[arg-type]
        )
    except TypeError:
        raise TypeError(f"a shape is an int or a sequence of ints: got {shape!r}") from None
    if not lengths or min(lengths) < 1:
        raise PartitionError(
            f"an array to partition has one axis or more, each of length 1 or more: got shape={lengths}"
        )
    if prod(lengths) >= LIMIT:
        raise PartitionError(f"an array has fewer than 2**62 elements: got shape={lengths}")
    return lengths
