"""Layered drawings of acyclic graphs: a row for each box, an order within rows with few crossings, and positions.

Source: Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981; positions
by isotonic regression (pool adjacent violators).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np

__all__ = ["Drawing", "Sizes", "draw_layers"]

Point: TypeAlias = tuple[float, float]

#: Rounds, down and up, that put the boxes of a layer in order, and that move them towards their neighbours.
ORDER_ROUNDS = 8
MOVE_ROUNDS = 6
#: Bends of long edges at most; in a graph with more, edges that pass more than one layer are straight.
MOST_BENDS = 10_000


@dataclass(frozen=True)
class Sizes:
    """Measures of a drawing, in inches."""

    height: float  # of a box
    gap: float  # between boxes of a layer, and of a column
    layer_gap: float  # between layers, at least
    bend: float  # room for an edge that passes a layer
    columns: int  # boxes of a layer that stand side by side, at most; more stand below one another


@dataclass
class Drawing:
    """Centres of the boxes, a line of points for each edge, and the room that they take from the origin."""

    centers: list[Point]
    lines: list[list[Point]]
    width: float
    height: float


@dataclass
class _Graph:
    """Boxes and bends, by number: bends come behind the boxes."""

    widths: list[float]
    above: list[list[int]]
    below: list[list[int]]
    layers: list[list[int]]
    columns: list[list[list[int]]] = field(default_factory=list)  # of each layer


def draw_layers(widths: Sequence[float], edges: Sequence[tuple[int, int]], sizes: Sizes) -> Drawing:
    """Draw an acyclic graph downwards: boxes of some widths, and edges between their positions in that list."""
    graph, lines = _with_bends(widths, edges, sizes)
    _order(graph)
    graph.columns = [_columns(layer, len(widths), sizes.columns) for layer in graph.layers]
    across = _across(graph, sizes)
    left = min((across[i] - graph.widths[i] / 2 for i in range(len(across))), default=0.0)
    across = [x - left for x in across]
    down, rows, height = _down(graph, across, sizes)
    points = list(zip(across, down, strict=True))
    return Drawing(
        points[: len(widths)],
        [_line(line, points, rows) for line in lines],
        max((x + w / 2 for x, w in zip(across, graph.widths, strict=True)), default=0.0),
        height,
    )


def _levels(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each box how many there are on the longest way to it."""
    below: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for before, after in edges:
        below[before].append(after)
        missing[after] += 1
    levels = [0] * count
    ready = [i for i in range(count) if missing[i] == 0]
    for one in ready:
        for after in below[one]:
            levels[after] = max(levels[after], levels[one] + 1)
            missing[after] -= 1
            if missing[after] == 0:
                ready.append(after)
    return levels


def _with_bends(
    widths: Sequence[float], edges: Sequence[tuple[int, int]], sizes: Sizes
) -> tuple[_Graph, list[list[int]]]:
    """Return the graph with a bend in each layer that an edge passes, and what each edge goes through."""
    levels = _levels(len(widths), edges)
    layers: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for one, level in enumerate(levels):
        layers[level].append(one)
    all_widths = list(widths)
    bent = sum(levels[after] - levels[before] - 1 for before, after in edges) <= MOST_BENDS
    lines = []
    for before, after in edges:
        line = [before]
        for level in range(levels[before] + 1, levels[after] if bent else 0):
            layers[level].append(len(all_widths))
            line.append(len(all_widths))
            all_widths.append(sizes.bend)
        lines.append([*line, after])
    above: list[list[int]] = [[] for _ in all_widths]
    below: list[list[int]] = [[] for _ in all_widths]
    for line in lines:
        for one, other in pairwise(line):
            below[one].append(other)
            above[other].append(one)
    return _Graph(all_widths, above, below, layers), lines


def _order(graph: _Graph) -> None:
    """Put each layer in the order of its barycentres, and keep the order with the fewest crossings."""
    rank = [0.0] * len(graph.widths)
    for layer in graph.layers:
        for position, one in enumerate(layer):
            rank[one] = position
    best, fewest = [list(layer) for layer in graph.layers], _crossings(graph, rank)
    for number in range(2 * ORDER_ROUNDS):
        if fewest == 0:
            break
        downwards = number % 2 == 0
        neighbours = graph.above if downwards else graph.below
        for layer in graph.layers if downwards else reversed(graph.layers):
            layer.sort(key=lambda one: _mean([rank[i] for i in neighbours[one]], rank[one]))
            for position, one in enumerate(layer):
                rank[one] = position
        crossings = _crossings(graph, rank)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in graph.layers], crossings
    graph.layers = best


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(graph: _Graph, rank: list[float]) -> int:
    """Return how often edges between neighbouring layers cross."""
    count = 0
    for layer in graph.layers:
        ends: list[float] = []
        for one in sorted(layer, key=rank.__getitem__):
            after = sorted(rank[i] for i in graph.below[one])
            count += sum(len(ends) - bisect_right(ends, end) for end in after)
            for end in after:
                insort(ends, end)
    return count


def _columns(layer: list[int], boxes: int, most: int) -> list[list[int]]:
    """Return a layer as columns: of one box each, or of several where the layer is long."""
    depth = max(1, -(-sum(one < boxes for one in layer) // most))
    columns: list[list[int]] = []
    for one in layer:
        if one < boxes and columns and columns[-1][0] < boxes and len(columns[-1]) < depth:
            columns[-1].append(one)
        else:
            columns.append([one])
    return columns


def _across(graph: _Graph, sizes: Sizes) -> list[float]:
    """Return where the boxes and bends stand on the horizontal axis: near to their neighbours, without overlaps."""
    across = [0.0] * len(graph.widths)
    rooms = []
    for columns in graph.columns:
        widths = [max(graph.widths[one] for one in column) for column in columns]
        starts = np.concatenate([[0.0], np.cumsum([width + sizes.gap for width in widths])])
        centers = starts[:-1] + np.array(widths) / 2
        rooms.append(centers)
        for column, center in zip(columns, (centers - starts[-1] / 2).tolist(), strict=True):
            for one in column:
                across[one] = center
    layers = list(zip(graph.columns, rooms, strict=True))
    both = [here + there for here, there in zip(graph.above, graph.below, strict=True)]
    for number in range(2 * MOVE_ROUNDS + 1):
        downwards = number % 2 == 0
        neighbours = graph.above if downwards else graph.below
        if number == 2 * MOVE_ROUNDS:
            neighbours = both
        for columns, centers in layers if downwards else reversed(layers):
            wanted = []
            for column in columns:
                near = [across[i] for one in column for i in neighbours[one]]
                wanted.append(_mean(near, across[column[0]]))
            for column, center in zip(columns, _apart(wanted, centers.tolist()), strict=True):
                for one in column:
                    across[one] = center
    return across


def _apart(wanted: list[float], room: list[float]) -> list[float]:
    """Return the positions closest to those wanted (least squares) that are as far apart as `room` at least."""
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, room, strict=True):
        total, count = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    level = [total / count for total, count in blocks for _ in range(count)]
    return [one + offset for one, offset in zip(level, room, strict=True)]


def _line(line: list[int], points: list[Point], rows: list[Point]) -> list[Point]:
    """Return the points of an edge, which leaves and enters a layer of several rows at the layer's own ends."""
    first, last = line[0], line[-1]
    found = [points[i] for i in line]
    if rows[last] != (0.0, 0.0):
        found.insert(-1, (points[last][0], rows[last][0]))
    if rows[first] != (0.0, 0.0):
        found.insert(1, (points[first][0], rows[first][1]))
    return found


def _down(graph: _Graph, across: list[float], sizes: Sizes) -> tuple[list[float], list[Point], float]:
    """Return where the boxes and bends stand on the vertical axis, downwards, and the height of it all.

    Of boxes above or below others of their layer, the ends of the layer as well.
    """
    down = [0.0] * len(graph.widths)
    rows = [(0.0, 0.0)] * len(graph.widths)
    top = 0.0
    for number, columns in enumerate(graph.columns):
        depth = max(len(column) for column in columns)
        height = depth * sizes.height + (depth - 1) * sizes.gap
        for column in columns:
            for row, one in enumerate(column):
                stacked = row * (sizes.height + sizes.gap) + sizes.height / 2
                down[one] = top + (stacked if len(column) > 1 else height / 2)
                if len(column) > 1:
                    rows[one] = (top, top + height)
        top += height
        if number + 1 < len(graph.columns):
            spans = [abs(across[one] - across[i]) for one in graph.layers[number] for i in graph.below[one]]
            top += sizes.layer_gap * min(3.0, 1.0 + 0.12 * max(spans, default=0.0))
    return down, rows, top
