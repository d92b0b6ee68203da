"""Layouts of mappers: exact where every element can be asked for, else estimated from samples with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from stf_places.errors import MapperError, NotSupported
from stf_places.partitions.boxes import Box
from stf_places.partitions.grids import Grid, GridAxes
from stf_places.partitions.layouts import Indices, Layout

if TYPE_CHECKING:
    from stf_places.partitions.mappers import Mapper

__all__ = ["MapperLayout", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """Say how many answers of a mapper its layouts ask for."""

    seed: int = 1
    """Of the samples' positions."""
    all_up_to: int = 1 << 16
    """Arrays up to so many elements are asked for in full."""
    elements: int = 1 << 16
    """Elements of larger ones, spread evenly, from which the elements of places are estimated."""
    further_in_page: int = 7
    """Elements of a page beside its first."""
    pages_at_once: int = 1 << 14
    """Pages looked at in one step."""
    again: int = 4096
    """Answers of a step that are asked for again, in another order."""
    when_bound: int = 14
    """Elements asked for when a layout is bound, beside the first and the last."""


SAMPLING = Sampling()


class MapperLayout(Layout):
    """Answer by asking a mapper. What it tells of places and pages is found once and kept."""

    _spec: Mapper

    def __init__(self, spec: Mapper, shape: tuple[int, ...], grid: Grid, grid_axes: GridAxes) -> None:
        super().__init__(spec, shape, grid, grid_axes)
        self._size = prod(shape)
        self._found: dict[tuple[int, int], tuple[Indices, int]] = {}
        random = np.random.default_rng(SAMPLING.seed)
        some = random.integers(0, self._size, SAMPLING.when_bound)
        self._asked_twice(np.array([0, self._size - 1, *some.tolist()], np.int64))

    @property
    def exact(self) -> bool:
        """True when every element is asked for."""
        return self._size <= SAMPLING.all_up_to

    def _boxes(self, place: int) -> Sequence[Box]:
        raise NotSupported(
            f"boxes need a partition of rules: got {self._spec!r}, of which only owners of elements are known; use "
            "owner(coords)"
        )

    def _write_owners(self, rows: Indices, out: Indices) -> None:
        outside = ((rows < 0) | (rows >= np.array(self._shape, np.int64))).any(axis=1)
        if outside.any():
            first = tuple(rows[int(outside.argmax())].tolist())
            raise IndexError(f"coordinates lie within the shape {self._shape}: got {first}")
        out[:] = self._spec.owners(rows, self._shape, self._grid_axes)

    def _asked(self, numbers: Indices) -> Indices:
        """Return the owners of elements given by their numbers in C order."""
        rows = np.stack(np.unravel_index(numbers, self._shape), axis=1)
        return self._spec.owners(rows, self._shape, self._grid_axes)

    def _asked_twice(self, numbers: Indices) -> Indices:
        """Return owners after asking for some of them again, in another order."""
        owners = self._asked(numbers)
        random = np.random.default_rng(SAMPLING.seed + 1)
        chosen = random.permutation(len(numbers))[: SAMPLING.again]
        again = self._asked(numbers[chosen])
        changed = np.flatnonzero(again != owners[chosen])
        if len(changed):
            first = int(changed[0])
            element = tuple(int(one) for one in np.unravel_index(int(numbers[chosen[first]]), self._shape))
            coords = self._grid_axes.coords
            raise MapperError(
                f"a mapper answers the same for the same arguments: got {coords(int(owners[chosen[first]]))}, then "
                f"{coords(int(again[first]))} for element {element} of shape {self._shape}, {self._grid_axes}"
            )
        return owners

    @cached_property
    def _all_owners(self) -> Indices:
        """Owners of all elements in C order."""
        return self._asked_twice(np.arange(self._size, dtype=np.int64))

    @cached_property
    def _elements(self) -> Indices:
        if self.exact:
            return np.bincount(self._all_owners, minlength=self.place_count)
        count = SAMPLING.elements
        number = np.arange(count, dtype=np.int64)
        short, longer = divmod(self._size, count)
        starts = number * short + np.minimum(number, longer)
        random = np.random.default_rng(SAMPLING.seed)
        owners = self._asked_twice(starts + random.integers(0, short + (number < longer)))
        return _shared_out(np.bincount(owners, minlength=self.place_count).tolist(), self._size)

    def _page_runs(self, itemsize: int, page: int) -> tuple[Indices, int]:
        key = itemsize, page
        if key not in self._found:
            self._found[key] = self._find_pages(itemsize, page)
        return self._found[key]

    def _find_pages(self, itemsize: int, page: int) -> tuple[Indices, int]:
        """Return runs of pages and misplaced bytes."""
        nbytes = self._size * itemsize
        count = -(-nbytes // page)
        random = np.random.default_rng(SAMPLING.seed)
        found = []
        misplaced = 0
        for first in range(0, count, SAMPLING.pages_at_once):
            pages = np.arange(first, min(first + SAMPLING.pages_at_once, count), dtype=np.int64)
            begins = pages * page // itemsize
            ends = np.minimum(-(-(pages + 1) * page // itemsize), self._size)
            if self.exact:
                votes = self._exact_votes(pages, begins, ends, itemsize, page)
            else:
                votes = self._sampled_votes(begins, ends, random)
            owners, most, total = _majorities(*votes, self.place_count)
            found.append(owners)
            lengths = np.minimum((pages + 1) * page, nbytes) - pages * page
            # In two parts, so that nothing overflows.
            whole, rest = np.divmod(lengths, total)
            estimate = whole * (total - most) + rest * (total - most) // total
            lost = lengths - most if self.exact else estimate
            misplaced += int(lost.sum())
        return _runs(np.concatenate(found)), misplaced

    def _exact_votes(
        self, pages: Indices, begins: Indices, ends: Indices, itemsize: int, page: int
    ) -> tuple[Indices, Indices, Indices]:
        """Return for each element of each page: the page's position, the owner and the bytes on the page."""
        counts = ends - begins
        position = np.repeat(np.arange(len(pages)), counts)
        behind = np.cumsum(counts) - counts
        elements = np.arange(len(position)) - behind[position] + begins[position]
        start = pages[position] * page
        weights = np.minimum((elements + 1) * itemsize, start + page) - np.maximum(elements * itemsize, start)
        return position, self._all_owners[elements], weights

    def _sampled_votes(
        self, begins: Indices, ends: Indices, random: np.random.Generator
    ) -> tuple[Indices, Indices, Indices]:
        """Return for each sample of each page: the page's position, the owner and 1."""
        further = random.integers(
            begins[:, None], ends[:, None], size=(len(begins), SAMPLING.further_in_page)
        )
        owners = self._asked_twice(np.concatenate([begins[:, None], further], axis=1).reshape(-1))
        position = np.repeat(np.arange(len(begins)), SAMPLING.further_in_page + 1)
        return position, owners, np.ones(len(owners), np.int64)


def _majorities(
    position: Indices, owners: Indices, weights: Indices, place_count: int
) -> tuple[Indices, Indices, Indices]:
    """Return for each page its strongest owner (of equals the lowest), that owner's weight and the weight of all."""
    keys, inverse = np.unique(position * place_count + owners, return_inverse=True)
    strength = np.zeros(len(keys), np.int64)
    np.add.at(strength, inverse, weights)
    page, owner = keys // place_count, keys % place_count
    order = np.lexsort((owner, -strength, page))
    first = order[np.unique(page[order], return_index=True)[1]]
    total = np.zeros(len(first), np.int64)
    np.add.at(total, page, strength)
    return owner[first], strength[first], total


def _runs(owners: Indices) -> Indices:
    """Return rows (owner, first page, pages) of pages' owners."""
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    return np.stack([owners[first], first, np.diff(first, append=len(owners))], axis=1)


def _shared_out(counts: list[int], size: int) -> Indices:
    """Return a size shared out in proportion to counts, by largest remainders, so that the sum is exact."""
    total = sum(counts)
    shares = [count * size // total for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda place: (-(counts[place] * size % total), place))
    for place in by_remainder[: size - sum(shares)]:
        shares[place] += 1
    return np.array(shares, np.int64)
