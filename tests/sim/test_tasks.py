"""Tasks: arguments, places, streams, states, failures."""

import gc
import sys

import numpy as np
import pytest

import stf_places as stf

pytestmark = pytest.mark.usefixtures("machine")

HOST = stf.exec_place.host()


@pytest.fixture
def ctx(machine):
    with stf.context() as made:
        yield made


@pytest.fixture
def cpu_memory(machine):
    if not machine.simulated:
        pytest.skip("needs a machine whose device memory the CPU can use")


# ---- Arguments -------------------------------------------------------------------------------------------


def test_arguments_have_memory_while_the_task_is_open(ctx):
    a, b = ctx.logical_data_full((2, 3), 1.0), ctx.logical_data_empty((2, 3), "f4")
    with ctx.task(a.read(), ctx.token().rw(), b.write()) as t:
        assert len(t) == 3 and t
        assert t.get_arg(0) != t.get_arg(2) and t.get_arg(np.int64(0)) == t.get_arg(0) > 0
        view = t.get_arg_cai(2)
        assert (view.ptr, view.shape, view.dtype, view.nbytes) == (t.get_arg(2), (2, 3), np.dtype("f4"), 24)
        assert view.__cuda_array_interface__ == {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (view.ptr, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }
        assert [one.readonly for one in t.args_cai()] == [True, False]
        assert [t.readonly(i) for i in range(3)] == [True, False, False]
        assert (t.index(a), t.index(b)) == (0, 2)
        with pytest.raises(ValueError, match="is no dependency of task"):
            t.index(ctx.token())


def test_args_cai_has_three_shapes(ctx):
    token, data = ctx.token(), ctx.logical_data_zeros(2)
    with ctx.task(token.read()) as t:
        assert t.args_cai() is None
    with ctx.task(token.read(), data.read()) as t:
        assert isinstance(t.args_cai(), stf.stf_cai)
    with ctx.task(data.read(), data.read()) as t:
        assert len(t.args_cai()) == 2


def test_structured_elements_are_described(ctx):
    dtype = np.dtype([("a", "f4"), ("b", "i4")])
    data = ctx.logical_data(np.zeros(2, dtype))
    with ctx.task(data.read()) as t:
        assert t.args_cai().__cuda_array_interface__["descr"] == dtype.descr


@pytest.mark.parametrize("name", ["get_arg", "get_arg_cai", "numpy"])
def test_accessors_say_what_is_wrong(ctx, name):
    data, token = ctx.logical_data_zeros(2), ctx.token()
    t = ctx.task(HOST, data.read(), token.read(), symbol="look")
    access = getattr(t, name)
    with pytest.raises(stf.TaskStateError, match=rf"{name}\(\) belongs inside the task's body: .*is created"):
        access(0)
    with t:
        access(0)
        with pytest.raises(TypeError, match=rf"argument 1 of task 'look' is a token.*{name}\(\) needs"):
            access(1)
        for index in (2, -1):
            with pytest.raises(
                IndexError, match=rf"argument {index} of task 'look' with 2 argument\(s\): use 0 to 1"
            ):
                access(index)
        with pytest.raises(TypeError):
            access("0")
    with pytest.raises(stf.TaskStateError, match="task 'look' is ended"):
        access(0)


def test_no_arguments_at_all(ctx):
    with ctx.task() as t, pytest.raises(IndexError, match="it has none"):
        t.get_arg(0)


def test_numpy_views_on_the_host(ctx):
    data = ctx.logical_data(np.arange(6.0).reshape(2, 3))
    with ctx.task(HOST, data.read(), data.read()) as t:
        view = t.numpy(0)
        assert np.array_equal(view, np.arange(6.0).reshape(2, 3)) and not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0] = 1
        assert np.array_equal(np.asarray(t.get_arg_cai(1)), view)
        assert np.shares_memory(np.asarray(t.get_arg_cai(1)), view)
        assert t.get_arg_cai(1).__array__("f4").dtype == np.dtype("f4")
        assert not np.shares_memory(t.get_arg_cai(1).__array__(copy=True), view)
        with pytest.raises(ValueError, match="cannot change dtype float64 to float32"):
            t.get_arg_cai(1).__array__("f4", copy=False)


def test_numpy_views_on_a_device(ctx, machine):
    data = ctx.logical_data(np.arange(3.0))
    with ctx.task(stf.exec_place.device(0), data.rw()) as t:
        if machine.simulated:
            t.numpy(0)[:] += 1
            assert np.array_equal(np.asarray(t.args_cai()), [1, 2, 3])
            return
        with pytest.raises(stf.NotSupported, match=r"NumPy reads host memory only, and argument 0"):
            t.numpy(0)
        with pytest.raises(stf.NotSupported, match="NumPy reads host memory only"):
            np.asarray(t.args_cai())
        assert not hasattr(t.args_cai(), "__array_interface__")


@pytest.mark.parametrize("dtype", ["?", "f2", "c16", "M8[s]", "S3", [("a", "i4")]])
@pytest.mark.parametrize("shape", [(), (0,), (2, 2)])
def test_views_of_all_types_and_shapes(ctx, dtype, shape):
    data = ctx.logical_data_empty(shape, dtype)
    with ctx.task(HOST, data.write()) as t:
        view = t.numpy(0)
        assert view.dtype == np.dtype(dtype) and view.shape == shape
        view[...] = np.zeros(shape, dtype)
    assert np.array_equal(ctx.wait(data), np.zeros(shape, dtype))


def test_a_view_keeps_its_data(ctx, cpu_memory):
    data = ctx.logical_data_full(1000, 3.0)
    with ctx.task(HOST, data.read()) as t:
        view = t.numpy(0)
    del data, t
    gc.collect()
    for _ in range(4):
        ctx.wait(ctx.logical_data_zeros(1000))
    assert (view == 3.0).all()


def test_a_machine_without_bytes_has_no_views(machine):
    with stf.use_machine("sim:h200x2", execute=False), stf.context() as ctx:
        data = ctx.logical_data_zeros(4)
        with ctx.task(data.rw()) as t:
            assert t.get_arg(0)
            with pytest.raises(stf.NotSupported, match="moves no bytes"):
                t.numpy(0)
            t.run(lambda: pytest.fail("bodies do not run"))


# ---- Order -----------------------------------------------------------------------------------------------


def test_tasks_see_what_earlier_tasks_wrote(ctx):
    a, b = ctx.logical_data(np.arange(4.0)), ctx.logical_data_empty(4)
    for _ in range(3):
        with ctx.task(HOST, a.read(), b.write()) as t:
            t.numpy(1)[:] = t.numpy(0) + 1
        a, b = b, a
    assert np.array_equal(ctx.wait(a), np.arange(4.0) + 3)


def test_values_travel_between_places(ctx, cpu_memory):
    data = ctx.logical_data(np.zeros(4))
    for place in (stf.exec_place.device(0), HOST, stf.exec_place.device(1), stf.exec_place.device(0)):
        with ctx.task(place, data.rw()) as t:
            t.numpy(0)[:] += 1
    assert np.array_equal(ctx.wait(data), np.full(4, 4.0))


def test_work_put_on_the_stream_runs_in_order(ctx):
    seen = []
    data = ctx.logical_data_zeros(3)
    with ctx.task(HOST, data.rw()) as t:
        t.run(seen.append, 0)
    with ctx.task(data.rw()) as t:
        t.run(seen.append, 1)
        t.run(seen.append, 2)
    ctx.wait(data)
    assert seen == [0, 1, 2]


def test_work_on_a_simulated_stream_is_not_run_at_once(ctx, cpu_memory):
    data = ctx.logical_data_full(3, 1.0)
    with ctx.task(data.rw()) as t:
        view = t.numpy(0)
        t.run(np.multiply, view, 3.0, view)
        assert view[0] == 1.0
    assert np.array_equal(ctx.wait(data), np.full(3, 3.0))


def test_exceptions_of_deferred_work_are_raised_by_the_next_blocking_call(ctx, cpu_memory):
    data = ctx.logical_data_zeros(3)
    with ctx.task(data.rw(), symbol="bad") as t:
        t.run(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ctx.wait(data)
    assert np.array_equal(ctx.wait(data), np.zeros(3))


def test_run_on_the_host_raises_at_once(ctx):
    data = ctx.logical_data_zeros(3)
    with pytest.raises(ZeroDivisionError), ctx.task(HOST, data.rw()) as t:
        t.run(lambda: 1 / 0)


def test_run_needs_a_function_and_an_open_task(ctx):
    t = ctx.task(HOST)
    with pytest.raises(stf.TaskStateError, match=r"run\(\) belongs inside"):
        t.run(print)
    with t, pytest.raises(TypeError, match=r"run\(\) takes a function and its arguments: got int"):
        t.run(3)


# ---- Places and streams ----------------------------------------------------------------------------------


def test_a_task_without_a_place_runs_on_the_current_device(ctx):
    t = ctx.task()
    assert t.exec_place is None
    with t:
        assert t.exec_place == stf.exec_place.current_device() == stf.exec_place.device(0)
        assert t.get_grid_dims() is None and t.get_stream_ptrs() == [t.stream_ptr()]


def test_places_and_names_can_be_set_before_the_start(ctx):
    t = ctx.task(stf.exec_place.device(0), symbol="first")
    assert t.symbol == "first"
    t.set_symbol("second")
    t.set_exec_place(HOST)
    with t:
        assert (t.exec_place, t.symbol) == (HOST, "second")
        with pytest.raises(
            stf.TaskStateError, match=r"set_symbol\(\) belongs before .* task 'second' is open"
        ):
            t.set_symbol("third")
        with pytest.raises(stf.TaskStateError, match=r"set_exec_place\(\) belongs before"):
            t.set_exec_place(HOST)
    assert ctx.task().symbol is None
    with pytest.raises(TypeError, match="names are strings: got int"):
        ctx.task(symbol=3)
    with pytest.raises(TypeError, match="place"):
        ctx.task().set_exec_place(0)


def test_a_place_may_stand_anywhere_among_the_dependencies(ctx):
    a, b = ctx.logical_data_full(2, 1.0), ctx.logical_data_full(3, 2.0)
    for arguments in ([HOST, a.read(), b.read()], [a.read(), HOST, b.read()], [a.read(), b.read(), HOST]):
        with ctx.task(*arguments) as t:
            assert t.exec_place == HOST
            assert [len(t.numpy(i)) for i in (0, 1)] == [2, 3]


def test_a_data_place_of_a_dependency_is_used(ctx, machine):
    data = ctx.logical_data(np.arange(3.0))
    with ctx.task(stf.exec_place.device(0), data.read(stf.data_place.host())) as t:
        assert np.array_equal(t.numpy(0), np.arange(3.0))


def test_an_affine_data_place_is_used(ctx, machine):
    place = stf.exec_place.device(0)
    place.set_affine_data_place(stf.data_place.host())
    data = ctx.logical_data(np.arange(3.0))
    with ctx.task(place, data.read()) as t:
        address = t.get_arg(0)
    with ctx.task(HOST, data.read()) as t:
        assert t.get_arg(0) == address
    t = ctx.task(place, data.read())
    t.set_exec_place(stf.exec_place.device(0))
    with t:
        assert t.get_arg(0) != address


def test_grid_tasks_have_a_stream_a_place(ctx, machine):
    grid = stf.exec_place_grid.create([stf.exec_place.device(0)] * 4, (2, 2))
    data = ctx.logical_data_zeros(4)
    with ctx.task(grid, data.read(stf.data_place.device(0))) as t:
        assert t.get_grid_dims() == (2, 2, 1, 1)
        streams = t.get_stream_ptrs()
        assert len(streams) == len(set(streams)) == 4
        assert [t.get_stream_at_index(i) for i in range(4)] == streams and streams[0] == t.stream_ptr()
        assert isinstance(streams[0], stf.CudaStream)
        for index in (4, -1):
            with pytest.raises(
                IndexError, match=rf"place index {index} of a task on 4 place\(s\): use 0 to 3"
            ):
                t.get_stream_at_index(index)
    with pytest.raises(stf.TaskStateError):
        t.get_stream_at_index(0)


def test_grids_over_several_devices_need_a_data_place(ctx, machine):
    if machine.device_count < 2:
        pytest.skip("needs two devices")
    grid = stf.exec_place_grid.machine()
    data = ctx.logical_data_zeros(4)
    with pytest.raises(ValueError, match="give dplace= with the dependency, or call set_affine_data_place"):
        ctx.task(grid, data.read()).start()
    grid.set_affine_data_place(stf.data_place.device(0))
    with ctx.task(grid, data.read()) as t:
        assert t.get_arg(0)


@pytest.mark.parametrize("name", ["stream_ptr", "get_stream_ptrs", "args_cai"])
def test_streams_need_an_open_task(ctx, name):
    with pytest.raises(
        stf.TaskStateError, match=rf"{name}\(\) belongs inside the task's body: task is created"
    ):
        getattr(ctx.task(), name)()


def test_simulated_streams_are_not_for_cuda(ctx, cpu_memory):
    with ctx.task() as t, pytest.raises(stf.NotSupported):
        t.stream_ptr().__cuda_stream__()


def test_unknown_devices_are_named(ctx):
    with pytest.raises(stf.InvalidDevice, match="99"):
        ctx.task(stf.exec_place.device(99)).start()


# ---- What task() takes -----------------------------------------------------------------------------------


def test_wrong_arguments_are_explained(ctx):
    data = ctx.logical_data_zeros(2, name="u")
    with pytest.raises(TypeError, match=r"how data is used: got logical_data\(.*'u'\); pass data\.read\(\)"):
        ctx.task(data)
    with pytest.raises(
        TypeError, match=r"task\(\) takes dependencies .* and at most one exec_place: got int"
    ):
        ctx.task(data.read(), 3)
    with pytest.raises(
        TypeError, match=r"runs on one place: got .*host\(\).* and .*device\(0\).*exec_place_grid"
    ):
        ctx.task(HOST, stf.exec_place.device(0))
    with pytest.raises(ValueError, match="cost is a duration in microseconds, 0 or more: got -1"):
        ctx.task(cost=-1)
    with pytest.raises(TypeError):
        ctx.task(cost="1")
    with pytest.raises(TypeError):
        ctx.task(colour="red")


def test_costs_and_priorities_are_accepted(ctx):
    with ctx.task(cost=5.0, priority=-1, symbol="urgent") as t:
        assert (t.symbol, t.state) == ("urgent", "open")


# ---- States and failures ---------------------------------------------------------------------------------


def test_states(ctx):
    t = ctx.task(symbol="one")
    assert t.state == "created" and repr(t) == "<task 'one': created, 0 dependencies>"
    assert t.start() is t and t.state == "open"
    t.end()
    assert t.state == "ended"
    with pytest.raises(stf.TaskStateError, match="task 'one' is not open"):
        t.end()
    with pytest.raises(stf.TaskStateError, match="task 'one' was started before"):
        t.start()


def test_a_body_may_end_its_task(ctx):
    data = ctx.logical_data_zeros(2)
    with ctx.task(data.rw()) as t:
        t.end()
    assert np.array_equal(ctx.wait(data), np.zeros(2))


def test_a_failed_body_poisons_what_it_was_to_write(ctx):
    data, other = ctx.logical_data_zeros(2, name="u"), ctx.logical_data_zeros(2)
    with pytest.raises(ZeroDivisionError), ctx.task(HOST, data.rw(), other.read(), symbol="bad"):
        1 / 0  # noqa: B018
    with pytest.raises(stf.PoisonedData, match="'u' has no usable value, because task 'bad' failed"):
        ctx.wait(data)
    with pytest.raises(stf.PoisonedData, match="overwrite it with write"):
        ctx.task(HOST, data.read()).start()
    assert np.array_equal(ctx.wait(other), np.zeros(2))
    with ctx.task(HOST, data.write()) as t:
        t.numpy(0)[:] = 4
    assert np.array_equal(ctx.wait(data), [4, 4])


def test_a_failure_to_end_does_not_hide_the_bodys_exception():
    from stf_places._native import runtime

    with stf.use_machine("sim:h200x2"):
        faulty = runtime.current().driver
        grid = stf.exec_place_grid.create([stf.exec_place.device(0)] * 2)
        with stf.context() as ctx:
            with pytest.raises(KeyError, match="body") as caught, ctx.task(grid, symbol="two"):
                faulty.order_fault("event", 1, "failed")  # joining the two places takes one
                raise KeyError("body")
            assert isinstance(caught.value.__context__, stf.DriverError)
            if sys.version_info >= (3, 11):
                assert caught.value.__notes__[0].startswith("ending task 'two' failed, too: DriverError")
            with pytest.raises(stf.DriverError), ctx.task(grid):
                faulty.order_fault("event", 1, "failed")


def test_a_forgotten_task_is_ended_as_failed(ctx):
    data = ctx.logical_data_zeros(2)
    t = ctx.task(data.rw(), symbol="lost").start()
    with pytest.warns(ResourceWarning, match=r"task 'lost' was never ended: use `with ctx\.task"):
        del t
    with pytest.raises(stf.PoisonedData, match="task 'lost' failed"):
        ctx.wait(data)


def test_reading_what_nothing_wrote(ctx):
    data = ctx.logical_data_empty(2, name="empty")
    with pytest.raises(stf.TaskStateError, match="read of 'empty' before anything wrote it"):
        ctx.task(data.read()).start()


def test_data_of_another_context(ctx):
    with stf.context() as other, pytest.raises(stf.WrongContext, match="belongs to another context"):
        other.task(ctx.logical_data_zeros(2).read()).start()


def test_data_in_use_by_an_open_task(ctx):
    data = ctx.logical_data_zeros(2)
    with (
        ctx.task(data.rw()),
        pytest.raises(stf.TaskStateError, match="in use by a task whose body is still open"),
    ):
        ctx.task(data.read()).start()


def test_open_tasks_may_share_what_they_read(ctx):
    data = ctx.logical_data_zeros(2)
    with ctx.task(data.read()) as a, ctx.task(data.read()) as b:
        assert a.get_arg(0) == b.get_arg(0) and a.stream_ptr() != b.stream_ptr()


def test_write_and_read_of_one_data_in_a_task(ctx):
    data = ctx.logical_data(np.arange(3.0))
    with ctx.task(HOST, data.read(), data.rw()) as t:
        assert t.get_arg(0) == t.get_arg(1)
        assert [t.numpy(i).flags.writeable for i in (0, 1)] == [False, True]
        t.numpy(1)[:] += 1
    assert np.array_equal(ctx.wait(data), [1, 2, 3])
