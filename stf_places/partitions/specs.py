"""Partitions: one rule for each axis of an array, without a shape until they are bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import SupportsIndex

from stf_places._native.layouts import LayoutHandle
from stf_places.errors import PartitionError
from stf_places.partitions.grids import Grid, GridAxes, checked_shape
from stf_places.partitions.layouts import Layout, RuleLayout
from stf_places.partitions.rules import AxisRule

__all__ = ["Partition", "partition"]


@dataclass(frozen=True, repr=False)
class Partition:
    """Lay an array over a grid of places by one rule for each axis. Made by `partition`.

    Parameters
    ----------
    rules : tuple of AxisRule
        One for each axis of the array.
    replicated : tuple of str
        Grid axes along which places hold copies.

    Raises
    ------
    TypeError
        If a rule is no rule, or a name no string.
    PartitionError
        If there is no rule, or a grid axis stands twice.

    Examples
    --------
    >>> from stf_places.partitions import blocked
    >>> Partition((blocked("gpu"),), ("sm",))
    partition(blocked('gpu'), replicated=('sm',))
    """

    rules: tuple[AxisRule, ...]
    replicated: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.rules, tuple):
            raise TypeError(f"rules are a tuple, as in partition(blocked('x'), whole): got {self.rules!r}")
        for rule in self.rules:
            if not isinstance(rule, AxisRule):
                raise TypeError(
                    f"a partition is made of rules, as in partition(blocked('x'), whole): got {rule!r} "
                    f"({type(rule).__name__})"
                )
        if not self.rules:
            raise PartitionError("a partition has one rule for each axis of the array: got none")
        if not isinstance(self.replicated, tuple) or not all(isinstance(n, str) for n in self.replicated):
            raise TypeError(
                f"replicated names grid axes, as in replicated=('x',): got replicated={self.replicated!r}"
            )
        if len(set(self.used_axes)) != len(self.used_axes):
            raise PartitionError(f"a grid axis is used once: got {self!r}")

    @property
    def used_axes(self) -> tuple[str, ...]:
        """The grid axes of all rules, and those along which places hold copies."""
        return (*(axis for rule in self.rules for axis in rule.axes), *self.replicated)

    def bind(self, shape: SupportsIndex | Sequence[SupportsIndex], grid: Grid) -> Layout:
        """Return how an array of a shape lies over the places of a grid.

        Parameters
        ----------
        shape : int or sequence of int
            Elements along each axis of the array, each 1 or more.
        grid : exec_place_grid or Grid
            Places along named axes. The rules, with `replicated`, use each of its axes once.

        Returns
        -------
        Layout
            Places are counted in C order over the grid's axes.

        Raises
        ------
        TypeError
            If the shape is no sequence of ints, or the grid no grid.
        PartitionError
            If the array's rank differs from the number of rules, a length is below 1, a rule names an axis that
            the grid lacks, or an axis of the grid is neither used nor replicated.

        Notes
        -----
        Allocates no memory of a place and touches no driver.

        Examples
        --------
        >>> import stf_places as stf
        >>> from stf_places.partitions import blocked, whole
        >>> grid = stf.exec_place_grid.from_devices([0, 1])
        >>> layout = partition(blocked("x"), whole).bind((5, 8), grid)
        >>> [layout.size_of(place) for place in range(layout.place_count)]
        [24, 16]
        """
        lengths = checked_shape(shape)
        axes = GridAxes.of(grid)
        self._check(lengths, axes)
        handle = LayoutHandle(
            [_native_axis(rule, length, axes) for rule, length in zip(self.rules, lengths, strict=True)],
            axes.size,
        )
        return RuleLayout(self, lengths, grid, axes, handle)

    def _check(self, lengths: tuple[int, ...], grid: GridAxes) -> None:
        """Raise unless rules, array and grid fit together."""
        if len(lengths) != len(self.rules):
            raise PartitionError(
                f"{len(self.rules)} rules for a rank-{len(lengths)} array: got {self!r}, shape={lengths}; give one "
                "rule for each axis, whole for one that is not cut"
            )
        unknown = tuple(axis for axis in self.used_axes if axis not in grid.axes)
        if unknown:
            raise PartitionError(
                f"a partition uses axes of its grid: got {self!r} with {unknown}, which {grid} lacks"
            )
        unused = tuple(axis for axis in grid.axes if axis not in self.used_axes)
        if unused:
            raise PartitionError(
                f"each axis of a grid is used by a rule or replicated: got {self!r} without {unused} of {grid}; use it "
                f"in a rule, or give replicated={(*self.replicated, *unused)}"
            )

    def __repr__(self) -> str:
        """Return the call that makes it."""
        arguments = [repr(rule) for rule in self.rules]
        if self.replicated:
            arguments.append(f"replicated={self.replicated!r}")
        return f"partition({', '.join(arguments)})"


def partition(*rules: AxisRule, replicated: Iterable[str] = ()) -> Partition:
    """Return a partition: how each axis of an array is laid over the axes of a grid.

    Parameters
    ----------
    *rules : AxisRule
        One for each axis of the array: `whole`, `blocked`, `cyclic`, `block_cyclic` or `tiled`.
    replicated : iterable of str
        Names of grid axes along which places hold copies of the same part.

    Returns
    -------
    Partition
        A value without a shape: ``bind(shape, grid)`` makes it a layout.

    Raises
    ------
    TypeError
        If a rule is no rule, or `replicated` names no strings.
    PartitionError
        If there is no rule, or a grid axis stands twice.

    Examples
    --------
    >>> from stf_places.partitions import blocked, whole
    >>> partition(blocked("gpu", "sm"), whole)
    partition(blocked('gpu', 'sm'), whole)
    """
    if isinstance(replicated, str) or not isinstance(replicated, Iterable):
        raise TypeError(f"replicated names grid axes, as in replicated=('x',): got replicated={replicated!r}")
    return Partition(rules, tuple(replicated))


def _native_axis(rule: AxisRule, length: int, grid: GridAxes) -> tuple[int, int, list[int]]:
    """Return length, block length, and by part what it adds to a place's index."""
    named = grid.lengths(rule.axes)
    offsets = [0]
    for count, stride in named:
        offsets = [offset + step * stride for offset in offsets for step in range(count)]
    return length, rule.block_length(length, prod(count for count, _ in named)), offsets
