"""Drawings of recorded graphs with matplotlib: frames, boxes, edges and a legend, placed in inches."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from stf_places.viz.graph_programs import NO_FILL, Node, Part, Places, Program
from stf_places.viz.layers import Sizes, draw_layers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

__all__ = ["draw_program"]

Points: TypeAlias = list[tuple[float, float]]

#: Nodes up to which boxes have labels, characters of a label, and places that a legend names.
MOST_LABELLED = 300
MOST_CHARACTERS = 24
MOST_NAMES = 32
#: Longest side of a picture in inches, and pixels of a .png at most.
LONGEST_SIDE = 80.0
DOTS_PER_INCH = 120
MOST_PIXELS = 40_000_000

FONT_POINTS = 8.0
#: Room for a character at that size, on average and rounded up.
CHARACTER = 0.07
LINE = 0.16
PAD = 0.15
TITLE = 0.26

LABELLED = Sizes(height=0.32, gap=0.18, layer_gap=0.3, bend=0.06, columns=24)
SMALL = Sizes(height=0.14, gap=0.08, layer_gap=0.2, bend=0.02, columns=60)
SMALL_WIDTH = 0.26

INK = "#404040"
FRAMES = ("#ffffff", "#f4f4f4")


def draw_program(program: Program, form: str) -> bytes:
    """Return the picture of a program as the content of a file.

    Parameters
    ----------
    program : Program
        What was recorded.
    form : str
        ``"svg"``, ``"png"`` or ``"pdf"``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("matplotlib is not installed: pip install 'stf-places[demo]'") from error
    sheet = _Sheet(Places(program), sum(1 for _ in program.nodes()))
    width, bottom = sheet.program(program, PAD, PAD, 0)
    width, top = sheet.legend(program, width + 2 * PAD)
    height = bottom - top + PAD
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    figure = Figure(figsize=(width * scale, height * scale))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), frameon=False)
    axes.set_axis_off()
    axes.set_xlim(0.0, width)
    axes.set_ylim(bottom + PAD, top)
    sheet.put_on(axes, scale)
    dots = min(DOTS_PER_INCH, math.sqrt(MOST_PIXELS / (width * height)) / scale)
    # Text as text, and nothing that changes from run to run.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "stf_places"}):
        content = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        figure.savefig(content, format=form, dpi=dots, metadata=metadata)
    return content.getvalue()


@dataclass
class _Sheet:
    """What is to be drawn, in inches, downwards."""

    places: Places
    count: int
    # Left, upper, right and lower ends, and depth.
    frames: list[tuple[float, float, float, float, int]] = field(default_factory=list)
    # Points, fill, and whether it has an outline.
    shapes: list[tuple[Points, str, bool]] = field(default_factory=list)
    lines: list[Points] = field(default_factory=list)
    # Position, text, alignment, and whether it is bold.
    texts: list[tuple[float, float, str, str, bool]] = field(default_factory=list)

    @property
    def labelled(self) -> bool:
        return self.count <= MOST_LABELLED

    def program(self, program: Program, x: float, y: float, depth: int) -> tuple[float, float]:
        """Place the parts of a program, and return its right and lower ends."""
        right = x
        framed = []
        for number, part in enumerate(program.parts, 1):
            if number > 1:
                y += PAD
            if part.loop is not None or len(program.parts) > 1:
                framed.append(len(self.frames))
            if part.loop is not None:
                end, y = self.frame(part.loop.title, part.loop, x, y, depth)
            elif len(program.parts) > 1:
                end, y = self.frame(f"part {number}", Program("", [part]), x, y, depth)
            else:
                end, y = self.part(part, x, y, depth)
            right = max(right, end)
        for position in framed:
            left, top, _, bottom, level = self.frames[position]
            self.frames[position] = (left, top, right, bottom, level)
        return right, y

    def frame(self, title: str, inside: Program, x: float, y: float, depth: int) -> tuple[float, float]:
        """Place a program in a frame with a title."""
        position = len(self.frames)
        self.frames.append((x, y, 0.0, 0.0, depth))
        self.texts.append((x + PAD / 2, y + TITLE / 2 + 0.02, title, "left", True))
        right, bottom = self.program(inside, x + PAD, y + TITLE + PAD / 2, depth + 1)
        right = max(right, x + len(title) * CHARACTER * 1.1) + PAD
        bottom += PAD
        self.frames[position] = (x, y, right, bottom, depth)
        return right, bottom

    def part(self, part: Part, x: float, y: float, depth: int) -> tuple[float, float]:
        """Place the boxes and edges of a graph, and the bodies of its loops below."""
        sizes = LABELLED if self.labelled else SMALL
        widths = [self.width(node) for node in part.nodes]
        start = {node.number: position for position, node in enumerate(part.nodes)}
        edges = [(start[before], start[after]) for before, after in part.edges]
        drawing = draw_layers(widths, edges, sizes)
        for node, width, (across, down) in zip(part.nodes, widths, drawing.centers, strict=True):
            self.box(node, (x + across, y + down), width, sizes.height)
        half = [
            width / 4 if node.kind == "empty" else sizes.height / 2
            for node, width in zip(part.nodes, widths, strict=True)
        ]
        for (before, after), line in zip(edges, drawing.lines, strict=True):
            points = [(x + across, y + down) for across, down in line]
            points[0] = (points[0][0], points[0][1] + half[before])
            points[-1] = (points[-1][0], points[-1][1] - half[after])
            self.lines.append(points)
        right, bottom = x + drawing.width, y + drawing.height
        for node in part.nodes:
            if node.body is not None:
                end, bottom = self.frame(node.body.title, node.body, x, bottom + PAD, depth)
                right = max(right, end)
        return right, bottom

    def width(self, node: Node) -> float:
        if node.kind == "empty":
            return SMALL_WIDTH / 2
        if not self.labelled:
            return SMALL_WIDTH
        return max(0.6, len(_short(node.label)) * CHARACTER + 0.3)

    def box(self, node: Node, center: tuple[float, float], width: float, height: float) -> None:
        outlines = _outline(node.kind, *center, width, height)
        colors = self.places.colors(node)
        self.shapes.append((outlines[0], colors[0], True))
        if len(colors) > 1 and colors[1] != colors[0]:
            # The right half of a copy has the colour of where it goes to.
            middle = [(max(x, center[0]), y) for x, y in outlines[0]]
            self.shapes.append((middle, colors[1], False))
        for inner in outlines[1:]:
            self.shapes.append((inner, colors[0], True))
        if self.labelled and node.kind != "empty":
            self.texts.append((*center, _short(node.label), "center", False))

    def legend(self, program: Program, width: float) -> tuple[float, float]:
        """Name places and shapes above the picture, and return the width of it all and its upper end."""
        kinds = sorted({node.kind for node in program.nodes()})
        named = list(self.places.fills.items())[:MOST_NAMES]
        items = [("task", name, fill) for name, fill in named]
        if len(self.places.fills) > len(named):
            items.append(("", f"and {len(self.places.fills) - len(named)} more places", NO_FILL))
        items += [(kind, kind if kind != "host" else "host function", NO_FILL) for kind in kinds]
        spaces = [len(name) * CHARACTER + 0.6 for _, name, _ in items]
        width = max(width, min(5.0, sum(spaces) + 2 * PAD), max(spaces, default=0.0) + 2 * PAD)
        rows: list[list[int]] = [[]]
        for number, space in enumerate(spaces):
            if rows[-1] and sum(spaces[i] for i in rows[-1]) + space > width - 2 * PAD:
                rows.append([])
            rows[-1].append(number)
        height = 0.26 * len(rows) + PAD if items else 0.0
        for row, numbers in enumerate(rows):
            x, y = PAD, 0.26 * (row + 0.5) + PAD - height
            for number in numbers:
                kind, name, fill = items[number]
                for points in _outline(kind, x + 0.14, y, 0.28, 0.16) if kind else []:
                    self.shapes.append((points, fill, True))
                self.texts.append((x + 0.36 if kind else x, y, name, "left", False))
                x += spaces[number]
        return width, -height

    def put_on(self, axes: Axes, scale: float) -> None:
        """Draw what was placed."""
        from matplotlib.collections import PathCollection, PolyCollection

        for x, y, right, bottom, depth in self.frames:
            corners = [(x, y), (right, y), (right, bottom), (x, bottom)]
            axes.add_collection(
                PolyCollection([corners], facecolors=FRAMES[(depth + 1) % 2], edgecolors="#a0a0a0", zorder=1)
            )
        thin = 0.8 * scale if self.labelled else 0.5 * scale
        curves = [_curve(line) for line in self.lines]
        axes.add_collection(
            PathCollection(curves, facecolors="none", edgecolors="#808080", linewidths=thin, zorder=2)
        )
        heads = [_head(line, 0.035 if self.labelled else 0.025) for line in self.lines]
        axes.add_collection(PolyCollection(heads, facecolors="#808080", edgecolors="none", zorder=2))
        fills = [points for points, _, _ in self.shapes]
        colors = [fill for _, fill, _ in self.shapes]
        axes.add_collection(PolyCollection(fills, facecolors=colors, edgecolors="none", zorder=3))
        outlines = [points for points, _, outlined in self.shapes if outlined]
        axes.add_collection(
            PolyCollection(outlines, facecolors="none", edgecolors=INK, linewidths=thin, zorder=4)
        )
        for x, y, text, align, bold in self.texts:
            axes.text(
                x, y, text, ha=align, va="center_baseline", fontsize=FONT_POINTS * scale, zorder=5,
                fontweight="bold" if bold else "normal", parse_math=False, color="black",
            )  # fmt: skip


def _short(label: str) -> str:
    """Return a label as one line that is not too long."""
    line = " ".join(label.split())
    return line if len(line) <= MOST_CHARACTERS else line[: MOST_CHARACTERS - 1] + "…"


def _outline(kind: str, x: float, y: float, width: float, height: float) -> list[Points]:
    """Return the outlines of a shape around a centre."""
    w, h = width / 2, height / 2
    if kind == "copy":  # an arrow to the right
        tip = min(h, w / 2)
        around = [(-w, -h), (w - tip, -h), (w, 0.0), (w - tip, h), (-w, h)]
        return [[(x + a, y + b) for a, b in around]]
    if kind == "host":
        tip = min(h, w / 2)
        around = [(-w, 0.0), (tip - w, -h), (w - tip, -h), (w, 0.0), (w - tip, h), (tip - w, h)]
        return [[(x + a, y + b) for a, b in around]]
    if kind == "empty":
        r = min(w, h) / 2
        turns = [math.tau * i / 12 for i in range(12)]
        return [[(x + r * math.cos(turn), y + r * math.sin(turn)) for turn in turns]]
    if kind == "loop":  # two octagons
        return [_octagon(x, y, w, h), _octagon(x, y, w - h / 5, h - h / 5)]
    return [[(x - w, y - h), (x + w, y - h), (x + w, y + h), (x - w, y + h)]]


def _octagon(x: float, y: float, w: float, h: float) -> Points:
    cut = min(w, h) * 0.55
    corners = [(-w, -h + cut), (-w + cut, -h), (w - cut, -h), (w, -h + cut)]
    return [(x + a, y + b) for a, b in corners] + [(x - a, y - b) for a, b in corners]


def _curve(line: Points) -> Path:
    """Return a line as Bézier curves that are vertical at each of its points."""
    from matplotlib.path import Path

    points, kinds = [line[0]], [Path.MOVETO]
    for (x, y), (to_x, to_y) in pairwise(line):
        middle = (y + to_y) / 2
        points += [(x, middle), (to_x, middle), (to_x, to_y)]
        kinds += [Path.CURVE4] * 3
    return Path(points, kinds)


def _head(line: Points, size: float) -> Points:
    x, y = line[-1]
    return [(x, y), (x - size, y - 2 * size), (x + size, y - 2 * size)]
