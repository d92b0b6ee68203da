"""Partitions to draw at random, and what they mean element by element."""

import itertools
from dataclasses import dataclass
from math import prod

import numpy as np
from hypothesis import strategies as st

from stf_places.partitions import block_cyclic, blocked, cyclic, partition, tiled, whole


@dataclass(frozen=True)
class Grid:
    shape: tuple
    axes: tuple | None = None

    @property
    def size(self):
        return prod(self.shape)


GRID = Grid((2, 3), ("gpu", "sm"))
LINE = Grid((4,))


@st.composite
def bindings(draw, replicas=True):
    """Return a partition, a shape and a grid that fit together."""
    rank = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axes = draw(st.permutations(["gpu", "sm", "node", "x"]))[: len(lengths)]
    used = [[] for _ in range(rank)]
    replicated = []
    for axis in draw(st.permutations(axes)):
        place = draw(st.integers(-1 if replicas else 0, rank - 1))
        (replicated if place < 0 else used[place]).append(axis)
    rules = []
    for own in used:
        rule = draw(st.sampled_from([blocked, cyclic, block_cyclic, tiled])) if own else None
        length = (draw(st.integers(1, 5)),) if rule in (block_cyclic, tiled) else ()
        rules.append(rule(*own, *length) if rule else whole)
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank)))
    return partition(*rules, replicated=replicated), shape, Grid(tuple(lengths), tuple(axes))


def brute_owner(spec, shape, grid, coords):
    """Return the place of one element, step by step as the rules say it in words."""
    place = dict.fromkeys(grid.axes, 0)
    for rule, length, coord in zip(spec.rules, shape, coords, strict=True):
        counts = [grid.shape[grid.axes.index(axis)] for axis in rule.axes]
        parts = prod(counts)
        block = {"whole": length, "blocked": -(-length // parts), "cyclic": 1}.get(rule.kind, rule.block)
        part = coord // block % parts
        for axis, count in zip(reversed(rule.axes), reversed(counts), strict=True):
            part, place[axis] = divmod(part, count)
    return int(np.ravel_multi_index([place[axis] for axis in grid.axes], grid.shape))


def brute_owners(spec, shape, grid):
    """Return the places of all elements, in the array's shape."""
    elements = itertools.product(*map(range, shape))
    return np.array([brute_owner(spec, shape, grid, coords) for coords in elements]).reshape(shape)


def all_coords(shape):
    return np.stack(np.indices(shape), axis=-1)
