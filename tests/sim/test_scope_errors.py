"""Scopes, loops and recorded graphs: what is refused, with which words, and that all goes on afterwards."""

import re

import numpy as np
import pytest
from scope_work import Failed, on, prepared

import stf_places as stf
from stf_places import AccessMode, exec_place

HOST = exec_place.host()


SCOPES = {
    "graph_scope": lambda ctx: ctx.graph_scope(),
    "repeat": lambda ctx: ctx.repeat(2),
    "while_loop": lambda ctx: ctx.while_loop(),
    "launchable_graph_scope": lambda ctx: ctx.launchable_graph_scope(),
}
each_scope = pytest.mark.parametrize("name", SCOPES)


# ---- Making and entering ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [stf.LaunchableGraph, *("graph_scope", "while_loop", "repeat", "launchable_graph_scope")],
    ids=lambda kind: kind if isinstance(kind, str) else kind.__name__,
)
def test_only_a_context_makes_them(kind):
    from stf_places._native import scopes

    kind = getattr(scopes, kind) if isinstance(kind, str) else kind
    with pytest.raises(TypeError, match="ctx"):
        kind()


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (-1, ValueError),
        (1 << 63, ValueError),
        (2.0, TypeError),
        ("3", TypeError),
        (None, TypeError),
        ([1], TypeError),
    ],
)
def test_rounds_are_counted_in_whole_numbers(ctx, count, error):
    with pytest.raises(error):
        ctx.repeat(count)
    with pytest.raises(TypeError):
        ctx.repeat()


@pytest.mark.parametrize("handle", [3, "handle", object()])
def test_a_handle_is_async_resources(machine, handle):
    with pytest.raises(TypeError):
        stf.stackable_context(handle=handle)
    with pytest.raises(TypeError):
        stf.stackable_context(stf.async_resources())


@each_scope
def test_a_scope_is_entered_once(ctx, work, name):
    x, scope = ctx.logical_data_zeros(4), SCOPES[name](ctx)
    with pytest.raises(Failed), scope:
        with pytest.raises(stf.TaskStateError, match="entered once"):
            scope.__enter__()
        work.add(ctx, on(0), x)
        raise Failed
    with pytest.raises(stf.TaskStateError, match="entered once"):
        scope.__enter__()
    assert (ctx.wait(x) == 0).all()


@each_scope
def test_a_scope_does_not_begin_while_a_task_is_open(ctx, work, name):
    x = ctx.logical_data_zeros(4)
    with ctx.task(on(0), x.rw()):
        for begin in (SCOPES[name](ctx).__enter__, ctx.push):
            with pytest.raises(stf.TaskStateError, match="open"):
                begin()
    with ctx.graph_scope():
        work.add(ctx, on(0), x)
        if name != "launchable_graph_scope":
            with ctx.task(on(0), x.rw()), pytest.raises(stf.TaskStateError, match="open"):
                SCOPES[name](ctx).__enter__()
    assert ctx.wait(x).shape == (4,)


@pytest.mark.parametrize("around", ["graph_scope", "repeat", "launchable_graph_scope"])
def test_graphs_to_launch_are_recorded_at_the_root(ctx, work, around):
    x = ctx.logical_data_zeros(4)
    with SCOPES[around](ctx):
        with pytest.raises(stf.NotSupported, match="root"):
            ctx.launchable_graph_scope().__enter__()
        ctx.push()
        work.add(ctx, on(0), x)
        with pytest.raises(stf.NotSupported, match=r"at the root: pop\(\)"):
            ctx.pop_prologue_shared()
        ctx.pop()
    assert (ctx.wait(x) == {"graph_scope": 1, "repeat": 2}.get(around, 0)).all()


# ---- Ending ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["pop", "discard", "pop_prologue_shared"])
@pytest.mark.parametrize("inside", [None, *SCOPES])
def test_what_push_did_not_begin(ctx, work, end, inside):
    x = ctx.logical_data_zeros(4)
    pattern = re.escape(f"{end}() ends what push() began")
    if inside is None:
        with pytest.raises(stf.TaskStateError, match=pattern):
            getattr(ctx, end)()
        return
    with pytest.raises(Failed), SCOPES[inside](ctx):
        work.add(ctx, on(0), x)
        with pytest.raises(stf.TaskStateError, match=pattern):
            getattr(ctx, end)()
        raise Failed
    assert (ctx.wait(x) == 0).all()


@pytest.mark.parametrize("outer", SCOPES)
@pytest.mark.parametrize("inner", ["push", "graph_scope", "repeat"])
def test_scopes_end_in_the_reverse_order(ctx, work, outer, inner):
    x = ctx.logical_data_zeros(4)
    scope = SCOPES[outer](ctx)
    scope.__enter__()
    work.add(ctx, on(0), x)
    ctx.push() if inner == "push" else SCOPES[inner](ctx).__enter__()
    work.add(ctx, on(0), x)
    if outer == "launchable_graph_scope":
        with pytest.raises(stf.TaskStateError, match="still open"):
            scope.launch()
        scope.__exit__(None, None, None)
    else:
        with pytest.raises(stf.TaskStateError, match="is still open inside"):
            scope.__exit__(None, None, None)
    work.add(ctx, on(0), x, 5)
    assert (ctx.wait(x) == 5).all() and ctx.stats.graphs_launched == 0


@pytest.mark.parametrize("name", [*SCOPES, "push", "pop_prologue_shared"])
def test_a_scope_does_not_end_while_a_task_is_open(ctx, work, name):
    x = ctx.logical_data_zeros(4)
    ends = {"push": ctx.pop, "pop_prologue_shared": ctx.pop_prologue_shared}
    if name in ends:
        ctx.push()
        end = ends[name]
    else:
        scope = SCOPES[name](ctx)
        scope.__enter__()
        end = scope.launch if name == "launchable_graph_scope" else lambda: scope.__exit__(None, None, None)
    work.add(ctx, on(0), x)
    task = ctx.task(on(0), x.rw(), symbol="left open").start()
    with pytest.raises(stf.TaskStateError, match=r"1 task\(s\) of this context are open"):
        end()
    with pytest.raises(stf.StfError):
        task.end()
    if name == "launchable_graph_scope":
        scope.__exit__(None, None, None)
    work.add(ctx, on(0), x, 5)
    assert (ctx.wait(x) == 5).all()


@each_scope
def test_finalize_belongs_at_the_root(work, name):
    source = np.zeros(4)
    ctx = stf.stackable_context()
    x = ctx.logical_data(source)
    work.add(ctx, on(0), x)
    with pytest.raises(Failed), SCOPES[name](ctx):
        work.add(ctx, on(0), x)
        for _ in range(2):
            with pytest.raises(stf.TaskStateError, match="root.*still open"):
                ctx.finalize()
        raise Failed
    assert not ctx.closed
    ctx.finalize()
    assert ctx.closed and (source == 1).all()


def test_all_is_refused_after_finalize(work):
    ctx = stf.stackable_context()
    scopes = [make(ctx) for make in SCOPES.values()]
    ctx.finalize()
    ctx.finalize()
    calls = [scope.__enter__ for scope in scopes]
    calls += [lambda make=make: make(ctx) for make in SCOPES.values()]
    calls += [ctx.push, ctx.pop, ctx.discard, ctx.pop_prologue_shared, ctx.token]
    for call in calls:
        with pytest.raises(stf.ContextClosed):
            call()


@pytest.mark.parametrize("name", ["graph_scope", "repeat"])
def test_nothing_in_a_scope_can_be_waited_for(ctx, work, name):
    x = ctx.logical_data_zeros(4)
    waits = [lambda: ctx.wait(x), ctx.fence, lambda: ctx.task(HOST, x.rw()).start()]
    with SCOPES[name](ctx):
        work.add(ctx, on(0), x)
        for wait in waits:
            with pytest.raises(stf.TaskStateError, match="scope"):
                wait()
        ctx.check_errors()
    assert (ctx.wait(x) == (1 if name == "graph_scope" else 2)).all()


def test_data_of_a_recorded_task_cannot_be_looked_at(simulated):
    with stf.stackable_context() as ctx:
        x = ctx.logical_data_zeros(4)
        with ctx.graph_scope(), ctx.task(on(0), x.rw()) as t:
            for look in (
                lambda: t.numpy(0),
                lambda: np.asarray(t.get_arg_cai(0)),
                lambda: t.get_arg_cai(0) + 1,
            ):
                with pytest.raises((stf.NotSupported, TypeError)):
                    look()


def test_values_are_needed_inside_as_outside(ctx, work):
    for make in (SCOPES["graph_scope"], SCOPES["repeat"]):
        x, y = ctx.logical_data_empty(4), ctx.logical_data_zeros(4)
        with make(ctx):
            with pytest.raises(stf.TaskStateError, match="before anything wrote it"):
                work.add(ctx, on(0), x)
            work.add(ctx, on(0), y)
        with pytest.raises(stf.TaskStateError, match="before anything wrote it"):
            ctx.wait(x)
        assert ctx.wait(y)[0] in (1, 2)


def test_data_of_others(ctx, work):
    with stf.stackable_context() as other, stf.context() as plain:
        for foreign in (other.logical_data_zeros(4), plain.logical_data_zeros(4)):
            with ctx.graph_scope():
                with pytest.raises(stf.WrongContext):
                    work.add(ctx, on(0), foreign)
                with pytest.raises(stf.WrongContext):
                    ctx.host_launch(foreign.read(), fn=print)


@pytest.mark.parametrize("inner", ["graph_scope", "repeat"])
def test_a_task_belongs_to_the_scope_that_it_was_made_in(ctx, work, inner):
    x = ctx.logical_data_ones(4)
    root = ctx.task(on(0), x.rw())
    with ctx.graph_scope():
        work.scale(ctx, on(0), x, 3, 0)
        outer = ctx.task(on(0), x.rw())
        with SCOPES[inner](ctx):
            work.add(ctx, on(0), x)
            for early in (root, outer) if inner == "repeat" else (root,):
                with pytest.raises(stf.TaskStateError):
                    early.start()
            late = ctx.task(on(0), x.rw())
    for one in (late, outer):
        with pytest.raises(stf.TaskStateError, match="comes too late: its scope has ended"):
            one.start()
    assert (ctx.wait(x) == (4 if inner == "graph_scope" else 5)).all()


# ---- Data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, AccessMode.NONE, 4, 5, 8, -4, "rw", None, 1.5])
def test_push_takes_a_mode(ctx, work, mode):
    x = ctx.logical_data_zeros(4)
    with ctx.graph_scope():
        with pytest.raises((ValueError, TypeError)):
            x.push(mode)
        work.add(ctx, on(0), x)
    assert (ctx.wait(x) == 1).all()


def test_push_takes_a_data_place(ctx):
    x = ctx.logical_data_zeros(4)
    with ctx.graph_scope(), pytest.raises(TypeError):
        x.push(AccessMode.READ, on(0))


def test_push_and_set_read_only_are_for_stackable_contexts(machine):
    for use_graph in (False, True):
        with stf.context(use_graph=use_graph) as ctx:
            x = ctx.logical_data_zeros(4)
            for call in (lambda x=x: x.push(AccessMode.READ), x.set_read_only):
                with pytest.raises(stf.NotSupported, match="stackable_context"):
                    call()


def test_push_belongs_inside_a_scope_and_before_its_tasks(ctx, work):
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    with pytest.raises(stf.TaskStateError, match="inside a scope"):
        x.push(AccessMode.RW)
    with ctx.graph_scope():
        work.add(ctx, on(0), x)
        with pytest.raises(stf.TaskStateError, match="in this scope already"):
            x.push(AccessMode.READ)
        y.push(AccessMode.READ)
        for mode in (AccessMode.WRITE, AccessMode.RW):
            with pytest.raises(stf.TaskStateError, match="for reading only"):
                y.push(mode)
    assert (ctx.wait(x) == 1).all() and (ctx.wait(y) == 0).all()


def test_read_only_sources_are_not_pushed_to_be_written(ctx):
    source = np.zeros(4)
    source.flags.writeable = False
    x = ctx.logical_data(source)
    with ctx.graph_scope():
        for mode in (AccessMode.WRITE, AccessMode.RW):
            with pytest.raises(stf.ReadOnlyError):
                x.push(mode)
        x.push(AccessMode.READ)


# ---- Loops -----------------------------------------------------------------------------------------------


def test_a_while_loop_needs_a_condition(ctx, work):
    x = ctx.logical_data_zeros(4)
    with ctx.graph_scope():
        work.add(ctx, on(0), x)
        with pytest.raises(stf.TaskStateError, match=r"needs its condition: call continue_while\(\)"):
            with ctx.while_loop():
                work.add(ctx, on(0), x)
        work.add(ctx, on(0), x)
    assert (ctx.wait(x) == 2).all()


@pytest.mark.parametrize("when", ["before", "after", "twice", "in an inner loop", "in a scope inside"])
def test_a_condition_is_set_once_and_in_its_loop(ctx, work, when):
    x = ctx.logical_data_zeros(1)
    loop = ctx.while_loop()

    def refused():
        with pytest.raises(stf.TaskStateError):
            loop.continue_while(x < 3)

    if when == "before":
        refused()
    with loop:
        work.add(ctx, on(0), x)
        if when == "in an inner loop":
            with ctx.repeat(2):
                work.add(ctx, on(0), x)
                refused()
        if when == "in a scope inside":
            with ctx.graph_scope():
                refused()
        loop.continue_while(x < 6)
        if when == "twice":
            refused()
    if when == "after":
        refused()
    assert ctx.wait(x)[0] == 6


@pytest.mark.parametrize("late", ["task", "fill", "callback", "loop"])
def test_the_condition_is_the_last_of_a_body(ctx, work, late):
    x = ctx.logical_data_zeros(1)

    def submit():
        if late == "task":
            work.add(ctx, on(0), x)
        elif late == "fill":
            ctx.logical_data_zeros(4)
        elif late == "callback":
            ctx.host_launch(fn=print)
        else:
            with ctx.repeat(2):
                work.add(ctx, on(0), x)

    with ctx.while_loop() as loop:
        work.add(ctx, on(0), x)
        loop.continue_while(x < 3)
        with pytest.raises(stf.TaskStateError, match="too late"):
            submit()
    assert ctx.wait(x)[0] == 3


@pytest.mark.parametrize(
    ("condition", "error", "match"),
    [
        (lambda x, v: (3,), TypeError, "got int"),
        (lambda x, v: (True,), TypeError, "got bool"),
        (lambda x, v: (x,), TypeError, "got logical_data"),
        (lambda x, v: (), TypeError, None),
        (lambda x, v: (x, ">"), TypeError, None),
        (lambda x, v: (x, ">", 1, 2), TypeError, None),
        (lambda x, v: (x, "==", 1), ValueError, "op is one of"),
        (lambda x, v: (x, ">", None), TypeError, "real number"),
        (lambda x, v: (x, ">", np.nan), ValueError, "number"),
        (lambda x, v: (v > 1,), ValueError, "one element"),
        (lambda x, v: (v, "<", 1), ValueError, "one element"),
        (lambda x, v: ((x > 1) and (x < 5),), TypeError, "no truth value"),
        (lambda x, v: ((x > 1) or (x < 5),), TypeError, "no truth value"),
        (lambda x, v: (not x > 1,), TypeError, "no truth value"),
        (lambda x, v: (0 < x < 1,), TypeError, "no truth value"),
        (lambda x, v: (((x > 1) & (x < 5)) | (x > 9),), NotImplementedError, "one combiner"),
        (lambda x, v: (((x > 1) | (x < 5)) & (x > 9),), NotImplementedError, "one combiner"),
        (lambda x, v: (sum_of(x, 9),), ValueError, "8 terms"),
        (lambda x, v: (sum_of(x, 5) & sum_of(x, 4),), ValueError, "8 terms"),
    ],
)
def test_what_is_no_condition(ctx, work, condition, error, match):
    x, v = ctx.logical_data_zeros(1), ctx.logical_data_zeros(4)
    with ctx.while_loop() as loop:
        work.add(ctx, on(0), x)
        with pytest.raises(error, match=match):
            loop.continue_while(*condition(x, v))
        loop.continue_while(x < 2)
    assert ctx.wait(x)[0] == 2


def sum_of(x, count):
    condition = x > 0
    for k in range(1, count):
        condition = condition & (x < k)
    return condition


def test_conditions_on_other_data(ctx, work):
    x, empty, token = ctx.logical_data_zeros(1), ctx.logical_data_empty(1), ctx.token()
    with stf.stackable_context() as other, stf.context() as plain:
        foreign = other.logical_data_zeros(1)
        with pytest.raises(TypeError, match="only in a stackable_context"):
            plain.logical_data_zeros(1) > 1  # noqa: B015
        with pytest.raises(TypeError, match="token"):
            token > 1  # noqa: B015
        with ctx.while_loop() as loop:
            work.add(ctx, on(0), x)
            with pytest.raises(stf.WrongContext):
                loop.continue_while(foreign < 1)
            loop.continue_while(x < 2)
        with pytest.raises(stf.TaskStateError, match="before anything wrote it"), ctx.while_loop() as loop:
            work.add(ctx, on(0), x)
            loop.continue_while(empty < 1)
    assert ctx.wait(x)[0] == 2


def test_who_drives_a_loop_is_known_at_its_end(ctx, work):
    x = ctx.logical_data_zeros(1)
    for loop in (ctx.repeat(2), ctx.while_loop()):
        for look in (lambda one=loop: one.on_device, lambda one=loop: one.host_reason):
            with pytest.raises(stf.TaskStateError, match="once it has ended"):
                look()
        with pytest.raises(Failed), loop:
            work.add(ctx, on(0), x)
            with pytest.raises(stf.TaskStateError, match="once it has ended"):
                loop.on_device  # noqa: B018
            raise Failed
        with pytest.raises(stf.TaskStateError, match="once it has ended"):
            loop.host_reason  # noqa: B018


def test_a_simulated_machine_has_no_condition_handles(simulated):
    with stf.stackable_context() as ctx, prepared(simulated) as work:
        x = ctx.logical_data_zeros(1)
        with ctx.while_loop() as loop:
            work.add(ctx, on(0), x)
            with pytest.raises(stf.NotSupported, match=r"use continue_while\(\)"):
                loop.cond_handle  # noqa: B018
            loop.continue_while(x < 2)
        assert ctx.wait(x)[0] == 2
