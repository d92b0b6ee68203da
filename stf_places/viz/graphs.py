"""Pictures of recorded graphs: what runs where, and what waits for what."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stf_places.flow import LaunchableGraph, TaskGraph
from stf_places.viz.graph_programs import Node, Part, Places, Program, read_description

__all__ = ["graph_dot", "save_graph"]

#: Suffixes of texts, and of pictures that matplotlib draws.
TEXTS = (".dot", ".gv")
PICTURES = (".svg", ".png", ".pdf")
#: GraphViz shapes for the kinds of nodes.
SHAPES = {"task": "box", "copy": "cds", "host": "hexagon", "loop": "doubleoctagon", "empty": "point"}


def graph_dot(graph: LaunchableGraph | TaskGraph) -> str:
    r"""Return a recorded graph as text for GraphViz.

    Parameters
    ----------
    graph : LaunchableGraph, TaskGraph or launchable_graph_scope
        What was recorded. A scope ends its recording here, as with its first launch.

    Returns
    -------
    str
        A ``digraph`` in DOT. Tasks are boxes, copies arrows, host functions hexagons, loops octagons; the fill is the
        place, which a legend names, of a copy from one place's colour to the other's. Bodies of loops, and the parts of
        a program in which the host drives loops, are clusters. Dashed edges go from part to part, dotted ones from a
        loop to its body.

    Raises
    ------
    TypeError
        If `graph` is something else.
    TaskStateError
        If it is not recorded, or was reset.

    Notes
    -----
    The text has numbers for nodes and no handles, so that the same program gives the same text.

    Examples
    --------
    >>> import stf_places as stf
    >>> from stf_places.viz import graph_dot
    >>> with stf.use_machine("sim:h200x2"):
    ...     graph = stf.task_graph()
    ...     x, y = graph.context.logical_data_zeros(3), graph.context.logical_data_zeros(3)
    ...     with graph:
    ...         for device, data in enumerate((x, y)):
    ...             with graph.context.task(stf.exec_place.device(device), data.rw(), symbol=f"step {device}") as t:
    ...                 t.run(lambda values: None, t.get_arg_cai(0))
    ...     text = graph_dot(graph)
    ...     graph.finalize()
    >>> print("\n".join(line for line in text.splitlines() if "step" in line))
      n0 [label="step 0", shape=box, fillcolor="#9ecae9", tooltip="task, device(0)"];
      n1 [label="step 1", shape=box, fillcolor="#ffbf79", tooltip="task, device(1)"];
    """
    return _dot(_program(graph))


def save_graph(graph: LaunchableGraph | TaskGraph, path: str | os.PathLike[str]) -> None:
    """Save a recorded graph as text for GraphViz, or draw it.

    Parameters
    ----------
    graph : LaunchableGraph, TaskGraph or launchable_graph_scope
        What was recorded. A scope ends its recording here, as with its first launch.
    path : str or path-like
        The file; overwritten. ``.dot`` and ``.gv`` get the text of `graph_dot`, ``.svg``, ``.png`` and ``.pdf`` a
        picture that matplotlib draws.

    Raises
    ------
    TypeError
        If `graph` is something else.
    ValueError
        If the suffix of `path` is another.
    ImportError
        If a picture is asked for and matplotlib is not installed.
    TaskStateError
        If the graph is not recorded, or was reset.
    OSError
        If the file cannot be written.

    Notes
    -----
    In a picture time goes down: an operation stands below all that it waits for. The colour is the place, of a copy
    those of both its ends; the shape is the kind. Parts of a program in which the host drives loops are framed, one
    below the other, and so are bodies of loops.

    Width and height follow what was recorded. Labels of more than 24 characters are cut. With more than 300 nodes boxes
    are small and without labels; of more than 32 places the first are named; beyond 80 inches a picture is scaled down.
    The text has all of them.

    Layers by longest path, in the order of barycentres, after Sugiyama, Tagawa and Toda, "Methods for Visual
    Understanding of Hierarchical System Structures", 1981.

    Examples
    --------
    >>> import tempfile, os
    >>> import stf_places as stf
    >>> from stf_places.viz import save_graph
    >>> with tempfile.TemporaryDirectory() as folder, stf.use_machine("sim:h200x2"):
    ...     graph = stf.task_graph()
    ...     data = graph.context.logical_data_zeros(3)
    ...     with graph:
    ...         with graph.context.task(stf.exec_place.device(0), data.rw(), symbol="step") as t:
    ...             t.run(lambda values: None, t.get_arg_cai(0))
    ...     save_graph(graph, os.path.join(folder, "graph.svg"))
    ...     graph.finalize()
    ...     os.listdir(folder)
    ['graph.svg']
    """
    _require_graph(graph)
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in TEXTS + PICTURES:
        raise ValueError(
            f"the suffix of a graph's file is one of {', '.join(TEXTS + PICTURES)}: got path={str(target)!r}"
        )
    if suffix in PICTURES:
        from stf_places.viz.graph_pictures import draw_program

        # In memory first: what cannot be drawn leaves the file as it was.
        content = draw_program(_program(graph), suffix[1:])
    else:
        content = graph_dot(graph).encode()
    target.write_bytes(content)


def _require_graph(graph: object) -> None:
    if not isinstance(graph, LaunchableGraph | TaskGraph):
        raise TypeError(
            "a picture is made of a LaunchableGraph, a TaskGraph or a launchable_graph_scope: got "
            f"{type(graph).__name__}"
        )


def _program(graph: LaunchableGraph | TaskGraph) -> Program:
    _require_graph(graph)
    recorded: LaunchableGraph = graph.raw if isinstance(graph, TaskGraph) else graph
    return read_description(*recorded.describe())


def _dot(program: Program) -> str:
    """Return the text of a whole program."""
    places = Places(program)
    body = _Clusters(places)
    body.add(program, "  ")
    lines = ["digraph stf_graph {", "  compound=true;", "  node [style=filled];", *body.lines, *body.order]
    if places.fills:
        lines += ["  subgraph cluster_places {", '    label="places";']
        for number, (name, fill) in enumerate(places.fills.items()):
            lines.append(f'    p{number} [label={_quoted(name)}, shape=box, fillcolor="{fill}"];')
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


class _Clusters:
    """The lines of a program, and the edges that show the order of its clusters."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.lines: list[str] = []
        self.order: list[str] = []
        self.clusters = 0

    def add(self, program: Program, indent: str) -> None:
        """Add the parts of a program, in frames where there are several."""
        before: tuple[int, Part] | None = None
        framed = len(program.parts) > 1
        for number, part in enumerate(program.parts, 1):
            if part.loop is not None:
                cluster = self.add_frame(part.loop, indent)
            elif framed:
                cluster = self.add_frame(Program(f"part {number}", [part]), indent)
            else:
                self.add_part(part, indent)
                continue
            ends = None if before is None else (_last(before[1]), _first(part))
            if before is not None and ends is not None and None not in ends:
                self.order.append(
                    f"  n{ends[0]} -> n{ends[1]} [style=dashed, ltail=cluster_{before[0]}, lhead=cluster_{cluster}];"
                )
            before = (cluster, part)

    def add_frame(self, inside: Program, indent: str) -> int:
        """Add a program as a cluster, and return the cluster's number."""
        cluster = self.clusters
        self.clusters += 1
        self.lines += [f"{indent}subgraph cluster_{cluster} {{", f"{indent}  label={_quoted(inside.title)};"]
        self.add(inside, indent + "  ")
        self.lines.append(f"{indent}}}")
        return cluster

    def add_part(self, part: Part, indent: str) -> None:
        """Add the nodes and edges of a graph, and the bodies of its loops."""
        for node in part.nodes:
            self.lines.append(f"{indent}n{node.number} [{self.attributes(node)}];")
        self.lines += [f"{indent}n{before} -> n{after};" for before, after in part.edges]
        for node in part.nodes:
            if node.body is None:
                continue
            cluster = self.add_frame(node.body, indent)
            inside = next(node.body.nodes(), None)
            if inside is not None:
                self.order.append(
                    f"  n{node.number} -> n{inside.number} [style=dotted, lhead=cluster_{cluster}];"
                )

    def attributes(self, node: Node) -> str:
        fill = ":".join(self.places.colors(node))
        return (
            f'label={_quoted(node.label)}, shape={SHAPES.get(node.kind, "box")}, fillcolor="{fill}", '
            f"tooltip={_quoted(self.places.phrase(node))}"
        )


def _all(part: Part) -> Iterator[Node]:
    return Program("", [part]).nodes()


def _first(part: Part) -> int | None:
    return min((node.number for node in _all(part)), default=None)


def _last(part: Part) -> int | None:
    return max((node.number for node in _all(part)), default=None)


def _quoted(text: str) -> str:
    """Return a text as a string of the DOT language, which knows escapes and HTML's entities."""
    text = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
