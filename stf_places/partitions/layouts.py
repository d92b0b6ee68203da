"""Layouts: who owns which element, box and page of an array. Made by binding a partition or a mapper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from stf_places.errors import PartitionError
from stf_places.partitions.boxes import Box, Boxes
from stf_places.partitions.grids import LIMIT, Grid, GridAxes, checked_int
from stf_places.partitions.layout_stats import DEFAULT_PAGE, LayoutStats, PageRun

if TYPE_CHECKING:
    from stf_places._native.layouts import LayoutHandle
    from stf_places.partitions.mappers import Mapper
    from stf_places.partitions.specs import Partition

__all__ = ["Indices", "Layout", "RuleLayout"]

Indices: TypeAlias = npt.NDArray[np.int64]


class Layout(ABC):
    """Tell how an array lies over the places of a grid. An immutable value, hashable where its grid is.

    Made by `Partition.bind` and `Mapper.bind`.

    Notes
    -----
    Places have an index, in C order over the grid's axes. No memory of a place is allocated. What a layout holds
    of its partition is in closed form: its size does not grow with the array.

    Examples
    --------
    >>> import stf_places as stf
    >>> from stf_places.partitions import cyclic, partition
    >>> grid = stf.exec_place_grid.from_devices([0, 1])
    >>> layout = partition(cyclic("x")).bind(6, grid)
    >>> layout.owner([[0], [1], [4]])
    array([0, 1, 0])
    >>> layout.boxes(1)[0]
    (slice(1, 6, 2),)
    """

    def __init__(
        self, spec: Partition | Mapper, shape: tuple[int, ...], grid: Grid, grid_axes: GridAxes
    ) -> None:
        self._spec = spec
        self._shape = shape
        self._grid = grid
        self._grid_axes = grid_axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis of the array."""
        return self._shape

    @property
    def grid(self) -> Any:
        """The grid, as it was given."""
        return self._grid

    @property
    def spec(self) -> Partition | Mapper:
        """The partition or mapper that was bound."""
        return self._spec

    @property
    def place_count(self) -> int:
        """Places of the grid."""
        return self._grid_axes.size

    @property
    def exact(self) -> bool:
        """False when elements and pages of places are estimated from samples; `owner` never is."""
        return True

    def owner(self, coords: npt.ArrayLike, out: Indices | None = None) -> Indices:
        """Return the index of the place that owns each of some elements; of copies, the first.

        Parameters
        ----------
        coords : array-like of int, shape (..., ndim)
            Coordinates of elements, the axes of the array along the last axis.
        out : ndarray of int64, shape (...,), optional
            Where to write, in C order without gaps. None: a new array.

        Returns
        -------
        ndarray of int64, shape (...,)
            `out` if it was given.

        Raises
        ------
        TypeError
            If `coords` are no ints, or `out` is no array of int64.
        ValueError
            If the last axis of `coords` is not as long as the array has axes, or `out` has another shape, gaps,
            lies askew in memory, or is read-only.
        IndexError
            If coordinates lie outside the array: the first are named.
        MapperError
            If a mapper raises or answers outside the grid.

        Notes
        -----
        With coordinates in an int64 array in C order and `out`, nothing is allocated.

        Examples
        --------
        >>> import numpy as np
        >>> import stf_places as stf
        >>> from stf_places.partitions import blocked, partition, whole
        >>> layout = partition(blocked("x"), whole).bind((4, 3), stf.exec_place_grid.from_devices([0, 1]))
        >>> layout.owner(np.stack(np.indices((4, 3)), axis=-1))
        array([[0, 0, 0],
               [0, 0, 0],
               [1, 1, 1],
               [1, 1, 1]])
        """
        rows, shape = self._rows(coords)
        if out is None:
            owners = np.empty(shape, np.int64)
        else:
            owners = _checked_out(out, shape)
            if np.may_share_memory(rows, owners):
                rows = rows.copy()
        self._write_owners(rows, owners.reshape(-1))
        return owners

    def boxes(self, place_index: SupportsIndex) -> Sequence[Box]:
        """Return the boxes that a place has of the array; none overlap.

        Parameters
        ----------
        place_index : int
            Index of the place.

        Returns
        -------
        sequence of tuple of slice
            ``array[box]`` is a part of what the place has, and all boxes together are all of it. Cyclic rules
            give slices with a step. Empty where the place has nothing. Boxes are made when asked for.

        Raises
        ------
        TypeError
            If the index is no int.
        IndexError
            If there is no such place.
        NotSupported
            If the layout is a mapper's.

        Notes
        -----
        Places that hold copies have the same boxes.

        Examples
        --------
        >>> import stf_places as stf
        >>> from stf_places.partitions import block_cyclic, partition, whole
        >>> grid = stf.exec_place_grid.from_devices([0, 1])
        >>> partition(block_cyclic("x", 2), whole).bind((6, 3), grid).boxes(0)
        <2 boxes: (slice(0, 2, 1), slice(0, 3, 1)), (slice(4, 6, 1), slice(0, 3, 1))>
        """
        return self._boxes(self._original(self._checked_place(place_index)))

    def owns(self, place_index: SupportsIndex) -> bool:
        """Return whether a place holds the first copy of what it has: always, unless grid axes are replicated.

        Parameters
        ----------
        place_index : int
            Index of the place.

        Raises
        ------
        TypeError
            If the index is no int.
        IndexError
            If there is no such place.
        """
        place = self._checked_place(place_index)
        return self._original(place) == place

    def size_of(self, place_index: SupportsIndex) -> int:
        """Return how many elements a place has of the array.

        Parameters
        ----------
        place_index : int
            Index of the place.

        Returns
        -------
        int
            An estimate where `exact` is False. Places that hold copies have as many each.

        Raises
        ------
        TypeError
            If the index is no int.
        IndexError
            If there is no such place.
        MapperError
            If a mapper raises, answers outside the grid or changes its answer.
        """
        return int(self._elements[self._original(self._checked_place(place_index))])

    def pages(self, itemsize: SupportsIndex, page: SupportsIndex = DEFAULT_PAGE) -> tuple[PageRun, ...]:
        """Return which place each page of the array in C order should lie on.

        Parameters
        ----------
        itemsize : int
            Bytes of an element.
        page : int
            Bytes of a page.

        Returns
        -------
        tuple of PageRun
            Of each page the place that owns most of its bytes, of equals the lowest; runs as long as can be, in
            ascending order. Of a replicated array, the pages of the first copy.

        Raises
        ------
        TypeError
            If an argument is no int.
        PartitionError
            If one is below 1, or the array or a page has 2**62 bytes or more.
        MapperError
            If a mapper raises, answers outside the grid or changes its answer.

        Examples
        --------
        >>> import stf_places as stf
        >>> from stf_places.partitions import blocked, partition
        >>> layout = partition(blocked("x")).bind(1 << 20, stf.exec_place_grid.from_devices([0, 1]))
        >>> layout.pages(8)
        (PageRun(place=0, first=0, count=2), PageRun(place=1, first=2, count=2))
        """
        return tuple(PageRun(*run) for run in self.page_rows(itemsize, page).tolist())

    def page_rows(self, itemsize: SupportsIndex, page: SupportsIndex = DEFAULT_PAGE) -> Indices:
        """Return what `pages` does as an array with a row (place, first, count) for each run.

        Parameters
        ----------
        itemsize : int
            Bytes of an element.
        page : int
            Bytes of a page.

        Returns
        -------
        ndarray of int64, shape (runs, 3)
            For layouts of very many pages cheaper than `pages`.

        Raises
        ------
        TypeError
            If an argument is no int.
        PartitionError
            If one is below 1, or the array or a page has 2**62 bytes or more.
        MapperError
            If a mapper raises, answers outside the grid or changes its answer.
        """
        return self._page_rows(*self._checked_sizes(itemsize, page))

    def stats(self, itemsize: SupportsIndex, page: SupportsIndex = DEFAULT_PAGE) -> LayoutStats:
        """Return what the array takes of each place, all copies included.

        Parameters
        ----------
        itemsize : int
            Bytes of an element.
        page : int
            Bytes of a page.

        Returns
        -------
        LayoutStats
            An estimate, and labelled as one, where `exact` is False.

        Raises
        ------
        TypeError
            If an argument is no int.
        PartitionError
            If one is below 1, or the array or a page has 2**62 bytes or more.
        MapperError
            If a mapper raises, answers outside the grid or changes its answer.

        Examples
        --------
        >>> import stf_places as stf
        >>> from stf_places.partitions import blocked, partition
        >>> layout = partition(blocked("x")).bind(1 << 20, stf.exec_place_grid.from_devices([0, 1]))
        >>> print(layout.stats(8))
        place       owned      mapped
        0           4 MiB       4 MiB
        1           4 MiB       4 MiB
        4 pages of 2 MiB in 2 runs, 0 B misplaced (exact)
        """
        size, nbytes = self._checked_sizes(itemsize, page)
        runs, misplaced = self._page_runs(size, nbytes)
        pages = np.zeros(self.place_count, np.int64)
        np.add.at(pages, runs[:, 0], runs[:, 2])
        elements = self._elements.tolist()
        originals = [self._original(place) for place in range(self.place_count)]
        copies = self._copies
        return LayoutStats(
            bytes_by_place=tuple(elements[place] * size for place in originals),
            mapped_by_place=tuple(int(pages[place]) * nbytes for place in originals),
            misplaced_bytes=misplaced * copies,
            page_count=int(pages.sum()) * copies,
            runs=len(runs) * copies,
            page=nbytes,
            copies=copies,
            exact=self.exact,
        )

    @abstractmethod
    def _write_owners(self, rows: Indices, out: Indices) -> None:
        """Write the owner of each row of coordinates."""

    @abstractmethod
    def _boxes(self, place: int) -> Sequence[Box]:
        """Return the boxes of a place that owns something, or nothing."""

    @property
    @abstractmethod
    def _elements(self) -> Indices:
        """Elements that each place owns, none for places that hold further copies."""

    @abstractmethod
    def _page_runs(self, itemsize: int, page: int) -> tuple[Indices, int]:
        """Return rows (place, first page, pages), and the bytes on pages of another owner."""

    def _page_rows(self, itemsize: int, page: int) -> Indices:
        """Return the rows alone."""
        return self._page_runs(itemsize, page)[0]

    @property
    def _copies(self) -> int:
        """Number of copies of the array."""
        return 1

    def _original(self, place: int) -> int:
        """Return the place that owns what a place holds a copy of."""
        return place

    def _rows(self, coords: npt.ArrayLike) -> tuple[Indices, tuple[int, ...]]:
        """Return coordinates as rows in C order, and the shape of the answer."""
        given = np.asarray(coords)
        if given.dtype.kind not in "iu":
            raise TypeError(f"coordinates are ints: got an array of {given.dtype}, shape={given.shape}")
        rank = len(self._shape)
        if given.ndim == 0 or given.shape[-1] != rank:
            raise ValueError(
                f"the last axis of coordinates has the {rank} of an element of shape {self._shape}: got "
                f"coordinates of shape {given.shape}; give (..., {rank})"
            )
        if given.dtype.kind == "u" and given.size and given.max() > np.iinfo(np.int64).max:
            raise IndexError(f"coordinates lie within the shape {self._shape}: got {given.max()}")
        return np.require(given, np.int64, ["C", "A"]).reshape(-1, rank), given.shape[:-1]

    def _checked_place(self, place_index: SupportsIndex) -> int:
        if isinstance(place_index, bool) or not hasattr(type(place_index), "__index__"):
            raise TypeError(f"a place's index is an int: got {place_index!r} ({type(place_index).__name__})")
        place = index(place_index)
        if not 0 <= place < self.place_count:
            raise IndexError(f"places are counted from 0 to {self.place_count - 1}: got {place}")
        return place

    def _checked_sizes(self, itemsize: SupportsIndex, page: SupportsIndex) -> tuple[int, int]:
        size = checked_int("itemsize", itemsize)
        nbytes = checked_int("page", page)
        if max(prod(self._shape) * size, nbytes) >= LIMIT:
            raise PartitionError(
                f"an array and a page have fewer than 2**62 bytes each: got shape={self._shape}, itemsize={size}, "
                f"page={nbytes}"
            )
        return size, nbytes

    def __eq__(self, other: object) -> bool:
        """Return whether the other has the same partition or mapper, shape and grid."""
        if not isinstance(other, Layout):
            return NotImplemented
        return self._value() == other._value()

    def __hash__(self) -> int:
        """Return the hash of partition or mapper, shape and grid."""
        return hash(self._value())

    def _value(self) -> tuple[object, ...]:
        return self._spec, self._shape, self._grid_axes, self._grid

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how copies and pickles are made: bound anew."""
        return self._spec.bind, (self._shape, self._grid)

    def __repr__(self) -> str:
        """Return the call that makes it."""
        # A grid may say behind a comment sign that its machine is simulated.
        grid, mark, note = repr(self._grid).partition("  #")
        return f"{self._spec!r}.bind({self._shape!r}, {grid}){mark}{note}"


class RuleLayout(Layout):
    """Answer from the closed form of a `Partition`."""

    def __init__(
        self, spec: Partition, shape: tuple[int, ...], grid: Grid, grid_axes: GridAxes, handle: LayoutHandle
    ) -> None:
        super().__init__(spec, shape, grid, grid_axes)
        self._handle = handle
        self._replicated = grid_axes.lengths(spec.replicated)

    @cached_property
    def _elements(self) -> Indices:
        return self._handle.elements()

    @property
    def _copies(self) -> int:
        return prod(length for length, _ in self._replicated)

    def _original(self, place: int) -> int:
        return place - sum(place // stride % length * stride for length, stride in self._replicated)

    def _write_owners(self, rows: Indices, out: Indices) -> None:
        self._handle.owners(rows, out)

    def _boxes(self, place: int) -> Sequence[Box]:
        parts: Iterable[int] = self._handle.parts_of(place) or ()
        return Boxes(self._handle.ranges(axis, part) for axis, part in enumerate(parts))

    def _page_runs(self, itemsize: int, page: int) -> tuple[Indices, int]:
        return self._page_rows(itemsize, page), self._handle.misplaced(itemsize, page)

    def _page_rows(self, itemsize: int, page: int) -> Indices:
        return self._handle.pages(itemsize, page)


def _checked_out(out: object, shape: tuple[int, ...]) -> Indices:
    if not isinstance(out, np.ndarray) or out.dtype != np.int64:
        what = out.dtype if isinstance(out, np.ndarray) else type(out).__name__
        raise TypeError(f"out is an array of int64: got {what}; give np.empty({shape}, np.int64)")
    if out.shape != shape:
        raise ValueError(
            f"out has one element for each row of coordinates: got shape {out.shape} for {shape}"
        )
    flags = out.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise ValueError(
            f"out is writeable, aligned and in C order without gaps: got writeable={flags.writeable}, "
            f"aligned={flags.aligned}, C-contiguous={flags.c_contiguous}"
        )
    return out
