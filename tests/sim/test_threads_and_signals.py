"""Threads, Ctrl-C, fork, slow callbacks, and objects that go in any order."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest

import stf_places as stf

HOST = stf.exec_place.host()

pytestmark = pytest.mark.usefixtures("simulated")


def on(device):
    return stf.exec_place.device(device)


def run_python(text):
    """Run a program of its own and return what it printed."""
    program = textwrap.dedent(text)
    environment = os.environ | {"STF_PLACES_DRIVER": "sim", "STF_PLACES_MACHINE": "h200x2"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- Threads ---------------------------------------------------------------------------------------------


def test_an_open_task_belongs_to_its_thread():
    seen = []
    with stf.context() as ctx:
        data = ctx.logical_data_full(3, 1.0)

        def use():
            try:
                ctx.wait(data)
            except stf.TaskStateError as error:
                seen.append(str(error))

        with ctx.task(on(0), data.read()):
            other = threading.Thread(target=use)
            other.start()
            other.join()
        assert (ctx.wait(data) == 1).all()
    assert len(seen) == 1 and "in another thread" in seen[0]


def test_a_context_can_change_threads_between_tasks():
    source = np.zeros(3)
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        for device in (0, 1, 0):

            def work(device=device):
                with ctx.task(on(device), data.rw()) as t:
                    t.numpy(0)[:] += 1

            other = threading.Thread(target=work)
            other.start()
            other.join()
    assert (source == 3).all()


def test_two_threads_in_one_context_are_told_apart():
    """One thread is inside a call, which a callback holds up, while another one tries."""
    entered, leave, seen = threading.Event(), threading.Event(), []
    with stf.context() as ctx:
        data = ctx.logical_data_full(3, 1.0)

        def hold(array):
            entered.set()
            leave.wait(30)

        ctx.host_launch(data.rw(), fn=hold)
        waiter = threading.Thread(target=ctx.wait, args=(data,))
        waiter.start()
        assert entered.wait(30)
        try:
            with pytest.raises(stf.TaskStateError, match="in use right now by another thread"):
                ctx.token()
            seen.append("told")
        finally:
            leave.set()
            waiter.join()
        ctx.token()
    assert seen == ["told"]


def test_contexts_on_threads_do_not_meet():
    sources = [np.zeros(64) for _ in range(4)]
    failures = []

    def work(source, amount):
        try:
            with stf.context() as ctx:
                data = ctx.logical_data(source)
                for k in range(50):
                    with ctx.task(on(k % 2), data.rw()) as t:
                        t.run(np.add, t.numpy(0), amount, t.numpy(0))
                    if k % 10 == 0:
                        ctx.wait(data)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(s, k + 1)) for k, s in enumerate(sources)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [source[0] for source in sources] == [50, 100, 150, 200]
    assert stf.machine().conflicts == ()


# ---- Signals ---------------------------------------------------------------------------------------------


def test_ctrl_c_in_a_body_leaves_the_context_usable():
    source, other_source = np.ones(3), np.ones(3)
    with stf.context() as ctx:
        data, other = ctx.logical_data(source), ctx.logical_data(other_source)
        with pytest.raises(KeyboardInterrupt), ctx.task(on(0), data.rw(), symbol="stopped"):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0)  # the handler has run by now
        with pytest.raises(stf.PoisonedData, match="stopped"):
            ctx.wait(data)
        with ctx.task(on(1), other.rw(), data.write()) as t:
            t.numpy(0)[:] += 1
            t.numpy(1)[:] = 5
    assert (source == 5).all() and (other_source == 2).all()


@pytest.mark.parametrize("call", ["wait", "finalize"])
def test_ctrl_c_during_a_wait_behind_slow_work(call):
    source = np.zeros(3)
    ctx = stf.context()
    data = ctx.logical_data(source)

    def slow(array):
        array += 1
        signal.raise_signal(signal.SIGINT)  # ends this function, and the wait that ran it

    for _ in range(3):
        ctx.host_launch(data.rw(), fn=slow)
    interrupts = told = 0
    for _ in range(10):
        try:
            if call == "wait":
                assert (ctx.wait(data) == 3).all()
            else:
                ctx.finalize()
            break
        except KeyboardInterrupt:
            interrupts += 1
        except stf.StfError as error:
            assert "slow was interrupted (Ctrl-C), so what it was to write is incomplete" in str(error)
            told += 1
    assert interrupts >= 1
    assert told == 3
    ctx.finalize()
    assert ctx.closed and (source == 3).all()


def test_ctrl_c_from_outside_ends_a_long_finalize():
    text = run_python(
        """
        import hashlib, os, signal, threading
        import numpy as np
        import stf_places as stf

        source = np.zeros(3)
        ctx = stf.context()
        data, token = ctx.logical_data(source), ctx.token()
        with ctx.task(stf.exec_place.device(0), data.rw()) as t:
            t.numpy(0)[:] += 1
        started = threading.Event()
        ctx.host_launch(token.rw(), fn=started.set)
        # No Python code runs in these, so that the signal is not delivered inside of one.
        for _ in range(400):
            ctx.host_launch(token.rw(), fn=hashlib.pbkdf2_hmac, args=("sha256", b"x", b"y", 10000))

        def interrupt():
            started.wait()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            ctx.finalize()
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted", ctx.closed)
        ctx.finalize()
        print("closed", ctx.closed, source)
        """
    )
    assert text.splitlines() == ["interrupted False", "closed True [1. 1. 1.]"]


# ---- Processes -------------------------------------------------------------------------------------------


def test_the_child_of_a_fork_is_told_about_spawn():
    text = run_python(
        """
        import os, warnings
        import numpy as np
        import stf_places as stf

        source = np.zeros(3)
        ctx = stf.context()
        data = ctx.logical_data(source)
        with ctx.task(stf.exec_place.device(0), data.rw()) as t:
            t.numpy(0)[:] += 1
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            try:
                ctx.wait(data)
                text = "no error"
            except stf.DriverError as error:
                text = str(error)
            os.write(write, text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        print("spawn" in os.read(read, 10000).decode())
        ctx.finalize()
        print(source)
        """
    )
    assert text.splitlines() == ["True", "[1. 1. 1.]"]


# ---- Order of destruction --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(["ctx", "data", "task", "dep"])))
@pytest.mark.parametrize("opened", [False, True], ids=["created", "open"])
def test_objects_go_in_any_order(order, opened):
    source = np.ones(3)
    kept = {"ctx": stf.context()}
    kept["data"] = kept["ctx"].logical_data(source)
    kept["dep"] = kept["data"].rw()
    kept["task"] = kept["ctx"].task(on(0), kept["dep"])
    if opened:
        kept["task"].start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in order:
            del kept[name]
        gc.collect()
    kinds = {warning.category for warning in caught}
    assert kinds == {ResourceWarning}
    assert len(caught) == (2 if opened else 1)
    assert (source == 1).all()
    stf.machine()._driver.drain()  # the copies from `source` let go of it when they are made
    gc.collect()
    assert stf.machine().live_allocations == 0


def test_a_cycle_of_everything_is_collected():
    source = np.zeros(3)

    class Holder:
        pass

    holder = Holder()
    holder.ctx = stf.context()
    holder.data = holder.ctx.logical_data(source)
    holder.task = holder.ctx.task(on(1), holder.data.rw())
    holder.myself = holder
    holder.ctx.host_launch(holder.data.rw(), fn=lambda array, held: array.__iadd__(1), args=(holder,))
    with pytest.warns(ResourceWarning, match="finalize"):
        holder.ctx.wait(holder.data)  # the call gives its arguments back
        del holder
        gc.collect()
    assert (source == 1).all()


def test_data_and_machine_outlive_each_other():
    with stf.use_machine("sim:tiny") as machine:
        ctx = stf.context()
        data = ctx.logical_data_full(3, 2.0, exec_place=on(1))
    assert stf.machine().name != machine.name
    assert (ctx.wait(data) == 2).all()
    ctx.finalize()
    del ctx
    assert repr(data)
    del data
    assert machine.live_allocations == 0
