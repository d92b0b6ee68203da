"""What a composite data place is made of: a grid, and a partition or mapper that lays data over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stf_places._native.grids import exec_place_grid
from stf_places.errors import PartitionError
from stf_places.partitions.layouts import Layout
from stf_places.partitions.mappers import Mapper
from stf_places.partitions.rules import AxisRule
from stf_places.partitions.specs import Partition

__all__ = ["Composite", "Spec", "checked_grid", "checked_spec", "keep"]

#: What lays data over a grid.
Spec: TypeAlias = Partition | Mapper

#: What a composite keeps of each kind: layouts, parts, bound places.
KEPT_LAYOUTS = 256
#: Parts of a shape that are worth keeping: those of layouts with very many boxes are made anew.
KEPT_PARTS = 4096


@dataclass(frozen=True)
class Composite:
    """Pair a grid with what lays data over it. A value; bound to a shape it tells where pages lie.

    Parameters
    ----------
    grid : exec_place_grid
        Devices and partitions.
    spec : Partition or Mapper
        How data of any shape that it fits lies over them.

    Examples
    --------
    >>> import stf_places as stf
    >>> grid = stf.exec_place_grid.from_devices([0, 1])
    >>> Composite.of(grid, stf.blocked("x")).spec
    partition(blocked('x'))
    """

    grid: exec_place_grid
    spec: Spec
    #: Places bound to shapes, by machine, shape and size of an element. Kept by `_native.composites`.
    bound: dict[tuple[int, tuple[int, ...], int], Any] = field(
        default_factory=dict, compare=False, repr=False
    )
    #: Layouts by shape. Here and in no cache of the module, so that places go with the last who uses them.
    layouts: dict[tuple[int, ...], Layout] = field(default_factory=dict, compare=False, repr=False)
    #: What places do of data of a shape with a halo. Kept by `flow.shards`.
    parts: dict[tuple[Any, ...], Sequence[Any]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, grid: object, spec: object) -> Composite:
        """Return the pair of checked arguments, as `data_place.composite` takes them.

        Raises
        ------
        TypeError
            If `grid` is no grid, or `spec` nothing that lays data over one.
        PartitionError
            If the grid has a host place.
        """
        return cls(checked_grid(grid, "a composite data place"), checked_spec(spec))

    def page_rows(self, shape: tuple[int, ...], itemsize: int, page: int) -> npt.NDArray[np.int64]:
        """Return rows (place, first page, pages) for an array in C order.

        Raises
        ------
        PartitionError
            If the partition does not fit the shape.
        MapperError
            If a mapper raises, answers outside the grid or changes its answer.
        """
        return self.layout(shape).page_rows(itemsize, page)

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """Return how data of a shape lies over the grid.

        Raises
        ------
        PartitionError
            If the partition does not fit the shape.
        """
        found = self.layouts.get(shape)
        if found is None:
            found = self.spec.bind(shape, self.grid)
            keep(self.layouts, shape, found)
        return found

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """Return what was made for a key, or what `make` returns; that is kept if it is not long."""
        found = self.parts.get(key)
        if found is None:
            found = make()
            if len(found) <= KEPT_PARTS:
                keep(self.parts, key, found)
        return found


def keep(known: dict[Any, Any], key: object, value: object) -> None:
    """Put a value into a store of a composite; one that is full begins anew."""
    if len(known) >= KEPT_LAYOUTS:
        known.clear()
    known[key] = value


def checked_grid(grid: object, what: str) -> exec_place_grid:
    """Return a grid of devices and partitions.

    Raises
    ------
    TypeError
        If it is no grid.
    PartitionError
        If it has a host place.
    """
    if not isinstance(grid, exec_place_grid):
        raise TypeError(
            f"{what} is spread over an exec_place_grid, such as exec_place_grid.from_devices([0, 1]): got {grid!r} "
            f"({type(grid).__name__})"
        )
    for number, place in enumerate(grid.places):
        if place.kind == "host":
            raise PartitionError(
                f"{what} is spread over devices and partitions: place {number} of the grid is {place!r}; leave it "
                "out, or use data_place.host()"
            )
    return grid


def checked_spec(spec: object) -> Spec:
    """Return what lays data over a grid, from a partition, a mapper, a rule for one axis, or a mapper's function.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if isinstance(spec, (Partition, Mapper)):
        return spec
    if isinstance(spec, AxisRule):
        return Partition((spec,))
    if callable(spec) and not isinstance(spec, type):
        return Mapper(spec, False)
    raise TypeError(
        "data is laid over a grid by a partition, such as partition(blocked('x'), whole), or by a mapper "
        f"fn(data_coords, data_dims, grid_dims): got {spec!r} ({type(spec).__name__})"
    )
