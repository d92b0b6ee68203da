"""Contexts: construction, waiting, ending, reports."""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

import stf_places as stf

pytestmark = pytest.mark.usefixtures("machine")

HOST = stf.exec_place.host()


@pytest.fixture
def ctx(machine):
    with stf.context() as made:
        yield made


# ---- Construction ----------------------------------------------------------------------------------------


def test_arguments_are_checked(machine):
    with pytest.raises(TypeError, match="handle is an async_resources: got int"):
        stf.context(handle=3)
    with pytest.raises(TypeError, match="a stream is"):
        stf.context(stream="stream")
    with pytest.raises(TypeError):
        stf.context(colour="red")


def test_contexts_share_streams_through_a_handle(machine):
    handle = stf.async_resources()
    streams = []
    for _ in range(2):
        with stf.context(handle=handle) as ctx:
            assert ctx.place_resources is handle
            with ctx.task() as t:
                streams.append(t.stream_ptr())
    assert streams[0] == streams[1]
    assert stf.exec_place.device(0).pick_stream(handle)


def test_borrowed_resources_end_with_the_context(machine):
    with stf.context() as ctx:
        resources = ctx.place_resources
        assert isinstance(stf.exec_place.device(0).pick_stream(resources), stf.CudaStream)
    with pytest.raises(ValueError, match="released with their context"):
        stf.exec_place.device(0).pick_stream(resources)
    with pytest.raises(stf.ContextClosed):
        ctx.place_resources  # noqa: B018


def test_repr_tells_machine_and_state(machine):
    ctx = stf.context()
    assert repr(ctx).startswith("<context on ") and repr(ctx).endswith(", open>")
    ctx.finalize()
    assert repr(ctx).endswith(", closed>")


# ---- Waiting ---------------------------------------------------------------------------------------------


def test_wait_returns_copies(ctx):
    source = np.arange(3.0)
    data = ctx.logical_data(source)
    first, second = ctx.wait(data), ctx.wait(data)
    first[:] = 9
    assert np.array_equal(second, source) and np.array_equal(ctx.wait(data), [0, 1, 2])
    assert ctx.wait(ctx.logical_data_full((), 3)).shape == ()


def test_wait_is_checked(ctx):
    with pytest.raises(TypeError, match=r"wait\(\) takes logical data: got ndarray"):
        ctx.wait(np.ones(2))
    data = ctx.logical_data_zeros(2)
    with (
        stf.context() as other,
        pytest.raises(stf.WrongContext, match="belongs to another context: call wait"),
    ):
        other.wait(data)
    with pytest.raises(stf.TaskStateError, match="wait for 'u' before anything wrote it"):
        ctx.wait(ctx.logical_data_empty(2, name="u"))


def test_fence_is_a_stream(ctx):
    with ctx.task(ctx.logical_data_zeros(4).rw()):
        with pytest.raises(stf.TaskStateError, match=r"fence\(\) while 1 task"):
            ctx.fence()
    assert type(ctx.fence()) is int and ctx.fence() != 0


# ---- Ending ----------------------------------------------------------------------------------------------


def test_finalize_can_be_repeated_and_closes_everything(machine):
    ctx = stf.context()
    data, task = ctx.logical_data_zeros(2), ctx.task()
    ctx.finalize()
    ctx.finalize()
    assert ctx.closed
    uses = [
        lambda: ctx.logical_data(np.ones(2)),
        lambda: ctx.logical_data_empty(2),
        lambda: ctx.logical_data_full(2, 1),
        lambda: ctx.logical_data_zeros(2),
        lambda: ctx.logical_data_ones(2),
        lambda: ctx.token(),
        lambda: ctx.task(data.read()),
        lambda: ctx.host_launch(fn=print),
        lambda: ctx.wait(data),
        lambda: ctx.fence(),
        lambda: task.start(),
        lambda: ctx.__enter__(),
    ]
    for use in uses:
        with pytest.raises(stf.ContextClosed, match="was finalized: make a new one"):
            use()
    ctx.check_errors()


def test_open_tasks_keep_a_context_open(machine):
    source = np.zeros(2)
    ctx = stf.context()
    t = ctx.task(HOST, ctx.logical_data(source).rw()).start()
    with pytest.raises(stf.TaskStateError, match=r"finalize\(\) while 1 task\(s\) of this context are open"):
        ctx.finalize()
    assert not ctx.closed
    t.numpy(0)[:] = 1
    t.end()
    ctx.finalize()
    assert np.array_equal(source, [1, 1])


def test_the_bodys_exception_is_what_propagates(machine):
    source = np.zeros(2)
    with pytest.raises(ZeroDivisionError) as caught, stf.context() as ctx:
        data = ctx.logical_data(source)
        with ctx.task(HOST, data.write()) as t:
            t.numpy(0)[:] = 5
        t = ctx.task().start()
        1 / 0  # noqa: B018
    assert "finalize() while 1 task(s)" in str(caught.value.__context__)
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__[0].startswith("finalizing the context failed, too: TaskStateError")
    t.end()
    ctx.finalize()
    assert np.array_equal(source, [5, 5])


def test_values_go_back_when_the_body_raises(machine):
    source = np.zeros(2)
    with pytest.raises(KeyError), stf.context() as ctx:
        with ctx.task(HOST, ctx.logical_data(source).write()) as t:
            t.numpy(0)[:] = 5
        raise KeyError
    assert np.array_equal(source, [5, 5])


def test_poisoned_data_is_not_written_back(machine):
    source = np.zeros(2)
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        with pytest.raises(KeyError), ctx.task(stf.exec_place.device(0), data.rw()):
            raise KeyError
    assert np.array_equal(source, [0, 0])


def test_a_forgotten_context_is_finalized_with_a_warning(machine):
    source = np.zeros(2)
    ctx = stf.context()
    with ctx.task(HOST, ctx.logical_data(source).write()) as t:
        t.numpy(0)[:] = 5
    with pytest.warns(
        ResourceWarning, match="dropped without finalize.*written back now. Use `with stf.context"
    ):
        del ctx, t
        gc.collect()
    assert np.array_equal(source, [5, 5])


def test_a_forgotten_context_with_an_open_task(machine):
    ctx = stf.context()
    t = ctx.task(symbol="open").start()
    with pytest.warns(
        ResourceWarning, match=r"finalizing it now failed: TaskStateError: finalize\(\) while 1 task"
    ):
        del ctx
        gc.collect()
    t.end()


def test_a_context_forgotten_in_a_cycle(machine):
    class Holder:
        pass

    source = np.zeros(2)
    holder = Holder()
    holder.ctx, holder.self = stf.context(), holder
    holder.data = holder.ctx.logical_data(source)
    with holder.ctx.task(HOST, holder.data.write()) as t:
        t.numpy(0)[:] = 5
    del t
    with pytest.warns(ResourceWarning, match="dropped without finalize"):
        del holder
        gc.collect()
    assert np.array_equal(source, [5, 5])


# ---- A caller's stream -----------------------------------------------------------------------------------


def test_a_callers_stream_is_joined(machine):
    resources = stf.exec_place_resources()
    stream = stf.exec_place.device(0).pick_stream(resources)
    array = stf.DeviceArray.from_host(np.zeros(4), stf.data_place.device(0), stream)
    seen = []
    ctx = stf.context(stream=stream)
    data = ctx.logical_data(array)
    with ctx.task(HOST, data.rw()) as t:
        t.numpy(0)[:] = 3
    ctx.host_launch(data.read(), fn=lambda one: seen.append(one.sum()))
    ctx.host_launch(data.read(), fn=lambda one: 1 / 0)
    ctx.finalize()
    assert ctx.closed
    del data, t
    assert np.array_equal(array.copy_to_host(), np.full(4, 3.0))
    assert seen == [12.0]
    with pytest.raises(ZeroDivisionError):
        ctx.check_errors()
    del array  # before the streams go with `resources`


def test_sources_live_until_the_callers_stream_is_done(machine):
    import weakref

    class Kept(np.ndarray):
        pass

    resources = stf.exec_place_resources()
    stream = stf.exec_place.device(0).pick_stream(resources)
    source = np.zeros(1000).view(Kept)
    watch = weakref.ref(source)
    ctx = stf.context(stream=stream)
    data = ctx.logical_data(source)
    with ctx.task(stf.exec_place.device(0), data.rw()):
        pass
    del source, data
    ctx.finalize()
    del ctx
    gc.collect()
    stf.DeviceArray(1, "f8", stf.data_place.device(0), stream).copy_to_host()  # waits for the stream
    stf.context().finalize()  # gives back what callbacks have left
    gc.collect()
    assert watch() is None


# ---- Threads and signals ---------------------------------------------------------------------------------


def test_contexts_of_different_threads_do_not_disturb_each_other(machine):
    failures = []

    def program(number):
        try:
            for _ in range(5):
                with stf.context() as ctx:
                    data = ctx.logical_data_full(100, float(number))
                    for _ in range(10):
                        with ctx.task(HOST, data.rw()) as t:
                            t.numpy(0)[:] += 1
                    assert (ctx.wait(data) == number + 10).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=program, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_context_with_an_open_task_belongs_to_its_thread(ctx):
    failures = []

    def other():
        try:
            ctx.token()
        except stf.TaskStateError as error:
            failures.append(str(error))

    with ctx.task():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(failures) == 1 and "open in another thread" in failures[0]


# ---- Reports ---------------------------------------------------------------------------------------------


def test_statistics_count(ctx):
    before = ctx.stats
    data = ctx.logical_data(np.zeros(1000))
    with ctx.task(stf.exec_place.device(0), data.rw()):
        pass
    after = ctx.stats
    assert isinstance(after, stf.ContextStatistics)
    assert (after.tasks - before.tasks, after.copies, after.bytes_copied) == (1, 1, 8000)
    by_place = {one.place: one for one in after.places}
    assert by_place["device(0)"].tasks == 1 and by_place["device(0)"].bytes_in == 8000
    assert by_place["host()"].bytes_out == 8000


def test_a_chain_on_one_place_needs_no_events(ctx):
    data = ctx.logical_data_zeros(10)
    for _ in range(20):
        with ctx.task(stf.exec_place.device(0), data.rw()):
            pass
    stats = ctx.stats
    assert (stats.tasks, stats.waits) == (20, 0) or (stats.tasks, stats.waits) == (21, 0)
    assert stats.events_recorded == 0


def test_traces_tell_what_ran_when(machine):
    with stf.context(trace=True) as ctx:
        data = ctx.logical_data(np.zeros(1000), name="u")
        with ctx.task(stf.exec_place.device(0), data.rw(), symbol="work", cost=10.0):
            pass
    records = ctx.trace
    assert all(isinstance(one, stf.TraceRecord) and one.end_us >= one.start_us for one in records)
    work = [one for one in records if one.kind == "task" and one.symbol == "work"]
    assert [one.place for one in work] == ["device(0)"]
    copies = [one for one in records if one.kind == "copy"]
    assert {one.place for one in copies} == {"host() -> device(0)", "device(0) -> host()"}
    assert all(one.nbytes == 8000 for one in copies)


def test_no_trace_unless_asked_for(ctx):
    with pytest.raises(ValueError, match=r"does not trace: make it with context\(trace=True\)"):
        ctx.trace  # noqa: B018


# ---- The package -----------------------------------------------------------------------------------------


def test_every_public_name_exists():
    for name in stf.__all__:
        assert hasattr(stf, name)
    assert len(stf.__all__) == len(set(stf.__all__))


def test_import_is_light():
    program = (
        "import sys, stf_places\n"
        "from stf_places._native import runtime\n"
        "assert runtime.current_or_none() is None\n"
        "print([name for name in ('warp', 'torch', 'numba', 'cupy', 'cuda', 'matplotlib') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"
