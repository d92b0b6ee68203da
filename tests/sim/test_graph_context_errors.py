"""Graph contexts: what they refuse, failures of bodies and calls, callers' streams, reuse, and several at once."""

import gc
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import stf_places as stf
from stf_places import blocked, data_place, exec_place, exec_place_grid, partition
from stf_places._native import raw_graphs
from stf_places._native import runtime as runtimes
from stf_places._native.drivers import sim_driver
from stf_places.machines import Machine, specs

HOST = exec_place.host()
LINE = partition(blocked("x"))
LOOK = r"nothing to look at yet: put the work in with run\(fn, task\.get_arg_cai\(i\), \.\.\.\)"
OPEN = r"cannot be run while 1 task\(s\) are open"


def on(device):
    return exec_place.device(device)


def add(array, number):
    array += number


def added(ctx, place, data, number, **options):
    """Add a number on a simulated place."""
    with ctx.task(place, data.rw(), **options) as t:
        t.run(add, t.get_arg_cai(0), number)


@pytest.fixture
def ctx(machine):
    with stf.context(use_graph=True) as made:
        yield made


@pytest.fixture(params=[None, 3], ids=["program-order", "chaos"])
def tiny(request):
    """Put a small simulated machine in use, and see that nothing unordered was found."""
    with stf.use_machine("sim:tiny", chaos=request.param) as machine:
        yield machine
        assert machine.conflicts == ()


# ---- What is refused -------------------------------------------------------------------------------------


def test_there_is_no_trace(machine):
    with pytest.raises(
        stf.NotSupported, match="a context with graphs has no trace.*trace a context on streams"
    ):
        stf.context(use_graph=True, trace=True)
    with stf.context(use_graph=True) as ctx, pytest.raises(ValueError, match="does not trace"):
        ctx.trace  # noqa: B018


def test_a_driver_that_cannot_capture_into_a_graph_says_so():
    old = {**specs.load("tiny").to_dict(), "driver_version": 12020}
    with Machine(runtimes.make_runtime(sim_driver(old)), runtimes.current_or_none()):
        source = np.zeros(4)
        with stf.context(use_graph=True) as ctx:
            data = ctx.logical_data(source)
            with pytest.raises(stf.NotSupported, match=r"12\.3"):
                ctx.task(on(0), data.rw()).start()
        with stf.context() as ctx:
            added(ctx, on(0), ctx.logical_data(source), 1)
    assert (source == 1).all()


def test_data_of_a_device_task_cannot_be_looked_at(tiny):
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(np.ones(4096))
        grid = exec_place_grid.from_devices([0, 1]).with_data(LINE)
        with ctx.task(grid, data.rw()) as t:
            view, (shard, _) = t.get_arg_cai(0), t.shards(0)
            looks = [
                lambda: t.numpy(0),
                lambda: np.asarray(view),
                lambda: np.array(view),
                lambda: np.add(view, 1),
                lambda: np.asarray(t.args_cai()),
                shard.numpy,
                lambda: np.asarray(shard.view),
            ]
            for look in looks:
                with pytest.raises(stf.NotSupported, match=LOOK):
                    look()
            assert not hasattr(view, "__array_interface__")
            assert view.__cuda_array_interface__["data"] == (t.get_arg(0), False)
            shard.run(add, shard.view, 1)
        assert (ctx.wait(data)[:2048] == 2).all()


def test_data_of_a_host_task_can_be_looked_at(ctx):
    data = ctx.logical_data(np.ones(4))
    with ctx.task(HOST, data.rw()) as t:
        assert (np.asarray(t.get_arg_cai(0)) == 1).all()
        t.run(add, t.get_arg_cai(0), 1)
        assert (t.numpy(0) == 2).all()
    assert (ctx.wait(data) == 2).all()


def test_views_are_arrays_when_functions_run(tiny):
    seen = []
    with stf.context(use_graph=True) as ctx:
        a, b = ctx.logical_data(np.arange(6.0).reshape(2, 3)), ctx.logical_data(np.ones(3, "i4"))
        with ctx.task(on(0), a.read(), b.rw()) as t:
            t.run(
                lambda *args: seen.append(
                    [(type(one), one.tolist(), one.flags.writeable) for one in args[:2]]
                ),
                *t.args_cai(),
                "other",
            )
        assert seen == []
        ctx.wait(b)
    assert seen == [[(np.ndarray, [[0, 1, 2], [3, 4, 5]], False), (np.ndarray, [1, 1, 1], True)]]


# ---- Open tasks ------------------------------------------------------------------------------------------


def host_task(ctx, data):
    ctx.task(HOST, data.rw()).start()


@pytest.mark.parametrize(
    ("flush", "text"),
    [
        (lambda ctx, data: ctx.wait(data), OPEN),
        (host_task, OPEN),
        (lambda ctx, _: ctx.fence(), r"fence\(\) while 1 task"),
        (lambda ctx, _: ctx.finalize(), r"finalize\(\) while 1 task"),
    ],
    ids=["wait", "host task", "fence", "finalize"],
)
@pytest.mark.parametrize("where", ["device", "host"])
def test_nothing_is_launched_while_a_task_is_open(machine, flush, text, where):
    source = np.zeros(4)
    with stf.context(use_graph=True) as ctx:
        data, other = ctx.logical_data(source), ctx.logical_data_full(4, 5.0, exec_place=on(0))
        ctx.host_launch(data.rw(), fn=add, args=(1,))
        with ctx.task(HOST if where == "host" else on(0), data.rw()):
            for _ in range(2):
                with pytest.raises(stf.TaskStateError, match=text):
                    flush(ctx, other)
            ctx.host_launch(other.rw(), fn=add, args=(1,))
        assert not ctx.closed
        assert (ctx.wait(other) == 6).all() and (ctx.wait(data) == 1).all()
        with ctx.task(HOST, other.rw(), data.rw()) as t:
            t.numpy(1)[:] += t.numpy(0)
    assert (source == 7).all()


def test_what_a_refused_host_task_asked_for_is_free_again(tiny):
    with stf.context(use_graph=True) as ctx:
        a, b = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
        added(ctx, on(0), b, 1)
        with ctx.task(on(0), a.rw()) as t:
            with pytest.raises(stf.TaskStateError):
                ctx.task(HOST, b.rw()).start()
            added(ctx, on(1), b, 1)
            t.run(add, t.get_arg_cai(0), 1)
        added(ctx, on(0), b, 1)
        assert (ctx.wait(b) == 3).all() and (ctx.wait(a) == 1).all()


def test_several_tasks_may_be_open(tiny):
    with stf.context(use_graph=True) as ctx:
        data = [ctx.logical_data(np.zeros(4)) for _ in range(3)]
        tasks = [ctx.task(on(k % 2), one.rw()).start() for k, one in enumerate(data)]
        for k, t in enumerate(tasks):
            t.run(add, t.get_arg_cai(0), k)
        for t in tasks:
            t.end()
        assert [ctx.wait(one)[0] for one in data] == [0, 1, 2]


# ---- Failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [on(0), HOST], ids=["device", "host"])
def test_a_body_that_raises_poisons_what_it_was_to_write(machine, place):
    source, other = np.zeros(4), np.ones(4)
    with stf.context(use_graph=True) as ctx:
        data, read = ctx.logical_data(source, name="u"), ctx.logical_data(other)
        ctx.host_launch(data.rw(), read.rw(), fn=lambda a, b: (add(a, 1), add(b, 1)))
        with pytest.raises(ZeroDivisionError), ctx.task(place, data.rw(), read.read(), symbol="bad"):
            1 / 0  # noqa: B018
        with pytest.raises(stf.PoisonedData, match="'u' has no usable value, because task 'bad' failed"):
            ctx.wait(data)
        for reader in (on(0), HOST):
            with pytest.raises(stf.PoisonedData):
                ctx.task(reader, data.read()).start()
        assert (ctx.wait(read) == 2).all()
        ctx.host_launch(data.write(), fn=lambda array: array.fill(8))
    assert (source == 8).all() and (other == 2).all()


def by_host_task(ctx, data):
    with ctx.task(HOST, data.read()):
        pass
    ctx.check_errors()


@pytest.mark.parametrize(
    "blocking",
    [lambda ctx, data: ctx.wait(data), by_host_task, lambda ctx, _: ctx.finalize()],
    ids=["wait", "host task", "finalize"],
)
def test_a_function_that_raises_is_reported_by_what_waits(tiny, blocking):
    source, seen = np.zeros(4), []
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(source)
        with ctx.task(on(0), data.rw()) as t:
            t.run(lambda array: 1 / 0, t.get_arg_cai(0))
        ctx.host_launch(data.read(), fn=seen.append, args=())
        ctx.host_launch(fn=lambda: [].pop())
        with pytest.raises((ZeroDivisionError, IndexError)):
            blocking(ctx, data)
        with pytest.raises((ZeroDivisionError, IndexError)):
            ctx.check_errors()
        ctx.check_errors()
        assert len(seen) == 1


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("kind", ["copy", "launch", "host_function", "allocation", "event"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_failure_is_told_as_what_it_is(tiny, kind, nth, use_graph):
    told = []
    ctx = stf.context(use_graph=use_graph)
    data = ctx.logical_data(np.ones(4), name="ones")
    tiny.fail(kind, nth, "failed")

    def steps():
        added(ctx, on(0), data, 1)
        ctx.host_launch(data.rw(), fn=add, args=(1,))
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] += 1

    for step in [steps, steps, steps, lambda: ctx.wait(data), ctx.finalize, ctx.finalize]:
        try:
            step()
        except stf.PoisonedData:
            pass
        except stf.DriverError as error:
            told.append(str(error))
    assert ctx.closed and tiny.live_allocations == 0
    assert [text for text in told if "an ordered fault" not in text] == []


def test_a_host_task_whose_graph_failed_leaves_nothing_in_use(tiny):
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(np.ones(4))
        added(ctx, on(0), data, 1)
        tiny.fail("copy", 1, "failed")
        with pytest.raises(stf.DriverError, match="a copy of 32 bytes failed"):
            ctx.task(HOST, data.rw()).start()
        big = [ctx.logical_data_full(3 << 20, 1.0, exec_place=on(0)) for _ in range(4)]  # evicts the rest
        assert all((ctx.wait(one) == 1).all() for one in big)


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("how", ["wait", "host task", "fence"])
def test_a_lost_device_lists_what_was_not_written_back(tiny, use_graph, how):
    ctx = stf.context(use_graph=use_graph)
    away = ctx.logical_data(np.zeros(4), name="away")
    ctx.logical_data(np.zeros(4), name="unused")
    added(ctx, on(1), away, 7)
    tiny.fail("copy", 1, "device_lost")
    if how == "fence":
        ctx.fence()
    else:
        with pytest.raises(stf.DeviceLost):
            ctx.wait(away) if how == "wait" else ctx.task(HOST, away.rw()).start()
    with pytest.raises(stf.DeviceLost, match="not written back: .*'away'"):
        ctx.finalize()
    assert ctx.closed


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("how", ["wait", "host task", "finalize"])
def test_an_interrupt_ends_what_waits_and_it_can_be_repeated(tiny, how, use_graph):
    source, seen = np.zeros(3), []

    def slow(array):
        array += 1
        seen.append(1)
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)  # ends this function, and the wait that ran it

    ctx = stf.context(use_graph=use_graph)
    data = ctx.logical_data(source)
    for _ in range(4):
        ctx.host_launch(data.rw(), fn=slow)

    def wait():
        if how == "wait":
            assert (ctx.wait(data) == 4).all()
        elif how == "finalize":
            ctx.finalize()
        else:
            with ctx.task(HOST, data.rw()) as t:
                assert (t.numpy(0) == 4).all()

    interrupts = told = 0
    for _ in range(6):
        try:
            wait()
            break
        except KeyboardInterrupt:
            interrupts += 1
        except stf.StfError as error:
            assert "was interrupted" in str(error)
            told += 1
    assert interrupts == 1 and told <= 1
    for _ in range(2):
        with suppress(stf.StfError):  # told at the last when nobody was before
            ctx.finalize()
    assert ctx.closed and (source == 4).all() and len(seen) == 4


# ---- A caller's stream -----------------------------------------------------------------------------------


def test_a_callers_stream_is_joined(machine):
    stream = on(0).pick_stream(resource := stf.exec_place_resources())
    array = stf.DeviceArray.from_host(np.zeros(4), data_place.device(0), stream)
    seen = []
    ctx = stf.context(use_graph=True, stream=stream)
    data = ctx.logical_data(array)
    ctx.host_launch(data.rw(), fn=add, args=(3,))
    ctx.host_launch(data.read(), fn=lambda one: seen.append(one.sum()))
    ctx.finalize()
    assert ctx.closed and (seen == [] or not machine.simulated)
    later = array.copy_to_host()
    assert np.array_equal(later, np.full(4, 3.0)) and seen == [12.0]
    ctx.check_errors()
    del data, array, resource


def test_work_comes_behind_what_is_on_the_callers_stream(tiny):
    stream = on(1).pick_stream(resource := stf.exec_place_resources())
    for number in range(5):
        array = stf.DeviceArray.from_host(np.full(1000, float(number)), data_place.device(1), stream)
        with stf.context(use_graph=True, stream=stream) as ctx:
            data = ctx.logical_data(array)
            added(ctx, on(0), data, 1)
            added(ctx, on(1), data, 1)
            if number % 2:
                with ctx.task(HOST, data.rw()) as t:
                    t.numpy(0)[:] += 1
            added(ctx, on(1), data, 1)
        assert (array.copy_to_host() == number + 3 + number % 2).all()
    del array, data, resource


# ---- Executables -----------------------------------------------------------------------------------------


def program(handle, number, steps=4):
    with stf.context(use_graph=True, handle=handle) as ctx:
        data = ctx.logical_data_full(4, 0.0)
        for _ in range(steps):
            ctx.host_launch(data.rw(), fn=add, args=(number,))
            with ctx.task(on(0), data.rw()):
                pass
        assert (ctx.wait(data) == number * steps).all()
    return ctx.stats.graphs_launched, ctx.stats.graphs_instantiated


def test_contexts_with_one_handle_share_executables(machine):
    handle = stf.async_resources()
    counts = [program(handle, number) for number in range(1, 6)]
    assert all(launched == 1 for launched, _ in counts)
    assert counts[0][1] == 1 and sum(made for _, made in counts) < 5


def test_executables_go_with_their_handle(tiny):
    handle = stf.async_resources()
    program(handle, 1)
    assert raw_graphs.live_graphs(tiny._driver) == 1
    del handle
    gc.collect()
    assert raw_graphs.live_graphs(tiny._driver) == 0


def test_contexts_with_run_leave_no_graphs(tiny):
    """The functions of an executable hold data, whose context holds the executable."""
    for _ in range(5):
        with stf.context(use_graph=True) as ctx:
            data = ctx.logical_data(np.zeros(4))
            added(ctx, on(0), data, 1)
    del ctx, data
    stf.context().finalize()
    gc.collect()
    assert raw_graphs.live_graphs(tiny._driver) == 0


# ---- Several at once -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_contexts_are_interleaved(machine, shared):
    handle = stf.async_resources() if shared else None
    sources = [np.zeros(100) for _ in range(3)]
    kinds = (True, False, True)
    contexts = [stf.context(use_graph=kind, handle=handle) for kind in kinds]
    data = [ctx.logical_data(source) for ctx, source in zip(contexts, sources, strict=True)]
    for turn in range(4):
        for k, (ctx, one) in enumerate(zip(contexts, data, strict=True)):
            with ctx.task(on(turn % machine.device_count), one.rw()):
                pass
            ctx.host_launch(one.rw(), fn=add, args=(k + 1,))
            if turn == k:
                assert (ctx.wait(one) == (turn + 1) * (k + 1)).all()
    tasks = [ctx.task(on(0), one.rw()).start() for ctx, one in zip(contexts, data, strict=True)]
    for t in tasks:
        t.end()
    for ctx in reversed(contexts):
        ctx.finalize()
    assert [source.tolist() for source in sources] == [[4.0] * 100, [8.0] * 100, [12.0] * 100]


def test_a_context_with_graphs_inside_a_task_of_another(tiny):
    with stf.context() as outer, stf.context(use_graph=True) as inner:
        a, b = outer.logical_data(np.zeros(4)), inner.logical_data(np.zeros(4))
        with outer.task(on(0), a.rw()) as t:
            added(inner, on(0), b, 2)
            assert (inner.wait(b) == 2).all()
            t.run(add, t.get_arg_cai(0), 1)
        assert (outer.wait(a) == 1).all()


def test_threads_have_their_own_graphs(machine):
    handle, failures = stf.async_resources(), []

    def work(number):
        try:
            for _ in range(4):
                program(handle, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_slow_function_beside_a_thread_that_submits(machine):
    """Field case 16: the GIL and the driver's lock."""
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data_zeros(4)
        stop, turns = threading.Event(), []

        def submit():
            while not stop.is_set():
                program(None, 1, steps=1)
                turns.append(1)

        thread = threading.Thread(target=submit)
        thread.start()
        for _ in range(5):
            ctx.host_launch(data.rw(), fn=lambda array: (time.sleep(0.05), add(array, 1)))
            ctx.wait(data)
        stop.set()
        thread.join(30)
        assert not thread.is_alive() and turns
        assert (ctx.wait(data) == 5).all()


@pytest.mark.filterwarnings("ignore:a context was dropped")
def test_a_dropped_context_writes_back(machine):
    source = np.zeros(4)
    ctx = stf.context(use_graph=True)
    data = ctx.logical_data(source)
    ctx.host_launch(data.rw(), fn=add, args=(4,))
    del data, ctx
    gc.collect()
    assert (source == 4).all()
