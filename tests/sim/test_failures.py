"""Calls that fail: the exception says which, values stay, and the context can be closed."""

import numpy as np
import pytest

import stf_places as stf

HOST = stf.exec_place.host()


@pytest.fixture(params=[None, 3], ids=["program-order", "chaos"])
def machine(request):
    with stf.use_machine("sim:h200x2", chaos=request.param) as chosen:
        yield chosen


def on(device):
    return stf.exec_place.device(device)


def add(ctx, data, device, amount, symbol="add"):
    with ctx.task(on(device), data.rw(), symbol=symbol) as t:
        t.run(lambda array: array.__iadd__(amount), t.numpy(0))


# ---- What fails at the call ------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(1, 25))
@pytest.mark.parametrize("kind", ["allocation", "event"])
def test_a_call_that_fails_changes_no_value(machine, kind, nth):
    sources = [np.zeros(8), np.zeros(8)]
    expected = [0, 0]
    with stf.context() as ctx:
        data = [ctx.logical_data(source, name=f"d{k}") for k, source in enumerate(sources)]
        machine.fail(kind, nth, "failed")
        failures = 0
        for step in range(12):
            which, device = step % 2, step // 2 % 2
            try:
                t = ctx.task(on(device), data[which].rw(), data[1 - which].read())
                t.start()
            except stf.DriverError as error:
                assert "failed" in str(error)
                failures += 1
                continue
            t.numpy(0)[:] += t.numpy(1) + step
            expected[which] += expected[1 - which] + step
            t.end()
        assert failures <= 1
        try:
            values = [ctx.wait(one) for one in data]
        except stf.DriverError:
            values = [ctx.wait(one) for one in data]
        assert all((value == right).all() for value, right in zip(values, expected, strict=True))
        try:
            ctx.finalize()
        except stf.DriverError:
            ctx.finalize()  # goes on where it stopped
        assert ctx.closed
    assert all((source == right).all() for source, right in zip(sources, expected, strict=True))
    assert machine.conflicts == ()
    assert machine.live_allocations == 0


@pytest.mark.parametrize(
    "code, error",
    [
        ("out_of_memory", stf.OutOfMemory),
        ("not_supported", stf.NotSupported),
        ("invalid_value", stf.DriverError),
        ("failed", stf.DriverError),
    ],
)
def test_each_code_has_its_exception(machine, code, error):
    with stf.context() as ctx:
        data = ctx.logical_data(np.ones(4), name="ones")
        machine.fail("allocation", 1, code)
        if code == "out_of_memory":
            add(ctx, data, 0, 1)  # the second try finds room
            assert (ctx.wait(data) == 2).all()
            return
        with pytest.raises(error, match="allocate_device"):
            ctx.task(on(0), data.rw()).start()
        add(ctx, data, 0, 1)
        assert (ctx.wait(data) == 2).all()


def test_a_failed_host_function_poisons_what_it_was_to_write(machine):
    source = np.ones(4)
    with stf.context() as ctx:
        data = ctx.logical_data(source, name="ones")
        machine.fail("host_function", 1, "failed")
        ctx.host_launch(data.rw(), fn=lambda array: array.__iadd__(1), symbol="lost")
        with pytest.raises(stf.DriverError, match="a host function failed"):
            ctx.wait(data)


# ---- What fails later ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, text", [("copy", "a copy of 32 bytes"), ("launch", "task 'task 'add''|task 'add'")]
)
def test_work_that_fails_is_reported_by_the_next_wait(machine, kind, text):
    with stf.context() as ctx:
        data = ctx.logical_data(np.ones(4), name="ones")
        machine.fail(kind, 1, "failed")
        with pytest.raises(stf.DriverError, match=text):
            add(ctx, data, 1, 1)
            ctx.wait(data)
        other = ctx.logical_data_full(3, 5.0)
        assert (ctx.wait(other) == 5).all()  # the context goes on
    assert ctx.closed and machine.live_allocations == 0


@pytest.mark.parametrize("kind", ["copy", "launch", "host_function"])
def test_a_lost_device_closes_the_context_and_lists_what_stayed_behind(machine, kind):
    sources = [np.zeros(4), np.zeros(4), np.zeros(4)]
    ctx = stf.context()
    back, away, _unused = (
        ctx.logical_data(s, name=n) for s, n in zip(sources, ["back", "away", "unused"], strict=True)
    )
    add(ctx, away, 1, 7)
    ctx.wait(away)
    machine.fail(kind, 1, "device_lost")
    with pytest.raises(stf.DeviceLost):
        if kind == "host_function":
            ctx.host_launch(away.rw(), fn=lambda array: None)
        add(ctx, away, 1, 1)
        add(ctx, back, 1, 1)
        ctx.wait(away)
        ctx.wait(back)
    with pytest.raises(stf.DeviceLost, match="not written back: .*'away'") as caught:
        ctx.finalize()
    assert "'unused'" not in str(caught.value)
    assert ctx.closed
    ctx.finalize()  # nothing more to say
    with pytest.raises(stf.ContextClosed):
        ctx.token()


def test_what_was_on_its_way_back_is_listed_too(machine):
    ctx = stf.context()
    data = ctx.logical_data(np.zeros(4), name="away")
    add(ctx, data, 1, 7)
    machine.fail("launch", 1, "device_lost")
    with ctx.task(on(1), data.rw()) as t:
        t.numpy(0)[:] += 1
    with pytest.raises(stf.DeviceLost, match="not written back: 'away'"):
        ctx.finalize()  # enqueues the copy before it meets the loss


def test_a_lost_device_refuses_new_contexts_work(machine):
    ctx = stf.context()
    data = ctx.logical_data(np.zeros(4), name="d")
    machine.fail("launch", 1, "device_lost")
    add(ctx, data, 0, 1)
    with pytest.raises(stf.DeviceLost):
        ctx.wait(data)
    with pytest.raises(stf.DeviceLost):
        ctx.finalize()
    with stf.context() as other:  # the other device still works
        fresh = other.logical_data(np.ones(4))
        add(other, fresh, 1, 1)
        assert (other.wait(fresh) == 2).all()


# ---- Bodies that raise -----------------------------------------------------------------------------------


def test_poison_names_the_task_and_goes_away(machine):
    source, copy = np.ones(4), np.zeros(4)
    with stf.context() as ctx:
        data, other = ctx.logical_data(source, name="data"), ctx.logical_data(copy, name="other")
        with pytest.raises(KeyError, match="mine"), ctx.task(on(1), data.rw(), symbol="breaker") as t:
            t.numpy(0)[0] = 99
            raise KeyError("mine")
        for use in (
            lambda: ctx.wait(data),
            ctx.task(on(0), data.read()).start,
            ctx.task(HOST, data.rw()).start,
        ):
            with pytest.raises(stf.PoisonedData, match="'data'.*'breaker'"):
                use()
        with pytest.raises(stf.PoisonedData, match="'breaker'"):
            ctx.host_launch(data.read(), fn=print)
        add(ctx, other, 0, 2)
        with ctx.task(on(0), data.write(), other.read()) as t:
            t.numpy(0)[:] = t.numpy(1) * 10
        assert (ctx.wait(data) == 20).all()
    assert (source == 20).all() and (copy == 2).all()


@pytest.mark.parametrize("make", [lambda ctx: ctx.token(), lambda ctx: ctx.logical_data_full(0, 1.0)])
def test_what_has_no_bytes_is_poisoned_as_well(machine, make):
    with stf.context() as ctx:
        data = make(ctx)
        ctx.wait(data)
        with pytest.raises(KeyError, match="mine"), ctx.task(on(1), data.rw(), symbol="breaker"):
            raise KeyError("mine")
        with pytest.raises(stf.PoisonedData, match="'breaker'"):
            ctx.wait(data)


def test_every_body_of_a_chain_may_raise(machine):
    source = np.zeros(3)
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        for device in (0, 1, 0, 1):
            with pytest.raises(ValueError, match="again"), ctx.task(on(device), data.write()):
                raise ValueError("again")
        with ctx.task(on(0), data.write()) as t:
            t.numpy(0)[:] = 4
    assert (source == 4).all()


def test_a_callback_that_raises_is_reported_and_the_rest_goes_on(machine):
    source = np.zeros(3)
    ctx = stf.context()
    data = ctx.logical_data(source)

    def fail(array):
        array += 1
        raise LookupError("in a callback")

    ctx.host_launch(data.rw(), fn=fail)
    add(ctx, data, 1, 10)
    with pytest.raises(LookupError, match="in a callback"):
        ctx.finalize()
    assert ctx.closed and (source == 11).all()


# ---- Objects used at the wrong time ----------------------------------------------------------------------


def test_a_task_after_its_block(machine):
    with stf.context() as ctx:
        data = ctx.logical_data_full(3, 1.0)
        with ctx.task(on(0), data.rw()) as t:
            pass
        for use in (
            t.start,
            t.end,
            t.stream_ptr,
            lambda: t.numpy(0),
            lambda: t.get_arg(0),
            lambda: t.run(print),
        ):
            with pytest.raises(stf.TaskStateError, match="task"):
                use()


def test_a_finalized_context(machine):
    ctx = stf.context()
    data = ctx.logical_data_full(3, 1.0)
    pending = ctx.task(on(0), data.rw())
    ctx.finalize()
    for use in (
        ctx.token,
        ctx.fence,
        lambda: ctx.wait(data),
        lambda: ctx.logical_data(np.ones(2)),
        pending.start,
    ):
        with pytest.raises((stf.ContextClosed, stf.WrongContext), match="finalized"):
            use()


def test_devices_out_of_reach_are_named():
    with stf.use_machine("sim:nopeer2") as machine, stf.context() as ctx:
        data = ctx.logical_data(np.ones(4), name="ones")
        with pytest.raises(ValueError, match=r"device\(0\).*'ones' on device\(1\).*no peer access"):
            ctx.task(on(0), data.rw(stf.data_place.device(1))).start()
        with pytest.raises(stf.InvalidDevice, match="device 7 does not exist"):
            ctx.task(on(0), data.rw(stf.data_place.device(7))).start()
        add(ctx, data, 0, 1)
        add(ctx, data, 1, 1)
        assert (ctx.wait(data) == 3).all() and machine.conflicts == ()


def test_memory_of_a_peer_is_used_where_it_lies(machine):
    with stf.context() as ctx:
        data = ctx.logical_data(np.ones(4))
        for device in (0, 1):
            with ctx.task(on(device), data.rw(stf.data_place.device(1))) as t:
                t.numpy(0)[:] *= 3
        assert ctx.stats.copies == 1
        assert (ctx.wait(data) == 9).all()


def test_two_open_host_tasks_leave_room_for_copies(machine):
    source = np.zeros(3)
    with stf.context() as ctx:
        a, b = (
            ctx.logical_data_full(3, 1.0, exec_place=on(0)),
            ctx.logical_data_full(3, 2.0, exec_place=on(0)),
        )
        dropped = ctx.logical_data(source)
        add(ctx, dropped, 0, 5)
        with ctx.task(HOST, a.rw()), ctx.task(HOST, b.rw()):
            del dropped
            other = ctx.logical_data_full(3, 3.0, exec_place=on(0))
            assert (ctx.wait(other) == 3).all()
    assert (source == 5).all()


# ---- Settings that find culprits -------------------------------------------------------------------------


def test_waiting_after_each_task_names_the_culprit(monkeypatch):
    monkeypatch.setenv("STF_PLACES_SYNC", "1")
    with stf.use_machine("sim:h200x2") as machine, stf.context() as ctx:
        data = ctx.logical_data(np.ones(4))
        add(ctx, data, 0, 1, "innocent")
        machine.fail("launch", 1, "failed")
        with pytest.raises(stf.DriverError, match="task 'culprit'"):
            add(ctx, data, 0, 1, "culprit")


def test_work_on_a_default_stream_is_found(monkeypatch):
    monkeypatch.setenv("STF_PLACES_CHECK", "1")
    with stf.use_machine("sim:h200x2") as machine, stf.context() as ctx:
        token = ctx.token()
        with ctx.task(on(0), token.rw(), symbol="tidy"):
            pass
        with pytest.raises(
            stf.TaskStateError, match="task 'astray' put work on the default stream of device 0"
        ):
            with ctx.task(on(0), token.rw(), symbol="astray"):
                machine._driver.host_work(0, lambda: None, symbol="stray", cost_us=1000.0)
