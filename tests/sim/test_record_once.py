"""Graphs that are recorded once and launched many times: launches, what comes between them, and how they end."""

import functools
import gc
import weakref

import numpy as np
import pytest
from scope_work import Failed, on, prepared, recorded

import stf_places as stf
from stf_places import exec_place
from stf_places._native import raw_graphs

HOST = exec_place.host()


class Shared:
    """A graph of pop_prologue_shared()."""

    def __init__(self):
        self.ctx = stf.stackable_context()

    def record(self, body):
        self.graph = recorded(self.ctx, body)

    def finish(self):
        self.graph.reset()
        self.ctx.finalize()


class InScope(Shared):
    """A graph of launchable_graph_scope()."""

    def record(self, body):
        self.graph = self.ctx.launchable_graph_scope()
        self.graph.__enter__()
        body()

    def finish(self):
        self.graph.__exit__(None, None, None)
        self.ctx.finalize()


class TaskGraph:
    """A graph of task_graph()."""

    def __init__(self):
        self.graph = stf.task_graph()
        self.ctx = self.graph.context

    def record(self, body):
        with self.graph:
            body()

    def finish(self):
        self.graph.finalize()


@pytest.fixture(params=[Shared, InScope, TaskGraph])
def flow(request, work):
    """Give a graph to be recorded with its context."""
    made = request.param()
    yield made
    made.finish()
    assert made.ctx.closed


# ---- Launches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launches", [0, 1, 5])
def test_each_launch_does_it_once_more(flow, work, launches):
    source, seen = np.zeros(4), []
    x = flow.ctx.logical_data(source)

    def body():
        work.scale(flow.ctx, on(0), x, 2, 1)
        flow.ctx.host_launch(x.read(), fn=lambda array: seen.append(array[0]))

    flow.record(body)
    assert seen == []
    for _ in range(launches):
        flow.graph.launch()
    flow.finish()
    assert (source == 2**launches - 1).all() and seen == [2 ** (k + 1) - 1 for k in range(launches)]


def test_five_launches_call_a_function_five_times(flow, work):
    calls = []
    flow.record(lambda: flow.ctx.host_launch(fn=calls.append, args=("called",)))
    for _ in range(5):
        flow.graph.launch()
    flow.finish()
    assert calls == ["called"] * 5


@pytest.mark.parametrize("place", [0, 1, "host"])
def test_tasks_between_launches_change_the_data(ctx, work, place):
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_ones(4)
    graph = recorded(ctx, lambda: work.mix(ctx, on(0), y, x))
    expected_x, expected_y = 0, 1
    for turn in range(6):
        if place == "host":
            with ctx.task(HOST, x.rw()) as t:
                t.numpy(0)[:] += 1
        else:
            work.add(ctx, on(place % work.devices), x)
        graph.launch()
        expected_x += 1
        expected_y += expected_x
        if turn % 2:
            work.scale(ctx, on(turn % work.devices), y, 2, 0)
            expected_y *= 2
        if turn % 3 == 2:
            assert (ctx.wait(y) == expected_y).all()
        with ctx.graph_scope():
            work.add(ctx, on(0), x)
        expected_x += 1
    assert (ctx.wait(x) == expected_x).all() and (ctx.wait(y) == expected_y).all()
    graph.reset()


def test_memory_of_the_callers_is_read_at_the_first_launch_and_goes_back_at_the_end(work):
    source = np.zeros(4)
    with stf.stackable_context() as ctx:
        x = ctx.logical_data(source)
        graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
        graph.launch()
        graph.launch()
        with ctx.task(HOST, x.rw()) as t:
            t.numpy(0)[:] *= 10
        graph.launch()
        graph.reset()
    assert (source == 21).all()


def test_two_graphs_alternately(ctx, work):
    x = ctx.logical_data_ones(4)
    double = recorded(ctx, lambda: work.scale(ctx, on(0), x, 2, 0))
    add = recorded(ctx, lambda: work.add(ctx, on(work.devices - 1), x))
    value = 1
    for turn in range(12):
        for graph in (double, add) if turn % 3 else (add, add, double):
            graph.launch()
            value = value * 2 if graph is double else value + 1
    assert (ctx.wait(x) == value).all()
    double.reset()
    add.launch()
    assert (ctx.wait(x) == value + 1).all()
    add.reset()


@pytest.mark.parametrize("loop", ["repeat", "while"])
@pytest.mark.parametrize("wait", [False, True])
def test_graphs_of_several_parts_back_to_back(ctx, work, loop, wait):
    """Scratch of the graph's own is written in the first part and read in others: launches must not overlap."""
    x, n = ctx.logical_data_zeros(1000), ctx.logical_data_zeros(1, "i4")

    def record(plus):
        scratch = ctx.logical_data_empty(1000, no_export=True)
        work.put(ctx, on(0), scratch, plus)
        work.mix(ctx, on(0), scratch, x)
        work.scale(ctx, on(work.devices - 1), scratch, 2, 0)
        work.put(ctx, on(0), n, 0)
        with ctx.repeat(2) if loop == "repeat" else ctx.while_loop() as made:
            ctx.host_launch(x.rw(), scratch.read(), fn=lambda a, b: np.add(a, b, out=a))
            work.add(ctx, on(0), n)
            if loop == "while":
                made.continue_while(n < 2)
        work.add(ctx, on(0), x)
        return made

    graphs = [recorded(ctx, functools.partial(record, plus)) for plus in (1, 2)]
    value = 0
    for turn in range(8):
        graphs[turn % 2].launch()
        value += 2 * 2 * (value + 1 + turn % 2) + 1
        if wait:
            assert (ctx.wait(x) == value).all()
    assert (ctx.wait(x) == value).all()
    for graph in graphs:
        graph.reset()


@pytest.mark.parametrize("device", [0, 1])
def test_launches_that_share_nothing_but_their_own_memory_follow_each_other(ctx, work, device):
    x, seen, place = ctx.logical_data_ones(1000), [], on(device % work.devices)

    def record():
        scratch = ctx.logical_data_empty(1000, no_export=True)
        work.put(ctx, place, scratch, 1)
        with ctx.repeat(2):  # several graphs: one alone follows itself
            ctx.host_launch(scratch.rw(), fn=lambda array: array.__imul__(2))
        work.mix(ctx, place, scratch, x)
        ctx.host_launch(scratch.read(), fn=lambda array: seen.append(array.sum()))

    graph = recorded(ctx, record)
    for _ in range(20):
        graph.launch()
    ctx.wait(x)
    graph.reset()
    ctx.finalize()
    assert seen == [5000] * 20


def test_many_launches(ctx, work):
    x = ctx.logical_data_zeros(4)
    graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
    for _ in range(1000):
        graph.launch()
    assert (ctx.wait(x) == 1000).all()
    assert ctx.stats.graphs_launched == 1000 and ctx.stats.graphs_instantiated == 1
    graph.reset()


def test_independent_graphs_do_not_wait_for_each_other():
    with stf.use_machine("sim:tiny") as machine, prepared(machine) as work, stf.stackable_context() as ctx:
        data = [ctx.logical_data_full(4, 0.0, exec_place=on(device)) for device in (0, 1)]
        graphs = [
            recorded(ctx, lambda k=k: work.add(ctx, on(k), data[k], cost=100, symbol=f"on {k}"))
            for k in (0, 1)
        ]
        machine.record_timeline()
        for graph in graphs:
            graph.launch()
        assert [ctx.wait(one)[0] for one in data] == [1, 1]
        first, second = (one for one in machine.timeline() if one.kind == "kernel" and "on " in one.symbol)
        assert first.start_us < second.end_us and second.start_us < first.end_us
        for graph in graphs:
            graph.reset()


def test_data_dropped_between_launches_stay_for_the_graph(ctx, work):
    x, factor = ctx.logical_data_zeros(1000), ctx.logical_data_full(1000, 2.0)
    graph = recorded(ctx, functools.partial(work.mix, ctx, on(0), x, factor))
    graph.launch()
    del factor
    gc.collect()
    others = [ctx.logical_data_full(1000, 100.0 + k) for k in range(10)]
    graph.launch()
    assert (ctx.wait(x) == 4).all()
    graph.reset()
    assert [ctx.wait(one)[0] for one in others] == [100 + k for k in range(10)]


# ---- Ends ------------------------------------------------------------------------------------------------


def test_names_share_one_graph(ctx, work):
    x = ctx.logical_data_zeros(4)
    graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
    alias = graph
    alias.launch()
    assert graph.valid and alias.valid
    alias.reset()
    assert not graph.valid and "reset" in repr(graph)
    for call in (
        graph.launch,
        graph.describe,
        lambda: graph.graph,
        lambda: graph.exec_graph,
        lambda: graph.stream,
    ):
        with pytest.raises(stf.TaskStateError, match="was reset"):
            call()
    graph.reset()
    alias.reset()
    assert (ctx.wait(x) == 1).all()


def test_finalize_waits_for_graphs_to_be_reset(work):
    source = np.zeros(4)
    ctx = stf.stackable_context()
    x = ctx.logical_data(source)
    graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
    graph.launch()
    for _ in range(2):
        with pytest.raises(stf.TaskStateError, match=r"reset\(\)"):
            ctx.finalize()
    assert not ctx.closed
    graph.launch()
    graph.reset()
    ctx.finalize()
    assert ctx.closed and (source == 2).all()


def test_a_graph_that_nobody_has_any_more_is_reset(work):
    source = np.zeros(4)
    ctx = stf.stackable_context()
    x = ctx.logical_data(source)
    for _ in range(5):
        graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
        graph.launch()
        graph.launch()
        del graph
    gc.collect()
    ctx.finalize()
    assert (source == 10).all()


@pytest.mark.parametrize("end", ["reset", "del", "scope"])
def test_nothing_is_left_of_a_graph(simulated, end):
    class Kept(np.ndarray):
        pass

    driver, source = simulated._driver, np.zeros(4).view(Kept)
    watch, seen = weakref.ref(source), []
    with prepared(simulated) as work:
        with stf.stackable_context(handle=(handle := stf.async_resources())) as ctx:
            with ctx.launchable_graph_scope() as graph:
                x = ctx.logical_data(source)
                work.add(ctx, on(0), x)
                ctx.host_launch(
                    x.read(), fn=lambda array, kept: seen.append(kept is not None), args=(source,)
                )
                for _ in range(3):
                    graph.launch()
                if end == "reset":
                    graph.reset()
            del graph, x, source
        assert seen == [True] * 3
        del ctx, handle
        stf.context().finalize()
        gc.collect()
        assert watch() is None
        assert raw_graphs.live_graphs(driver) == 0 and driver.live_allocations() == 0


@pytest.mark.filterwarnings("ignore:a context was dropped")
@pytest.mark.parametrize("launches", [0, 3])
def test_a_context_dropped_before_its_graph(work, launches):
    source = np.zeros(4)
    ctx = stf.stackable_context()
    x = ctx.logical_data(source)
    work.add(ctx, on(0), x, 10)
    graph = recorded(ctx, functools.partial(work.add, ctx, on(0), x))
    for _ in range(launches):
        graph.launch()
    del ctx, x
    gc.collect()
    assert (source == 10 + launches).all()
    assert not graph.valid
    with pytest.raises(stf.TaskStateError):
        graph.launch()
    graph.reset()


def test_a_poisoned_value_is_refused_by_launches(ctx, work):
    x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)
    graph = recorded(ctx, lambda: work.mix(ctx, on(0), y, x))
    graph.launch()
    with pytest.raises(Failed), ctx.task(on(0), x.rw(), symbol="bad"):
        raise Failed
    for _ in range(2):
        with pytest.raises(stf.PoisonedData, match="'bad' failed"):
            graph.launch()
    assert (ctx.wait(y) == 1).all()
    work.put(ctx, on(0), x, 3)
    graph.launch()
    assert (ctx.wait(y) == 4).all()
    graph.reset()


def test_a_task_that_failed_in_the_recording_poisons_at_each_launch(ctx, work):
    x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)

    def record():
        with pytest.raises(Failed), ctx.task(on(0), x.write(), symbol="bad"):
            raise Failed
        work.add(ctx, on(0), y)

    graph = recorded(ctx, record)
    assert (ctx.wait(x) == 1).all()
    for _ in range(2):
        graph.launch()
        with pytest.raises(stf.PoisonedData, match="'bad' failed"):
            ctx.wait(x)
        work.put(ctx, on(0), x, 1)
    assert (ctx.wait(x) == 1).all() and (ctx.wait(y) == 2).all()
    graph.reset()


def test_callbacks_that_raise_are_told_for_each_launch(ctx, work):
    x = ctx.logical_data_zeros(4)

    def bad(array):
        array += 1
        raise Failed

    graph = recorded(ctx, lambda: ctx.host_launch(x.rw(), fn=bad))
    for _ in range(3):
        graph.launch()
    for _ in range(3):
        with pytest.raises(Failed):
            ctx.wait(x)
    assert (ctx.wait(x) == 3).all()
    graph.reset()


# ---- Handles ---------------------------------------------------------------------------------------------


def test_handles(flow, work):
    x = flow.ctx.logical_data_empty(4)
    flow.record(lambda: work.put(flow.ctx, on(0), x, 1))
    graph = flow.graph
    assert graph.graph != 0 and graph.exec_graph != 0 and graph.stream != 0
    assert (graph.graph, graph.exec_graph) == (graph.graph, graph.exec_graph)
    handles = graph.graph, graph.exec_graph
    for _ in range(2):
        graph.launch()
        assert (graph.graph, graph.exec_graph) == handles and graph.stream != 0


def test_graphs_without_handles(ctx, work):
    x = ctx.logical_data_zeros(4)

    def by_host():
        with ctx.repeat(2):
            ctx.host_launch(x.rw(), fn=lambda array: array.__iadd__(1))

    for record in (by_host, lambda: None):
        graph = recorded(ctx, record)
        for look in (lambda g=graph: g.graph, lambda g=graph: g.exec_graph):
            with pytest.raises(stf.NotSupported, match=r"launch\(\) runs it"):
                look()
        assert graph.stream != 0
        graph.launch()
        graph.launch()
        graph.reset()
    assert (ctx.wait(x) == 4).all()


def test_a_description_names_places_loops_and_callbacks(ctx, work):
    if not work.kernels:
        pytest.skip("needs kernels")
    x, y = (ctx.logical_data_full(4, 0.0, exec_place=on(0)) for _ in range(2))

    def record():
        work.add(ctx, on(0), x, symbol="first")
        with ctx.repeat(3):
            work.add(ctx, on(0), x, symbol="round")
        ctx.host_launch(y.rw(), fn=lambda array: None, symbol="call")

    graph = recorded(ctx, record)
    groups, nodes, edges = graph.describe()
    assert [group[2:] for group in groups] == [("graph", ""), ("repeat", "3 times, on the device")]
    named = {label: (kind, place, group) for _, group, _, kind, label, place in nodes}
    assert named["first"] == ("task", "device(0)", 0) and named["round"] == ("task", "device(0)", 1)
    assert named["call"][::2] == ("host", 0)
    kinds = [node[3] for node in nodes]
    assert kinds.count("loop") == 1 and kinds.count("copy") >= 1
    (body,) = (node[2] for node in nodes if node[3] == "loop")
    assert groups[body][0] == 0
    ids = {node[0] for node in nodes}
    assert len(ids) == len(nodes) and all({a, b} <= ids for a, b in edges)
    graph.reset()
