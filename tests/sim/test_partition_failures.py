"""Faults, old and new drivers, Ctrl-C: nothing is left half-made, and what is refused says why."""

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import stf_places as stf
from stf_places import machines
from stf_places._native import sm_splits

CODES = {
    "failed": stf.DriverError,
    "out_of_memory": stf.OutOfMemory,
    "not_supported": stf.NotSupported,
    "invalid_value": stf.DriverError,
}


@pytest.fixture
def machine():
    with stf.use_machine("sim:h200x1") as chosen:
        yield chosen


@pytest.fixture
def with_driver(tmp_path):
    """Return a function that opens a machine with a driver of some version."""

    def start(version):
        description = Path(machines.__file__).parent / "data" / "h200x1.json"
        path = tmp_path / f"driver{version}.json"
        path.write_text(json.dumps(json.loads(description.read_text()) | {"driver_version": version}))
        return stf.use_machine(f"sim:{path}")

    return start


def live_contexts(machine):
    stf.plan_green_places(1)  # contexts that are no longer used go at a call
    return {handle for handle in range(1, 2000) if sm_splits.sm_ids(machine._driver, handle)}


def handles(places):
    return [place.backing_context.handle for place in places]


def sizes(places):
    return [place.sm_count for place in places]


def check_good(places):
    """See that tasks and streams of places work."""
    resources = stf.exec_place_resources()
    with stf.context() as ctx:
        for place in places:
            data = ctx.logical_data_full(3, 2.0, exec_place=place)
            assert (ctx.wait(data) == 2).all()
            assert place.pick_stream(resources)


def run_python(text):
    """Run a program on a simulated machine in a process of its own, and return what it printed."""
    environment = os.environ | {"STF_PLACES_DRIVER": "sim", "STF_PLACES_MACHINE": "h200x1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- Faults ----------------------------------------------------------------------------------------------


CALLS = {
    "green_places": lambda before: stf.green_places(8, 5),
    "unequal": lambda before: stf.green_places([8, 16, 16, 8, 8]),
    "within": lambda before: stf.green_places(8, 5, within=before[0]),
    "within, anew": lambda before: stf.green_places(2, 5, within=before[0], fine_grained=True),
    "repartition": lambda before: stf.repartition(before, 16, 5),
    "repartition anew": lambda before: stf.repartition(before, 2, 5, fine_grained=True),
}


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_failed_creation_leaves_nothing_half_made(machine, call, code, nth):
    before = stf.green_places(56, 1)
    contexts, plan = live_contexts(machine), stf.plan_green_places(8)
    current = machine._driver.current_context()
    machine.fail("green_context", nth, code)
    with pytest.raises(CODES[code], match="create_green_context failed"):
        call(before)
    assert live_contexts(machine) == contexts and stf.plan_green_places(8) == plan
    assert machine._driver.current_context() == current
    check_good(before)
    made = call(before)
    assert len(made) == 5
    check_good(made)


@pytest.mark.parametrize("make", [lambda p: p.remainder, stf.exec_place.rest], ids=["remainder", "rest"])
def test_a_failed_remainder_leaves_its_sms_free(machine, make):
    places = stf.green_places(8, 3)
    contexts = live_contexts(machine)
    machine.fail("green_context")
    with pytest.raises(stf.DriverError, match="create_green_context failed"):
        make(places)
    assert live_contexts(machine) == contexts
    assert len(stf.plan_green_places(8).sm_counts) == 12
    assert make(places).sm_count == 108


def test_planning_creates_nothing(machine):
    machine.fail("green_context")
    for asked in (8, [16, 64], 200):
        stf.plan_green_places(asked)
    stf.plan_green_places(2, fine_grained=True)
    assert len(live_contexts(machine)) == machine.device_count
    with pytest.raises(stf.DriverError):
        stf.green_places(8)


def test_a_lost_device_is_told(machine):
    places = stf.green_places(8, 2)
    machine.fail("green_context", 1, "device_lost")
    with pytest.raises(stf.DeviceLost):
        stf.green_places(8, 1)
    with pytest.raises(stf.DeviceLost):
        stf.repartition(places, 64)
    del places
    gc.collect()


# ---- Older drivers ---------------------------------------------------------------------------------------


def test_a_driver_of_12_4_has_devices_but_no_partitions(with_driver):
    with with_driver(12040):
        source = np.zeros(4)
        for call in (stf.green_places, stf.plan_green_places, stf.green_context_helper):
            with pytest.raises(stf.NotSupported, match=r"driver of CUDA 12\.4.* which comes with CUDA 12\.5"):
                call(8)
        device = stf.exec_place.device(0)
        with stf.context() as ctx:
            data = ctx.logical_data(source)
            with ctx.task(device, data.rw()) as t:
                t.numpy(0)[:] += 1
        assert (source == 1).all() and device.sm_count == 132
        handle = stf.machine()._driver.primary_context(0)
        assert stf.exec_place.from_context(handle).sm_count == 132


@pytest.mark.parametrize("version", [12050, 12080, 13000, 13010])
def test_drivers_from_12_5_on_grant_the_same(with_driver, version):
    with with_driver(version):
        assert sizes(stf.green_places(8)) == [8] * 15
        assert sizes(stf.green_places([104, 8, 8])) == [104, 8, 8]
        assert len(stf.green_places(2, fine_grained=True)) == 66


@pytest.mark.parametrize("name", ["green_places", "plan_green_places", "repartition"])
@pytest.mark.parametrize(
    "options",
    [
        {"coscheduled_sm_count": 8},
        {"workqueue": stf.WorkqueueOptions()},
        {"workqueue": {"concurrency_limit": 4}},
    ],
    ids=["coscheduled", "options", "mapping"],
)
def test_what_13_1_brings_is_refused_before(machine, name, options):
    old = stf.green_places(8, 2)
    call = {"repartition": lambda *given, **more: stf.repartition(old, *given, **more)}.get(name)
    with pytest.raises(stf.NotSupported, match=r"driver of CUDA 13\.0.* which comes with CUDA 13\.1"):
        if call is None:
            old.clear()
            call = getattr(stf, name)
        call(16, 2, **options)
    if name == "repartition":
        check_good(old)


# ---- Newer drivers ---------------------------------------------------------------------------------------


def test_13_1_splits_unequally_in_one_go(with_driver):
    with with_driver(13010):
        places = stf.green_places([40, 88])  # no split into equal groups has both
        assert (sizes(places), places.plan.remainder) == ([40, 88], 4)
        assert places.remainder.sm_count == 4
        check_good(places)


@pytest.mark.parametrize(
    ("asked", "together"), [((32, 3), 8), ((32, 2), 16), ((64,), 32), (([16, 48],), 16)], ids=str
)
def test_coscheduled_places(with_driver, asked, together):
    with with_driver(13010) as machine:
        plan = stf.plan_green_places(*asked, coscheduled_sm_count=together)
        places = stf.green_places(*asked, coscheduled_sm_count=together)
        assert places.plan == plan and sizes(places) == list(plan.sm_counts)
        ids = [one for handle in handles(places) for one in sm_splits.sm_ids(machine._driver, handle)]
        assert len(set(ids)) == len(ids) == sum(sizes(places)) == 132 - plan.remainder
        check_good(places)
        with pytest.raises(stf.PartitionError, match="a co-scheduled split needs the whole"):
            stf.green_places(8, 1, coscheduled_sm_count=together)


def test_a_coscheduled_count_that_cannot_be_is_named(with_driver):
    with with_driver(13010), pytest.raises(stf.PartitionError, match=r"coscheduled_sm_count=7"):
        stf.green_places(32, coscheduled_sm_count=7)


@pytest.mark.parametrize(
    "queues",
    [
        stf.WorkqueueOptions(),
        stf.WorkqueueOptions("green_ctx_balanced", 4),
        {"sharing_scope": "green_ctx_balanced"},
        {"concurrency_limit": 1},
        {},
        type("Options", (), {"sharing_scope": None, "concurrency_limit": None})(),
    ],
    ids=["default", "balanced", "scope", "limit", "empty", "like cuda.core"],
)
def test_work_queues_are_taken(with_driver, queues):
    with with_driver(13010):
        places = stf.green_places(16, 3, workqueue=queues)
        assert sizes(places) == [16] * 3
        check_good(places)


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (([40, 88],), {}),
        ((32, 2), {"coscheduled_sm_count": 16}),
        ((16, 3), {"workqueue": stf.WorkqueueOptions("green_ctx_balanced", 2)}),
    ],
    ids=["unequal", "coscheduled", "queues"],
)
def test_the_same_request_finds_its_contexts_again(with_driver, asked, options):
    with with_driver(13010):
        places = stf.green_places(*asked, **options)
        before = handles(places)
        del places
        assert handles(stf.green_places(*asked, **options)) == before


def test_other_queues_are_another_context(with_driver):
    with with_driver(13010):
        first = handles(stf.green_places(16, 1))
        second = handles(stf.green_places(16, 1, workqueue={"concurrency_limit": 2}))
        third = handles(stf.green_places(16, 1, workqueue={"concurrency_limit": 3}))
        assert len({*first, *second, *third}) == 3


def test_a_queue_limit_is_not_taken_for_a_group(with_driver):
    """A context that nobody uses stays while its groups are free, whatever limit it has."""
    with with_driver(13010):
        first = stf.green_places(8, 1)
        queued = stf.green_places(8, 1, workqueue={"concurrency_limit": 2})
        third = stf.green_places(8, 1)
        before = handles(queued)
        del queued, first
        first = stf.green_places(8, 1)
        assert handles(stf.green_places(8, 1, workqueue={"concurrency_limit": 2})) == before
        assert sizes([*first, *third]) == [8, 8]


def test_contexts_do_not_pile_up(with_driver):
    with with_driver(13010) as machine:
        for round_ in range(60):
            options = [{}, {"coscheduled_sm_count": 16}, {"workqueue": {"concurrency_limit": 1 + round_}}][
                round_ % 3
            ]
            places = stf.green_places(32, 3, **options)
            stf.repartition(places, [40, 80])
            del places
        assert len(live_contexts(machine)) <= 1 + 2


# ---- Signals ---------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_old_places_good(machine):
    places = stf.green_places(16, 2)
    with stf.context() as ctx:
        token = ctx.token()
        with ctx.task(places[0], token.rw()) as t:
            t.run(signal.raise_signal, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stf.repartition(places, 8)
        check_good(places)
        with pytest.raises(stf.StfError, match="interrupted"):
            ctx.wait(token)
        assert len(stf.repartition(places, 8)) == 15


def test_ctrl_c_from_outside_ends_the_wait_for_slow_work():
    text = run_python(
        """
        import hashlib, os, signal, threading
        import stf_places as stf

        places, started = stf.green_places(16, 2), threading.Event()
        ctx = stf.context()
        token = ctx.token()
        with ctx.task(places[0], token.rw()) as t:
            t.run(started.set)
            for _ in range(400):
                t.run(hashlib.pbkdf2_hmac, "sha256", b"x", b"y", 10000)

        def interrupt():
            started.wait()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            stf.repartition(places, 8)
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        with ctx.task(places[1], ctx.token().rw()):
            pass
        print(len(stf.repartition(places, 8)))
        ctx.finalize()
        """
    )
    assert text.splitlines() == ["interrupted", "15"]


def test_ctrl_c_ends_the_wait_for_the_repartition_of_another_thread():
    text = run_python(
        """
        import os, signal, threading
        import stf_places as stf

        places = stf.green_places(16, 2)
        started, gate = threading.Event(), threading.Event()

        def slow():
            started.set()
            gate.wait(30)

        ctx = stf.context()
        with ctx.task(places[0], ctx.token().rw()) as t:
            t.run(slow)
        other = threading.Thread(target=stf.repartition, args=(places, 8))
        other.start()
        started.wait()
        timers = [threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)), threading.Timer(8, gate.set)]
        for timer in timers:
            timer.start()
        try:
            stf.green_places(8, 1)
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted, too late:", gate.is_set())
        gate.set()
        other.join()
        timers[1].cancel()
        ctx.finalize()
        """
    )
    assert text.splitlines() == ["interrupted, too late: False"]


def test_a_body_that_asks_for_places_during_the_wait_gets_an_answer():
    text = run_python(
        """
        import stf_places as stf

        def ask():
            for call in (stf.plan_green_places, stf.green_places):
                try:
                    call(8)
                    print("answered")
                except stf.StfError as error:
                    print(type(error).__name__)

        places, ctx = stf.green_places(16, 2), stf.context()
        with ctx.task(places[0], ctx.token().rw()) as t:
            t.run(ask)
        print(len(stf.repartition(places, 8)))
        ctx.finalize()
        """
    )
    assert len(text.splitlines()) == 3 and text.splitlines()[-1] == "15"
