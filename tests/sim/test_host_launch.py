"""Host functions: what they get, when they run, what becomes of their exceptions and of what they hold."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import stf_places as stf

pytestmark = pytest.mark.usefixtures("machine")

HOST = stf.exec_place.host()


@pytest.fixture
def ctx(machine):
    with stf.context() as made:
        yield made


class Watched:
    """Something that weak references can watch, and that notes where it is destroyed."""

    def __init__(self, threads=None):
        self.threads = threads

    def __del__(self):
        if self.threads is not None:
            self.threads.append(threading.current_thread())


def test_a_function_gets_arrays_and_then_its_arguments(ctx):
    seen = []
    a = ctx.logical_data(np.arange(6.0).reshape(2, 3))
    b = ctx.logical_data_full(2, 7, "i4", where=stf.data_place.device(0))

    def look(first, second, *rest):
        seen.append((first.copy(), first.flags.writeable, second.copy(), second.flags.writeable, rest))

    ctx.host_launch(a.read(), ctx.token().read(), b.rw(), fn=look, args=(1, "two"), symbol="look")
    ctx.wait(b)
    ((first, first_writeable, second, second_writeable, rest),) = seen
    assert np.array_equal(first, np.arange(6.0).reshape(2, 3)) and not first_writeable
    assert np.array_equal(second, [7, 7]) and second.dtype == np.dtype("i4") and second_writeable
    assert rest == (1, "two")


def test_functions_run_in_the_order_of_their_data(ctx):
    data = ctx.logical_data_zeros(3)
    for k in range(5):
        ctx.host_launch(data.rw(), fn=lambda array, k=k: array.__setitem__(slice(None), array * 2 + k))
    with ctx.task(HOST, data.rw()) as t:
        t.numpy(0)[:] += 100
    value = 0
    for k in range(5):
        value = value * 2 + k
    assert np.array_equal(ctx.wait(data), np.full(3, value + 100.0))


def test_tokens_order_functions(ctx):
    seen, token = [], ctx.token()
    for k in range(10):
        ctx.host_launch(token.rw(), fn=seen.append, args=[k])
    ctx.wait(token)
    assert seen == list(range(10))


def test_functions_without_data_run_before_the_end(machine):
    seen = []
    with stf.context() as ctx:
        ctx.host_launch(fn=seen.append, args=(1,))
    assert seen == [1]


def test_results_are_written_back(machine):
    source = np.zeros(4)
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        ctx.host_launch(data.write(), fn=lambda array: array.fill(9))
    assert np.array_equal(source, np.full(4, 9.0))


def test_data_may_go_before_the_function_has_run(machine):
    seen = []
    with stf.context() as ctx:
        data = ctx.logical_data_full(1000, 5.0)
        ctx.host_launch(data.read(), fn=lambda array: seen.append(array.sum()))
        del data
        for _ in range(4):
            ctx.logical_data_zeros(1000)
    assert seen == [5000.0]


def test_zero_size_arrays_are_passed(ctx):
    seen, data = [], ctx.logical_data_empty((0, 3), "f4")
    ctx.host_launch(data.write(), fn=lambda array: seen.append((array.shape, array.dtype)))
    assert ctx.wait(data).shape == (0, 3)
    assert seen == [((0, 3), np.dtype("f4"))]


# ---- Arguments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"fn": 3}, TypeError, r"host_launch\(\) needs fn=, a function to call: got int"),
        ({"fn": print, "args": 3}, TypeError, "args is a tuple .* got int; write args=.value,. for one"),
        ({"fn": print, "symbol": 3}, TypeError, "names are strings: got int"),
        ({}, TypeError, "fn"),
    ],
)
def test_arguments_are_checked(ctx, arguments, kind, text):
    with pytest.raises(kind, match=text):
        ctx.host_launch(**arguments)


def test_dependencies_are_checked(ctx):
    data = ctx.logical_data_zeros(2)
    with pytest.raises(TypeError, match=r"host_launch\(\) needs to know how data is used"):
        ctx.host_launch(data, fn=print)
    with pytest.raises(TypeError, match=r"host_launch\(\) takes dependencies .*: got int"):
        ctx.host_launch(3, fn=print)
    with pytest.raises(ValueError, match=r"works on host memory: got .*\.read\(.*device\(0\)"):
        ctx.host_launch(data.read(stf.data_place.device(0)), fn=print)
    with stf.context() as other, pytest.raises(stf.WrongContext):
        other.host_launch(data.read(), fn=print)
    ctx.host_launch(data.read(stf.data_place.host()), fn=len)


def test_a_closed_context_refuses(machine):
    ctx = stf.context()
    ctx.finalize()
    with pytest.raises(stf.ContextClosed):
        ctx.host_launch(fn=print)


# ---- Exceptions ------------------------------------------------------------------------------------------


def fail(*_):
    raise LookupError("from the function")


def test_an_exception_is_raised_once_by_the_next_wait(ctx):
    data = ctx.logical_data_zeros(2)
    ctx.host_launch(data.rw(), fn=fail)  # the wait comes behind it, since it may write
    with pytest.raises(LookupError, match="from the function"):
        ctx.wait(data)
    assert np.array_equal(ctx.wait(data), np.zeros(2))
    ctx.check_errors()


def test_an_exception_keeps_no_array_of_its_function(ctx):
    data = ctx.logical_data_zeros(2)
    ctx.host_launch(data.rw(), fn=fail)
    with pytest.raises(LookupError) as caught:
        ctx.wait(data)
    trace = caught.value.__traceback__
    while trace is not None:
        assert trace.tb_frame.f_code is not fail.__code__ or trace.tb_frame.f_locals == {}
        trace = trace.tb_next


def test_exceptions_come_one_at_a_time_in_order(machine):
    ctx = stf.context()
    token = ctx.token()
    for kind in (KeyError, IndexError, OSError):
        ctx.host_launch(token.rw(), fn=lambda kind=kind: (_ for _ in ()).throw(kind("x")))
    with pytest.raises(KeyError):
        ctx.wait(token)
    with pytest.raises(IndexError):
        ctx.finalize()
    assert ctx.closed
    with pytest.raises(OSError, match="x"):
        ctx.check_errors()
    ctx.check_errors()


def test_finalize_raises_after_it_has_finalized(machine):
    source = np.zeros(2)
    ctx = stf.context()
    data = ctx.logical_data(source)
    ctx.host_launch(data.write(), fn=lambda array: (array.fill(3), fail()))
    with pytest.raises(LookupError):
        ctx.finalize()
    assert ctx.closed and np.array_equal(source, [3, 3])


def test_an_exception_of_a_function_does_not_hide_the_bodys(machine):
    with pytest.raises(ZeroDivisionError) as caught, stf.context() as ctx:
        ctx.host_launch(fn=fail)
        1 / 0  # noqa: B018
    if sys.version_info >= (3, 11):
        assert (
            "finalizing the context failed, too: LookupError: from the function" in caught.value.__notes__[0]
        )
    assert isinstance(caught.value.__context__, LookupError)


def test_a_function_must_not_use_its_context(ctx, machine):
    if not machine.simulated:
        pytest.skip("needs a machine that calls host functions while the context waits")
    token = ctx.token()
    ctx.host_launch(token.rw(), fn=lambda: ctx.token())
    with pytest.raises(stf.TaskStateError, match="in use right now"):
        ctx.wait(token)


# ---- What functions hold ---------------------------------------------------------------------------------


def test_what_a_function_holds_is_released_on_the_main_thread(machine):
    threads = []
    with stf.context() as ctx:
        token = ctx.token()
        for _ in range(100):
            ctx.host_launch(token.rw(), fn=lambda held: Watched(threads), args=(Watched(threads),))
        worker = threading.Thread(target=lambda: [sum(range(100)) for _ in range(100)])
        worker.start()
        worker.join()
    gc.collect()
    assert len(threads) == 200 and set(threads) == {threading.main_thread()}


def test_functions_on_another_thread_are_released_on_the_main_one(machine):
    threads, errors = [], []

    def program():
        try:
            with stf.context() as ctx:
                for _ in range(50):
                    ctx.host_launch(fn=lambda held: None, args=(Watched(threads),))
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=program)
    worker.start()
    worker.join()
    stf.context().finalize()
    assert errors == [] and len(threads) == 50 and set(threads) == {threading.main_thread()}


def test_a_refused_function_is_released(ctx):
    held = Watched()
    watch = weakref.ref(held)
    data = ctx.logical_data_empty(2)
    with pytest.raises(stf.TaskStateError, match="before anything wrote it"):
        ctx.host_launch(data.read(), fn=print, args=(held,))
    del held
    gc.collect()
    assert watch() is None
    with ctx.task(HOST, data.write()) as t:
        t.numpy(0)[:] = 1
    assert np.array_equal(ctx.wait(data), [1, 1])


def test_submitting_beside_a_slow_function_makes_progress(ctx):
    import time

    token, other = ctx.token(), ctx.logical_data_zeros(4)
    ctx.host_launch(token.rw(), fn=time.sleep, args=(0.05,))
    for _ in range(200):
        with ctx.task(HOST, other.rw()) as t:
            t.numpy(0)[:] += 1
    ctx.wait(token)
    assert np.array_equal(ctx.wait(other), np.full(4, 200.0))


# ---- Faults (simulated machines) -------------------------------------------------------------------------


@pytest.fixture
def faulty():
    from stf_places._native import runtime

    with stf.use_machine("sim:h200x2"):
        yield runtime.current().driver


def test_a_function_that_the_driver_drops_is_released(faulty):
    held, ran = Watched(), []
    watch = weakref.ref(held)
    ctx = stf.context()
    token = ctx.token()
    faulty.order_fault("host_function", 1, "failed")
    ctx.host_launch(token.rw(), fn=lambda one: ran.append(1), args=(held,))
    with pytest.raises(stf.DriverError):
        ctx.wait(token)
    ctx.finalize()
    del held
    gc.collect()
    assert ran == [] and watch() is None


def test_functions_are_released_when_the_device_is_lost(faulty):
    held, ran, source = Watched(), [], np.zeros(1000)
    watch = weakref.ref(held)
    ctx = stf.context()
    data = ctx.logical_data(source, name="u")
    faulty.order_fault("copy", 1, "device_lost")
    ctx.host_launch(data.write(), fn=lambda array, one: ran.append(1), args=(held,))
    copied = ctx.logical_data_full(8, 1.0, where=stf.data_place.device(0))
    with pytest.raises(stf.DeviceLost):
        ctx.wait(copied)
    with pytest.raises(stf.DeviceLost):
        ctx.finalize()
    assert ctx.closed
    ctx.finalize()
    del held
    gc.collect()
    assert watch() is None


EXITS = {
    "forgotten": "ctx.host_launch(data.write(), fn=lambda array: (array.fill(3), print('ran', array[0])))",
    "in a cycle": "ctx.host_launch(fn=lambda held: print('ran 3.0'), args=([ctx],))",
}


@pytest.mark.parametrize("name", EXITS)
def test_a_context_left_at_exit_is_finalized(machine, name):
    program = (
        "import numpy as np, stf_places as stf\n"
        "stf.use_machine('sim:h200x2')\n"
        "ctx = stf.context()\n"
        "data = ctx.logical_data(np.zeros(2))\n" + EXITS[name]
    )
    result = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "ran 3.0\n"), result.stderr
    assert "ResourceWarning: a context was dropped without finalize()" in result.stderr
