"""Pictures of recorded graphs: the text for GraphViz, and drawings."""

import doctest
import importlib
import re
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest

import stf_places as stf
from stf_places.viz import graph_dot, save_graph
from stf_places.viz.graph_pictures import draw_program
from stf_places.viz.graph_programs import Places, read_description
from stf_places.viz.layers import Sizes, draw_layers

SIZES = Sizes(height=0.3, gap=0.2, layer_gap=0.3, bend=0.1, columns=4)
DEVICE = "device(0)"
# A loop that the device drives, with another in it, beside a repeat: as described, loops before their nodes.
DEVICE_LOOPS = (
    [
        (-1, 0, "graph", ""),
        (0, 0, "while", "on the device"),
        (1, 0, "repeat", "4 times, on the device"),
        (0, 0, "repeat", "2 times, on the device"),
    ],
    [
        (11, 0, -1, "task", "init", DEVICE),
        (21, 1, -1, "task", "sweep", DEVICE),
        (31, 2, -1, "task", "inner", DEVICE),
        (22, 1, 2, "loop", "", DEVICE),
        (12, 0, 1, "loop", "", DEVICE),
        (41, 3, -1, "task", "smooth", "place of 8 SMs of device 0, context 0x7fab"),
        (42, 3, -1, "task", "smooth", "place of 8 SMs of device 0, context 0x7fac"),
        (13, 0, 3, "loop", "", DEVICE),
    ],
    [(41, 42), (12, 13), (21, 22), (11, 12)],
)
SMALL = """\
digraph stf_graph {
  compound=true;
  node [style=filled];
  subgraph cluster_0 {
    label="part 1";
    n0 [label="first", shape=box, fillcolor="#9ecae9", tooltip="task, device(0)"];
    n1 [label="'x'", shape=cds, fillcolor="#9ecae9:#ffbf79", tooltip="copy, device(0) to device(1)"];
    n2 [label="second", shape=box, fillcolor="#ffbf79", tooltip="task, device(1)"];
    n0 -> n1;
    n1 -> n2;
  }
  subgraph cluster_1 {
    label="loop 1: repeat 3 times, by the host";
    n3 [label="third", shape=box, fillcolor="#ffbf79", tooltip="task, device(1)"];
    n4 [label="'y'", shape=cds, fillcolor="#ffbf79:#d9d9d9", tooltip="copy, device(1) to host()"];
    n5 [label="look", shape=hexagon, fillcolor="#d9d9d9", tooltip="host, host()"];
    n3 -> n4;
    n4 -> n5;
  }
  n2 -> n3 [style=dashed, ltail=cluster_0, lhead=cluster_1];
  subgraph cluster_places {
    label="places";
    p0 [label="device(0)", shape=box, fillcolor="#9ecae9"];
    p1 [label="device(1)", shape=box, fillcolor="#ffbf79"];
    p2 [label="host()", shape=box, fillcolor="#d9d9d9"];
  }
}
"""


def nothing(*arrays):
    pass


def task(ctx, device, symbol, *deps):
    with ctx.task(stf.exec_place.device(device), *deps, symbol=symbol) as t:
        t.run(nothing)


@pytest.fixture
def graph():
    """A task graph with two pieces of data, to record in."""
    with stf.use_machine("sim:h200x2"):
        made = stf.task_graph()
        made.x = made.context.logical_data_full(4, 1.0, name="x")
        made.y = made.context.logical_data_full(4, 1.0, name="y")
        yield made
        made.finalize()


def record_small(graph):
    ctx, x, y = graph.context, graph.x, graph.y
    with graph:
        task(ctx, 0, "first", x.rw())
        task(ctx, 1, "second", x.read(), y.rw())
        with ctx.repeat(3):
            task(ctx, 1, "third", y.rw())
            ctx.host_launch(y.read(), fn=nothing, symbol="look")


def test_the_text_of_a_small_graph(graph):
    record_small(graph)
    assert graph_dot(graph) == graph_dot(graph.raw) == SMALL


def test_independent_tasks_have_no_edge_between_them(graph):
    with graph:
        task(graph.context, 0, "one", graph.x.rw())
        task(graph.context, 1, "other", graph.y.rw())
    text = graph_dot(graph)
    assert 'label="one"' in text
    assert 'label="other"' in text
    assert "->" not in text


def test_a_launchable_scope_is_drawn_before_its_first_launch(tmp_path):
    with stf.use_machine("sim:h200x2"), stf.stackable_context() as ctx:
        x = ctx.logical_data_full(4, 1.0)
        with ctx.launchable_graph_scope() as scope:
            task(ctx, 0, "only", x.rw())
            save_graph(scope, tmp_path / "scope.gv")
            assert (tmp_path / "scope.gv").read_text() == graph_dot(scope)
            scope.launch()


def test_symbols_are_escaped(graph, tmp_path):
    symbol = 'a "b"\n{c} \\N &lt; <$d$> \x1b é -- '
    with graph:
        task(graph.context, 0, symbol, graph.x.rw())
    text = graph_dot(graph)
    assert r'label="a \"b\"\n{c} \\N &amp;lt; <$d$> \\x1b é -- "' in text
    outside = re.sub(r'"(\\.|[^"\\])*"', "", text)
    assert '"' not in outside
    assert outside.count("{") == outside.count("}") == 2
    assert all(re.search(r"[;{}]$", line) for line in outside.splitlines())
    save_graph(graph, tmp_path / "graph.svg")
    drawn = "".join(ElementTree.parse(tmp_path / "graph.svg").getroot().itertext())
    assert r'a "b" {c} \N &lt; <$d' in drawn


def test_the_same_program_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        with stf.use_machine("sim:h200x2"):
            made = stf.task_graph()
            made.x, made.y = (made.context.logical_data_full(4, 1.0, name=one) for one in "xy")
            record_small(made)
            for suffix in ("dot", "svg", "png", "pdf"):
                save_graph(made, tmp_path / f"{name}.{suffix}")
            made.finalize()
    for suffix in ("dot", "svg", "png", "pdf"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "a.pdf").read_bytes()[:4] == b"%PDF"


def test_a_drawing_has_labels_titles_and_a_legend(graph, tmp_path):
    record_small(graph)
    save_graph(graph, str(tmp_path / "graph.SVG"))
    drawn = [text.strip() for text in ElementTree.parse(tmp_path / "graph.SVG").getroot().itertext()]
    assert {"first", "second", "third", "look", "'x'", "'y'"} <= set(drawn)
    assert {"part 1", "loop 1: repeat 3 times, by the host"} <= set(drawn)
    assert {"device(0)", "device(1)", "host()", "task", "copy", "host function"} <= set(drawn)


def test_loops_of_the_device_are_nodes_with_frames():
    groups, nodes, edges = DEVICE_LOOPS
    program = read_description(groups, nodes, edges)
    assert program == read_description(groups, nodes, edges[::-1] + edges)
    assert [(node.number, node.label) for node in program.nodes()] == [
        (0, "init"), (1, "loop 1"), (2, "loop 3"), (3, "sweep"), (4, "loop 2"), (5, "inner"), (6, "smooth"),
        (7, "smooth"),
    ]  # fmt: skip
    assert program.parts[0].edges == [(0, 1), (1, 2)]
    assert program.parts[0].nodes[1].body.title == "loop 1: while, on the device"
    assert program.parts[0].nodes[2].body.parts[0].edges == [(6, 7)]
    drawn = [text.strip() for text in ElementTree.fromstring(draw_program(program, "svg")).itertext()]
    assert {"loop 1", "loop 2: repeat 4 times, on the device", "loop"} <= set(drawn)


def test_places_are_named_without_handles():
    places = Places(read_description(*DEVICE_LOOPS))
    smaller = [f"place of 8 SMs of device 0 ({number})" for number in (1, 2)]
    assert list(places.fills) == [DEVICE, *smaller]
    many = [(i, 0, -1, "task", "t", f"device({i})") for i in range(70)]
    fills = Places(read_description([(-1, 0, "graph", "")], many, [])).fills
    assert list(fills) == [f"device({i})" for i in range(70)]
    assert len(set(fills.values())) == 70


def test_boxes_stand_below_what_they_wait_for_and_do_not_overlap():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 4), (3, 4)]
    drawing = draw_layers([1.0] * 12, edges, SIZES)
    for before, after in edges:
        assert drawing.centers[before][1] + SIZES.height < drawing.centers[after][1]
    for one, (x, y) in enumerate(drawing.centers):
        assert 0.5 <= x + 1e-9 <= drawing.width
        for other_x, other_y in drawing.centers[:one]:
            assert abs(x - other_x) > 1.0 or abs(y - other_y) > SIZES.height
    assert len(drawing.lines[4]) == 5  # around the two layers between, out of a layer of several rows


def test_the_order_of_a_layer_has_no_crossings_that_can_be_avoided():
    drawing = draw_layers([1.0] * 8, [(0, 7), (1, 6), (2, 5), (3, 4)], SIZES)
    x = [center[0] for center in drawing.centers]
    assert x[:4] == pytest.approx(x[:3:-1])


def test_many_tasks_are_drawn_soon_and_without_labels(tmp_path):
    with stf.use_machine("sim:h200x2"):
        made = stf.task_graph()
        data = [made.context.logical_data_full(4, 1.0) for _ in range(20)]
        with made:
            for number in range(2000):
                mine, other = number % 20, (number * 7 + 1) % 20
                deps = [data[mine].rw()] + ([data[other].read()] if other != mine else [])
                task(made.context, mine // 10, f"step {number}", *deps)
        start = time.perf_counter()
        save_graph(made, tmp_path / "graph.svg")
        save_graph(made, tmp_path / "graph.png")
        assert time.perf_counter() - start < 60
        made.finalize()
    root = ElementTree.parse(tmp_path / "graph.svg").getroot()
    assert "step" not in "".join(root.itertext())
    assert max(float(root.get(side).removesuffix("pt")) for side in ("width", "height")) <= 72 * 80 + 1


@pytest.mark.parametrize("one", [None, 3, "graph"])
def test_other_objects_are_refused(one, tmp_path):
    with pytest.raises(TypeError, match=f"a TaskGraph or a launchable_graph_scope: got {type(one).__name__}"):
        graph_dot(one)
    with pytest.raises(TypeError, match="is made of a LaunchableGraph"):
        save_graph(one, tmp_path / "graph.dot")


def test_other_suffixes_are_refused_and_those_that_work_are_named(graph, tmp_path):
    record_small(graph)
    for name in ("graph.jpg", "graph"):
        with pytest.raises(
            ValueError, match=rf"one of \.dot, \.gv, \.svg, \.png, \.pdf: got path='.*{name}'"
        ):
            save_graph(graph, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_is_not_there_leaves_the_file_as_it_was(graph, tmp_path):
    (tmp_path / "graph.svg").write_text("before")
    with pytest.raises(stf.TaskStateError, match="the task graph is empty"):
        save_graph(graph, tmp_path / "graph.svg")
    record_small(graph)
    raw = graph.raw
    graph.reset()
    with pytest.raises(stf.TaskStateError, match="the task graph is reset"):
        graph_dot(graph)
    with pytest.raises(stf.TaskStateError, match="was reset"):
        save_graph(raw, tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text() == "before"


def test_a_graph_of_nothing_has_a_picture(graph, tmp_path):
    with graph:
        pass
    assert "n0" not in graph_dot(graph)
    save_graph(graph, tmp_path / "graph.png")


def test_without_matplotlib_the_text_is_written_and_the_extra_is_named(tmp_path):
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import stf_places as stf\n"
        "from stf_places.viz import save_graph\n"
        "with stf.use_machine('sim:h200x2'):\n"
        "    graph = stf.task_graph()\n"
        "    with graph: pass\n"
        "    save_graph(graph, 'graph.dot')\n"
        "    try: save_graph(graph, 'graph.png')\n"
        "    except ImportError as error: print(error)\n"
        "    graph.finalize()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "matplotlib is not installed: pip install 'stf-places[demo]'\n"
    assert [path.name for path in tmp_path.iterdir()] == ["graph.dot"]


def test_the_examples_run():
    failed, attempted = doctest.testmod(importlib.import_module("stf_places.viz.graphs"))
    assert attempted > 0
    assert failed == 0
