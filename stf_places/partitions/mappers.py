"""Mappers: partitions that a function of the program defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from stf_places.errors import MapperError, PartitionError
from stf_places.partitions.grids import Grid, GridAxes, checked_shape
from stf_places.partitions.layouts import Indices, Layout
from stf_places.partitions.mapper_layouts import MapperLayout

__all__ = ["MAPPER_RANK", "Mapper", "mapper"]

#: Axes that a mapper sees, of arrays and of grids.
MAPPER_RANK = 4
#: Elements that a vectorised mapper is asked for in one call, which bounds what the call allocates.
ELEMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, repr=False)
class Mapper:
    """Lay an array over a grid by a function. Made by `mapper`; equal where function and form are.

    Parameters
    ----------
    fn : callable
        ``fn(data_coords, data_dims, grid_dims) -> coords``.
    vectorized : bool
        Whether it takes arrays of coordinates.

    Raises
    ------
    TypeError
        If `fn` is not callable, or `vectorized` no bool.

    Examples
    --------
    >>> def rows(coords, dims, grid):
    ...     return (coords[0] * grid[0] // dims[0],)
    >>> Mapper(rows)
    mapper(rows)
    """

    fn: Callable[..., Any]
    vectorized: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        if not callable(self.fn):
            raise TypeError(
                f"a mapper is a function of data_coords, data_dims and grid_dims: got {self.fn!r} "
                f"({type(self.fn).__name__})"
            )
        if not isinstance(self.vectorized, bool):
            raise TypeError(f"vectorized is True or False: got {self.vectorized!r}")

    def bind(self, shape: SupportsIndex | Sequence[SupportsIndex], grid: Grid) -> Layout:
        """Return how an array of a shape lies over the places of a grid.

        Parameters
        ----------
        shape : int or sequence of int
            Elements along each of 1 to 4 axes of the array, each 1 or more.
        grid : exec_place_grid or Grid
            Places along 1 to 4 axes.

        Returns
        -------
        Layout
            Exact up to 65,536 elements; beyond, what it tells of places and pages is estimated from the answers for
            samples. It has no boxes.

        Raises
        ------
        TypeError
            If the shape is no sequence of ints, or the grid no grid.
        PartitionError
            If array or grid have more than four axes, or a length is below 1.
        MapperError
            If the function raises, answers with anything but coordinates within the grid, or answers differently
            when asked again.

        Notes
        -----
        Asks for a few elements, the first and the last among them, each twice.

        Examples
        --------
        >>> import stf_places as stf
        >>> def columns(coords, dims, grid):
        ...     return (coords[1] * grid[0] // dims[1],)
        >>> layout = mapper(columns).bind((2, 4), stf.exec_place_grid.from_devices([0, 1]))
        >>> layout.owner([[0, 1], [0, 2]]), layout.size_of(0)
        (array([0, 1]), 4)
        """
        lengths = checked_shape(shape)
        axes = GridAxes.of(grid)
        for what, rank, given in (("arrays", len(lengths), lengths), ("grids", len(axes.shape), axes.shape)):
            if rank > MAPPER_RANK:
                raise PartitionError(
                    f"a mapper sees {what} of 1 to {MAPPER_RANK} axes: got shape={given}; partition(...) takes more"
                )
        return MapperLayout(self, lengths, grid, axes)

    def owners(self, rows: Indices, shape: tuple[int, ...], grid: GridAxes) -> Indices:
        """Return the place that the function names for each of some elements.

        Parameters
        ----------
        rows : ndarray of int64, shape (count, ndim)
            Coordinates within the shape.
        shape : tuple of int
            The array's.
        grid : GridAxes
            The grid.

        Returns
        -------
        ndarray of int64, shape (count,)
            Indices of places.

        Raises
        ------
        MapperError
            If the function raises, or answers with anything but coordinates within the grid.
        """
        ask = self._many if self.vectorized else self._one_by_one
        parts = [
            ask(rows[first : first + ELEMENTS_AT_ONCE], shape, grid)
            for first in range(0, len(rows), ELEMENTS_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _one_by_one(self, rows: Indices, shape: tuple[int, ...], grid: GridAxes) -> Indices:
        data_dims, grid_dims = _padded(shape, 1), _padded(grid.shape, 1)
        answers = np.zeros((len(rows), MAPPER_RANK), np.int64)
        for number, row in enumerate(rows.tolist()):
            try:
                answer = self.fn(_padded(row, 0), data_dims, grid_dims)
            except Exception as error:
                raise self._raised(error, rows[number : number + 1], shape, grid) from error
            try:
                if not isinstance(answer, (tuple, list)):
                    raise TypeError
                answers[number, : len(answer)] = [_coordinate(one) for one in answer]
            except (TypeError, ValueError, OverflowError):
                raise MapperError(
                    f"a mapper answers with a tuple of up to {MAPPER_RANK} ints: got {answer!r} for element "
                    f"{tuple(row)} of shape {shape}, {grid}"
                ) from None
        return self._places(answers, rows, shape, grid)

    def _many(self, rows: Indices, shape: tuple[int, ...], grid: GridAxes) -> Indices:
        data_dims, grid_dims = _padded(shape, 1), _padded(grid.shape, 1)
        columns = np.zeros((MAPPER_RANK, len(rows)), np.int64)
        columns[: len(shape)] = rows.T
        columns.flags.writeable = False
        try:
            answer = self.fn(tuple(columns), data_dims, grid_dims)
        except Exception as error:
            raise self._raised(error, rows, shape, grid) from error
        answers = np.zeros((len(rows), MAPPER_RANK), np.int64)
        try:
            if not isinstance(answer, (tuple, list)):
                raise TypeError
            for axis, given in enumerate(map(np.asarray, answer)):
                if given.dtype.kind not in "iub":
                    raise TypeError
                answers[:, axis] = given
        except (TypeError, ValueError, IndexError):
            raise MapperError(
                f"a vectorized mapper answers with a tuple of up to {MAPPER_RANK} arrays of ints of shape "
                f"({len(rows)},): got {_described(answer)} for {_range(rows)} of shape {shape}, {grid}"
            ) from None
        return self._places(answers, rows, shape, grid)

    def _places(self, answers: Indices, rows: Indices, shape: tuple[int, ...], grid: GridAxes) -> Indices:
        """Return the indices of places with these coordinates, of which there are four a row."""
        dims = np.array(_padded(grid.shape, 1), np.int64)
        outside = ((answers < 0) | (answers >= dims)).any(axis=1)
        if outside.any():
            first = int(outside.argmax())
            answer = tuple(answers[first].tolist())
            raise MapperError(
                f"a mapper answers with coordinates within the grid: got {answer} for element "
                f"{tuple(rows[first].tolist())} of shape {shape}, {grid}"
            )
        places: Indices = answers[:, : len(grid.shape)] @ np.array(grid.strides, np.int64)
        return places

    def _raised(self, error: Exception, rows: Indices, shape: tuple[int, ...], grid: GridAxes) -> MapperError:
        return MapperError(
            f"{self!r} raised {type(error).__name__}: {error}; it was asked for {_range(rows)} of shape {shape}, {grid}"
        )

    def __repr__(self) -> str:
        """Return the call that makes it, with the function's name."""
        name = getattr(self.fn, "__qualname__", None) or repr(self.fn)
        return f"mapper({name.rpartition('<locals>.')[2]}{', vectorized=True' if self.vectorized else ''})"


def mapper(fn: Callable[..., Any], vectorized: bool = False) -> Mapper:
    """Return a partition that a function defines.

    Parameters
    ----------
    fn : callable
        ``fn(data_coords, data_dims, grid_dims) -> coords``: coordinates of an element and lengths of the array, in
        NumPy's order of axes, each four ints with 0 and 1 behind the array's own; lengths of the grid, four ints.
        It answers with up to four coordinates of a place in the grid; those left out are 0.
    vectorized : bool
        `data_coords` are four int64 arrays of equal length, read-only, and it answers with a tuple of up to four
        arrays of that length (or single ints).

    Returns
    -------
    Mapper
        ``bind(shape, grid)`` makes it a layout.

    Raises
    ------
    TypeError
        If `fn` is not callable, or `vectorized` no bool.

    Notes
    -----
    The function is asked when the layout is bound and when it is used, as often as needed, and must answer the same
    for the same arguments.

    References
    ----------
    CUDASTF, ``data_place.composite(grid, mapper)``.

    Examples
    --------
    >>> import stf_places as stf
    >>> def diagonal(coords, dims, grid):
    ...     return ((coords[0] + coords[1]) % grid[0],)
    >>> grid = stf.exec_place_grid.from_devices([0, 1])
    >>> mapper(diagonal, vectorized=True).bind((4, 4), grid).owner([[0, 0], [0, 1]])
    array([0, 1])
    """
    return Mapper(fn, vectorized)


def _padded(values: Sequence[int], fill: int) -> tuple[int, ...]:
    return (*values, *(fill,) * (MAPPER_RANK - len(values)))


def _coordinate(value: Any) -> int:
    """Return an int, also one of NumPy's."""
    number: int = index(value)
    return number


def _range(rows: Indices) -> str:
    """Return what messages call some elements."""
    first = tuple(rows[0].tolist())
    if len(rows) == 1:
        return f"element {first}"
    return f"{len(rows)} elements from {first} to {tuple(rows[-1].tolist())}"


def _described(answer: object) -> str:
    """Return what messages call a wrong answer, arrays by type and shape."""
    if isinstance(answer, np.ndarray):
        return f"an array of {answer.dtype}, shape {answer.shape}"
    if isinstance(answer, (tuple, list)):
        return f"({', '.join(map(_described, answer))})"
    return repr(answer)
