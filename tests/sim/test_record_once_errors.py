"""Graphs that are recorded once: what each state refuses, recordings that fail, and bodies that synchronise."""

from contextlib import suppress

import numpy as np
import pytest
from scope_work import Failed, on, prepared, recorded, stand_in

import stf_places as stf


def test_a_graph_is_launched_at_the_root(ctx, work):
    x = ctx.logical_data_zeros(4)
    graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
    with ctx.graph_scope():
        with pytest.raises(stf.TaskStateError, match="outside of scopes"):
            graph.launch()
    with ctx.task(on(0), x.rw()), pytest.raises(stf.TaskStateError, match="open"):
        graph.launch()
    graph.launch()
    assert (ctx.wait(x) == 1).all()
    graph.reset()


def test_a_scope_that_is_left_is_reset(ctx, work):
    x = ctx.logical_data_zeros(4)
    with ctx.launchable_graph_scope() as graph:
        work.add(ctx, on(0), x)
        assert graph.valid
        graph.launch()
        work.scale(ctx, on(0), x, 10, 0)  # behind the recording: a task of the root
        graph.launch()
    assert not graph.valid
    with pytest.raises(stf.TaskStateError):
        graph.launch()
    graph.reset()
    assert (ctx.wait(x) == 11).all()


def states(work, state):
    """Return a task graph in a state, and its data."""
    graph = stf.task_graph()
    x = graph.context.logical_data(np.zeros(4))
    if state == "empty":
        return graph, x
    graph.__enter__()
    work.add(graph.context, on(0), x)
    if state != "being recorded":
        graph.__exit__(None, None, None)
    if state == "reset":
        graph.reset()
        graph.reset()
    elif state == "finalized":
        graph.finalize()
        graph.finalize()
    return graph, x


STATES = {
    "empty": {"launch", "raw", "graph", "exec_graph", "stream", "task"},
    "being recorded": {"launch", "raw", "graph", "exec_graph", "stream", "reset", "finalize", "enter"},
    "recorded": {"enter", "task"},
    "reset": {"launch", "raw", "graph", "exec_graph", "stream", "enter", "task"},
    "finalized": {"launch", "raw", "graph", "exec_graph", "stream", "enter", "task"},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", sorted(set().union(*STATES.values())))
def test_states_of_a_task_graph(work, state, action):
    graph, x = states(work, state)
    assert state in repr(graph)
    calls = {
        "launch": graph.launch,
        "reset": graph.reset,
        "finalize": graph.finalize,
        "enter": graph.__enter__,
        "task": lambda: work.add(graph.context, on(0), x),
    }
    call = calls.get(action, lambda: getattr(graph, action))
    if action in STATES[state]:
        closed = state == "finalized" and action in ("enter", "task")
        with pytest.raises(stf.ContextClosed if closed else stf.TaskStateError):
            call()
        assert state in repr(graph)
    elif action == "enter":
        with graph:
            pass
    else:
        call()
    if state == "being recorded":
        graph.__exit__(None, None, None)
    graph.finalize()
    assert graph.context.closed


def test_a_task_graph_is_finalized_by_its_context_too(work):
    graph, _ = states(work, "recorded")
    with pytest.raises(stf.TaskStateError):
        graph.context.finalize()
    graph.reset()
    graph.context.finalize()
    with pytest.raises(stf.StfError):
        graph.launch()
    graph.finalize()


@pytest.mark.parametrize(
    ("left_open", "error"),
    [
        (None, Failed),
        *((left, error) for left in ("push", "graph_scope", "task") for error in (Failed, None)),
    ],
)
def test_a_recording_that_fails_can_be_repeated(work, left_open, error):
    source = np.zeros(4)
    graph = stf.task_graph()
    ctx = graph.context
    x = ctx.logical_data(source)
    with pytest.raises(error or stf.StfError), graph:
        work.add(ctx, on(0), x)
        if left_open == "push":
            ctx.push()
        elif left_open == "graph_scope":
            ctx.graph_scope().__enter__()
        elif left_open == "task":
            task = ctx.task(on(0), x.rw()).start()
        if error:
            raise error
    if left_open == "task":
        with suppress(stf.StfError):
            task.end()
    assert "empty" in repr(graph)
    with graph:
        work.add(ctx, on(0), x)
    graph.launch()
    graph.finalize()
    assert (source == 1).all()


@pytest.mark.gpu
def test_a_body_that_synchronises_is_told(cuda):
    if stand_in() is not None:
        pytest.skip("needs NVIDIA's driver")
    with stf.use_machine("cuda") as machine, prepared(machine) as work, stf.stackable_context() as ctx:
        x = ctx.logical_data_zeros(4)
        work.add(ctx, on(0), x)
        with pytest.raises(stf.StfError), ctx.graph_scope():
            with ctx.task(on(0), x.rw()) as t:
                machine._driver.synchronize_stream(t.stream_ptr())
        work.put(ctx, on(0), x, 2)
        assert (ctx.wait(x) == 2).all()
