"""Scopes that are left in ways that nobody planned: Ctrl-C, dropped contexts, the interpreter's end, exceptions."""

import contextlib
import functools
import gc
import json
import os
import subprocess
import sys
import threading
from importlib import resources

import numpy as np
import pytest
from scope_work import Failed, on, prepared, recorded

import stf_places as stf
from stf_places._native import raw_graphs

PRELUDE = """
import os, signal, sys
import numpy as np
import stf_places as stf

chosen = stf.use_machine(sys.argv[1])
chosen.__enter__()
source, other, rounds = np.zeros(1), np.zeros(1), []
ctx = stf.stackable_context()
x, y = ctx.logical_data(source), ctx.logical_data(other)

def add(array, stop_at=0):
    array += 1
    rounds.append(1)
    if len(rounds) == stop_at:
        os.kill(os.getpid(), signal.SIGINT)

ctx.host_launch(y.rw(), fn=add)
"""
LOOPS = {
    "while": """
with ctx.while_loop() as loop:
    ctx.host_launch(x.rw(), fn=add, args=(20,))
    loop.continue_while(x >= 0)
""",
    "repeat": """
with ctx.graph_scope():
    with ctx.repeat(1 << 40):
        ctx.host_launch(x.rw(), fn=add, args=(20,))
""",
    "launch": """
ctx.push()
with ctx.while_loop() as loop:
    with ctx.repeat(2):
        ctx.host_launch(x.rw(), fn=add, args=(20,))
    loop.continue_while(x >= 0)
graph = ctx.pop_prologue_shared()
graph.launch()
""",
}
INTERRUPTED = """
import contextlib
try:
    {loop}
except KeyboardInterrupt:
    print("interrupted")
for name in [name for name in globals() if name == "graph"]:
    graph.reset()
for _ in range(2000):
    try:
        ctx.finalize()
        ctx.check_errors()
        break
    except stf.StfError:
        pass
print(ctx.closed, other[0])
"""


def run(machine, program):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, "sim:tiny" if machine.simulated else "cuda"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_ctrl_c_ends_a_loop_that_the_host_drives(machine, loop):
    done = run(machine, INTERRUPTED.format(loop=loop.strip().replace("\n", "\n    ")))
    assert done.stdout.splitlines() == ["interrupted", "True 1.0"]


@pytest.mark.parametrize(
    "left",
    [
        "ctx.push()",
        "scope = ctx.graph_scope().__enter__()",
        "loop = ctx.repeat(3).__enter__()",
        "graph = ctx.launchable_graph_scope().__enter__()",
        "ctx.push()\nloop = ctx.while_loop().__enter__()",
        "ctx.push()\nctx.host_launch(x.rw(), fn=add)\ngraph = ctx.pop_prologue_shared()\ngraph.launch()",
        "ctx.push()\nt = ctx.task(stf.exec_place.device(0), x.rw()).start()",
    ],
    ids=["push", "graph_scope", "repeat", "launchable", "while", "graph", "task"],
)
def test_the_interpreter_ends_with_a_scope_open(machine, left):
    done = run(machine, f"{left}\nprint('end')\n")
    assert done.stdout == "end\n" and "Fatal" not in done.stderr


def left_open(ctx, work, x, how):
    """Leave something open, and return what is to be kept and how often it ran."""
    if how == "push":
        ctx.push()
    elif how == "launched":
        scope = ctx.launchable_graph_scope().__enter__()
        work.add(ctx, on(0), x)
        scope.launch()
        scope.launch()
        return scope, 2
    elif how == "recorded":
        graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
        graph.launch()
        return graph, 1
    else:
        ctx.push()
        scope = {"graph_scope": ctx.graph_scope, "while": ctx.while_loop}.get(how, lambda: ctx.repeat(3))()
        scope.__enter__()
        work.add(ctx, on(0), x)
        return scope, 0
    work.add(ctx, on(0), x)
    return None, 0


@pytest.mark.parametrize("how", ["push", "graph_scope", "while", "repeat", "launched", "recorded"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_dropped_context_writes_back_what_was_submitted(work, how, keep):
    source = np.zeros(4)
    ctx = stf.stackable_context()
    x = ctx.logical_data(source)
    work.add(ctx, on(0), x)
    kept, times = left_open(ctx, work, x, how)
    if not keep:
        kept = None
    with pytest.warns(
        ResourceWarning, match=r"a context was dropped without finalize\(\); its values were written"
    ):
        del ctx, x
        gc.collect()
        kept = None  # noqa: F841  # a scope holds its context
        gc.collect()
    assert (source == 1 + times).all()


@pytest.mark.parametrize("how", ["push", "graph_scope", "while", "repeat"])
def test_with_finalizes_after_an_exception_in_a_scope(work, how):
    source = np.zeros(4)
    with pytest.raises(Failed) as info, stf.stackable_context() as ctx:
        x = ctx.logical_data(source)
        work.add(ctx, on(0), x)
        scope = left_open(ctx, work, x, how)  # noqa: F841
        raise Failed
    assert getattr(info.value, "__notes__", []) == []
    assert ctx.closed and (source == 1).all()


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("around", [False, True])
def test_data_that_only_a_discarded_loop_used(work, depth, around):
    """What a recording takes from those around it is theirs too, whoever drops it first."""
    with stf.stackable_context() as ctx:
        y = ctx.logical_data_ones(4)
        with ctx.graph_scope() if around else contextlib.nullcontext():
            for turn in range(8):
                with contextlib.suppress(Failed), contextlib.ExitStack() as loops:
                    for _ in range(depth):
                        loops.enter_context(ctx.repeat(2))
                    x = ctx.logical_data_empty(64)
                    work.put(ctx, on(turn % work.devices), x, 1)
                    work.add(ctx, on(turn % work.devices), y)
                    del x
                    raise Failed
                others = [ctx.logical_data_full(64, float(turn)) for turn in range(4)]
            work.add(ctx, on(0), y)
        assert (ctx.wait(y) == 2).all()
        assert [ctx.wait(one)[0] for one in others] == [0, 1, 2, 3]


def test_threads_have_their_own_scopes(work):
    failures = []

    def flow():
        try:
            with stf.stackable_context() as ctx:
                x = ctx.logical_data_zeros(1)
                for _ in range(20):
                    with ctx.graph_scope():
                        work.add(ctx, on(0), x)
                    with ctx.while_loop() as loop:
                        work.add(ctx, on(0), x)
                        loop.continue_while(x < 0)
                    with ctx.repeat(3):
                        ctx.host_launch(x.rw(), fn=lambda array: array.__iadd__(1))
                assert ctx.wait(x)[0] == 100
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=flow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == [] and not any(thread.is_alive() for thread in threads)


def test_other_contexts_work_while_a_scope_is_open(work):
    with stf.stackable_context() as a, stf.stackable_context() as b, stf.context(use_graph=True) as c:
        x, y, z = (ctx.logical_data_zeros(4) for ctx in (a, b, c))
        with a.graph_scope():
            work.add(a, on(0), x)
            with b.repeat(2):
                work.add(b, on(0), y)
                work.add(a, on(0), x)
                work.add(c, on(0), z)
            assert (b.wait(y) == 2).all() and (c.wait(z) == 1).all()
            work.add(a, on(0), x)
        assert (a.wait(x) == 3).all()


# ---- Room and failures -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """Put a simulated machine in use whose two devices have 16 KiB each."""
    description = json.loads((resources.files("stf_places.machines") / "data" / "tiny.json").read_text())
    for device in description["devices"]:
        device["memory"] = 1 << 14
    path = tmp_path / "small.json"
    path.write_text(json.dumps(description))
    with stf.use_machine(f"sim:{path}") as machine, prepared(machine) as work:
        yield work


@pytest.mark.parametrize("kind", ["graph_scope", "repeat", "recorded"])
def test_scopes_one_after_the_other_may_use_more_than_a_device_has(small, kind):
    sources = [np.full(1024, k, "i4") for k in range(12)]  # 48 KiB
    expected = list(range(12))
    with stf.stackable_context() as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for turn in range(3):
            for k, one in enumerate(data):
                place, other = on((k + turn) % 2), data[(k + 1) % 12]
                if kind == "recorded":
                    graph = recorded(ctx, functools.partial(small.mix, ctx, place, one, other, 3))
                    graph.launch()
                    graph.reset()
                else:
                    with ctx.graph_scope() if kind == "graph_scope" else ctx.repeat(1):
                        small.mix(ctx, place, one, other, 3)
                expected[k] += 3 * expected[(k + 1) % 12]
        assert ctx.stats.evictions > 0
    assert [int(source[-1]) for source in sources] == expected


def test_a_scope_that_needs_more_than_a_device_has_is_discarded(small):
    with stf.stackable_context() as ctx:
        data = [ctx.logical_data(np.full(1024, k, "i4")) for k in range(12)]
        with pytest.raises(stf.OutOfMemory), ctx.graph_scope():
            for one in data:
                small.add(ctx, on(0), one)
        for one in data:
            small.add(ctx, on(0), one)
        with ctx.graph_scope():
            for one in data[:3]:
                small.add(ctx, on(0), one)
        assert [ctx.wait(one)[0] for one in data] == [2, 3, 4, *range(4, 13)]


def all_kinds(ctx, work, x):
    """Submit a task, a scope with a callback, a loop and a graph."""
    work.add(ctx, on(0), x)
    with ctx.graph_scope():
        work.add(ctx, on(1), x)
        ctx.host_launch(x.rw(), fn=lambda array: array.__iadd__(1))
    with ctx.repeat(2):
        work.add(ctx, on(0), x)
    graph = recorded(ctx, lambda: work.add(ctx, on(0), x))
    graph.launch()
    graph.reset()


@pytest.mark.parametrize("kind", ["copy", "launch", "host_function", "allocation", "event"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_failure_is_told_and_nothing_is_left(simulated, kind, nth):
    driver, told = simulated._driver, []
    with prepared(simulated) as work:
        ctx = stf.stackable_context(handle=(handle := stf.async_resources()))
        x = ctx.logical_data(np.zeros(4))
        simulated.fail(kind, nth, "failed")
        steps = [functools.partial(all_kinds, ctx, work, x)] * 5
        for step in (*steps, functools.partial(ctx.wait, x), ctx.finalize, ctx.finalize):
            try:
                step()
            except stf.StfError as error:
                told.append((type(error), str(error)))
        assert ctx.closed and told
        assert issubclass(told[0][0], stf.DriverError) and "failed" in told[0][1]
        del ctx, x, handle, steps, step
        stf.context().finalize()
        gc.collect()
        assert raw_graphs.live_graphs(driver) == 0 and driver.live_allocations() == 0
