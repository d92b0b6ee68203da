"""What a graph recorded, as a tree of parts and loops, and the names and colours of its places."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Node", "Part", "Places", "Program", "printable", "read_description"]

#: What `LaunchableGraph.describe` returns.
Groups: TypeAlias = list[tuple[int, int, str, str]]
Nodes: TypeAlias = list[tuple[int, int, int, str, str, str]]
Edges: TypeAlias = list[tuple[int, int]]

#: Fills that black text reads well on, for a few places; of more, hues spread evenly.
FILLS = ("#9ecae9", "#ffbf79", "#88d27a", "#ff9d98", "#d6a5c9", "#f2d46b", "#83bcb6", "#c9a788")
HOST_FILL = "#d9d9d9"
NO_FILL = "#ffffff"


@dataclass
class Node:
    """An operation; `body` where it is a loop."""

    number: int
    kind: str
    label: str
    place: str
    body: Program | None = None


@dataclass
class Part:
    """A graph, or a loop that the host drives: what runs as one piece."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    loop: Program | None = None


@dataclass
class Program:
    """Parts that run one after the other; `title` says what loop they are the body of, "" for none."""

    title: str
    parts: list[Part] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Give all nodes in the order of their numbers."""
        for part in self.parts:
            yield from part.nodes
            for node in part.nodes:
                if node.body is not None:
                    yield from node.body.nodes()
            if part.loop is not None:
                yield from part.loop.nodes()


def printable(text: str) -> str:
    """Return a text whose characters can all be shown: others than line ends become escapes."""
    return "".join(
        one if one == "\n" or one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def read_description(groups: Groups, nodes: Nodes, edges: Edges) -> Program:
    """Return what was recorded as a tree. Nodes are numbered in order, a graph's before those of its loops."""
    return _Reader(groups, nodes, edges).program(_children(groups, -1)[:1])


def _children(groups: Groups, parent: int) -> list[list[int]]:
    """Return the groups right inside one, with parts that belong together in one list."""
    found: list[list[int]] = []
    for number, (around, part, _, _) in enumerate(groups):
        if around == parent:
            if part == 0 or not found:
                found.append([])
            found[-1].append(number)
    return found


class _Reader:
    """Turns the lists of a description into a tree."""

    def __init__(self, groups: Groups, nodes: Nodes, edges: Edges) -> None:
        self.groups = groups
        self.nodes: list[Nodes] = [[] for _ in groups]
        self.after: dict[int, list[int]] = {}
        self.numbers: dict[int, int] = {}
        self.loops = 0
        for node in nodes:
            self.nodes[node[1]].append(node)
        for before, after in edges:
            self.after.setdefault(before, []).append(after)

    def program(self, found: list[list[int]]) -> Program:
        """Return the program of groups that run one after the other; `found` has them as its one entry, or is empty."""
        if not found:
            return Program("")
        _, _, kind, label = self.groups[found[0][0]]
        program = Program(self.loop_title(kind, label) if kind != "graph" else "")
        for group in found[0]:
            part = self.part(group)
            if part.nodes or part.loop is not None:
                program.parts.append(part)
        return program

    def loop_title(self, kind: str, label: str) -> str:
        self.loops += 1
        return f"loop {self.loops}: {kind}{' ' if kind == 'repeat' else ', '}{label}"

    def part(self, group: int) -> Part:
        inside = _children(self.groups, group)
        if not self.nodes[group]:
            return Part(loop=self.program(inside[:1]) if inside else None)
        part = Part()
        for one, _, _, kind, label, place in self.nodes[group]:
            self.numbers[one] = len(self.numbers)
            part.nodes.append(Node(self.numbers[one], kind, printable(label), place))
        for (one, _, body, _, _, _), node in zip(self.nodes[group], part.nodes, strict=True):
            part.edges += [(node.number, self.numbers[after]) for after in self.after.get(one, ())]
            if body >= 0:
                node.body = self.program([found for found in inside if found[0] == body])
                node.label = node.body.title.partition(":")[0]
        part.edges = sorted(set(part.edges))
        return part


class Places:
    """The places of a program: their names without handles, and a colour for each.

    Attributes
    ----------
    fills : dict of str to str
        A colour like ``"#9ecae9"`` for each name, in the order of a legend.
    """

    def __init__(self, program: Program) -> None:
        self._names: dict[str, str] = {}
        for node in program.nodes():
            for place in _ends(node):
                self._names.setdefault(place, "")
        shown: dict[str, list[str]] = {}
        for place in self._names:
            shown.setdefault(re.sub(r", context 0x[0-9a-f]+", "", printable(place)), []).append(place)
        for name, places in shown.items():
            for number, place in enumerate(places, 1):
                self._names[place] = name if len(places) == 1 else f"{name} ({number})"
        names = sorted(self._names.values(), key=_natural)
        others = [name for name in names if name != "host()"]
        self.fills = {name: _fill(number, len(others)) for number, name in enumerate(others)}
        if len(others) < len(names):
            self.fills["host()"] = HOST_FILL

    def ends(self, node: Node) -> list[str]:
        """Return the name of a node's place; of a copy, where from and where to."""
        return [self._names[place] for place in _ends(node)]

    def colors(self, node: Node) -> list[str]:
        """Return the colours that go with `ends`, or white."""
        return [self.fills[name] for name in self.ends(node)] or [NO_FILL]

    def phrase(self, node: Node) -> str:
        """Return what a node is and where, such as ``"copy, device(0) to host()"``."""
        return ", ".join([node.kind, " to ".join(self.ends(node))]).removesuffix(", ")


def _ends(node: Node) -> list[str]:
    if not node.place:
        return []
    return node.place.split(" to ") if node.kind == "copy" else [node.place]


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers in names by their value."""
    return [(one.isdecimal(), int(one) if one.isdecimal() else 0, one) for one in re.split(r"([0-9]+)", name)]


def _fill(number: int, count: int) -> str:
    if count <= len(FILLS):
        return FILLS[number]
    rgb = colorsys.hls_to_rgb(number / count, (0.76, 0.87, 0.68)[number % 3], 0.6)
    return "#" + "".join(f"{round(255 * one):02x}" for one in rgb)
