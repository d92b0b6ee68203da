"""Splitting anew, beside work and other threads; and what no call changes, the current context."""

import contextlib
import gc
import itertools
import threading
import time

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import sm_splits


@pytest.fixture(autouse=True)
def h200(machine):
    """Run on devices of 132 SMs, and see that each test leaves all of them free."""
    if any(device.sm_count != 132 for device in machine.devices):
        pytest.skip("needs devices of 132 SMs in steps of 8")
    yield machine
    gc.collect()
    for device in range(machine.device_count):
        assert len(stf.plan_green_places(8, device_id=device).sm_counts) == 15, "the test left places behind"


def sizes(places):
    return [place.sm_count for place in places]


def check_disjoint(machine, places):
    """See that no SM is in two places, where the machine can tell."""
    assert sum(sizes(places)) <= 132
    if machine.simulated:
        handles = [place.backing_context.handle for place in places]
        together = list(itertools.chain(*(sm_splits.sm_ids(machine._driver, handle) for handle in handles)))
        assert len(set(together)) == len(together) == sum(sizes(places))


def check_good(places):
    """See that tasks and streams of places work."""
    resources = stf.exec_place_resources()
    with stf.context() as ctx:
        for place in places:
            data = ctx.logical_data_full(3, 2.0, exec_place=place)
            assert (ctx.wait(data) == 2).all()
            assert place.pick_stream(resources)


# ---- Other places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "options"),
    [
        ((64, 2), ([16, 96],), {}),
        ((8,), (16, 4), {}),
        (([24, 40],), ([24, 40],), {}),
        ((16, 3), (2, 5), {"fine_grained": True}),
        ((132,), (8,), {}),
        ((8, 2), (128, 1), {"exact": True}),
    ],
    ids=str,
)
def test_other_places_come_instead(machine, before, after, options):
    old = stf.green_places(*before)
    new = stf.repartition(old, *after, **options)
    assert sizes(new) == list(new.plan.sm_counts)
    assert sum(new.plan.sm_counts) + new.plan.remainder == 132
    assert not set(new) & set(old)
    check_disjoint(machine, new)
    check_good(new)
    text = "was replaced by repartition"
    with stf.context() as ctx:
        for target in (old[0], stf.exec_place_grid.create(old)):
            with pytest.raises(stf.PartitionError, match=rf"{text}\(\): use the places that it returned"):
                ctx.task(target, ctx.token().rw()).start()
    with pytest.raises(stf.PartitionError, match=text):
        old[0].pick_stream(stf.exec_place_resources())
    with pytest.raises(stf.PartitionError, match=text), old[0]:
        pass
    with pytest.raises(
        stf.PartitionError, match=r"within= is a place that repartition\(\) replaced|was replaced"
    ):
        stf.green_places(8, within=old[0])
    with pytest.raises(stf.PartitionError, match=r"was replaced by repartition\(\)"):
        stf.exec_place.rest(old[:1])
    with pytest.raises(stf.PartitionError, match=r"was replaced by repartition\(\)"):
        stf.repartition(old, 8, 1)
    check_good(new)


def test_sms_of_old_places_are_free_while_somebody_keeps_these():
    old = stf.green_places(8, 15)
    new = stf.repartition(old, 8, 1)
    assert sizes(new) == [8] and new.plan.remainder == 124
    assert len(stf.green_places(8)) == 14
    assert sizes(old) == [8] * 15


def test_a_place_that_was_replaced_is_not_its_successor_on_the_same_context():
    old = stf.green_places([16, 24])
    new = stf.repartition(old, [16, 24])
    assert not set(old) & set(new)
    for place in new:
        assert stf.exec_place.from_context(place.backing_context) == place
        assert stf.exec_place.from_context(place.backing_context.handle) == place


def test_some_places_change_and_others_stay(machine):
    places = stf.green_places(8, 6)
    check_good(places)
    changed, kept = places[:2], places[2:]
    new = stf.repartition(changed, [16, 24])
    assert sizes(new) == [16, 24]
    check_disjoint(machine, [*new, *kept])
    check_good([*new, *kept])
    with pytest.raises(stf.PartitionError, match="one split of a device lives at a time"):
        stf.repartition(new, 2, 4, fine_grained=True)
    check_good([*new, *kept])


def test_the_remainder_stays_held():
    places = stf.green_places(8, 2)
    rest = places.remainder
    with pytest.raises(stf.PartitionError, match=r"live place.* of .*remainder"):
        stf.repartition(places, 8, 3)
    assert sizes(stf.repartition([*places, rest], 32, 4)) == [32] * 4


def test_a_request_that_cannot_be_met_leaves_the_places_good():
    places = stf.green_places(16, 4)
    for asked, options in [((64, 3), {}), ((12, 2), {"exact": True}), ((133,), {}), (([8, 200],), {})]:
        with pytest.raises(
            stf.PartitionError, match=r"repartition\(.*\) cannot be met: .*the nearest that can is \["
        ):
            stf.repartition(places, *asked, **options)
        check_good(places)
    with pytest.raises(TypeError):
        stf.repartition(places, "8")
    check_good(places)
    assert len(stf.repartition(places, 8)) == 15


def test_what_is_no_place_of_one_split_is_refused(machine):
    places = stf.green_places(16, 2)
    inner = stf.green_places(8, 1, within=places[0])
    with pytest.raises(stf.PartitionError, match=r"repartition\(\) takes one place or more: got none"):
        stf.repartition([], 8)
    with pytest.raises(
        stf.PartitionError, match=r"repartition\(\) takes places of green_places\(\): got exec_place"
    ):
        stf.repartition([stf.exec_place.device(0)], 8)
    with pytest.raises(TypeError, match=r"repartition\(\) takes places of green_places\(\): got 8 \(int\)"):
        stf.repartition([8], 8)
    with pytest.raises(stf.PartitionError, match=r"repartition\(\) takes places of one split"):
        stf.repartition([places[1], inner[0]], 8)
    check_good([*places, *inner])


def test_a_place_named_twice_is_one_place():
    places = stf.green_places(16, 2)
    new = stf.repartition([*places, places[0]], 8, 3)
    check_good(new)
    with stf.context() as ctx, pytest.raises(stf.PartitionError, match="replaced"):
        ctx.task(places[0], ctx.token().rw()).start()


def test_places_within_come_first(machine):
    parent, other = stf.green_places(56, 1)[0], stf.green_places(8, 1)[0]
    inner = stf.green_places(16, 2, within=parent)
    with pytest.raises(stf.PartitionError, match="a place that is split further cannot be repartitioned"):
        stf.repartition([parent], 8)
    check_good([parent, *inner])
    inner = stf.repartition(inner, [8, 40])
    assert sizes(inner) == [8, 40]
    check_disjoint(machine, [*inner, other])
    check_good(inner)
    del inner
    assert sizes(stf.repartition([parent], 16, 4)) == [16] * 4


# ---- Beside work -----------------------------------------------------------------------------------------


def test_an_open_task_is_refused_and_goes_on():
    places = stf.green_places(16, 2)
    for target in (places[1], stf.exec_place_grid.create(places)):
        with stf.context() as ctx:
            token = ctx.token()
            with ctx.task(target, token.rw()):
                with pytest.raises(
                    stf.TaskStateError,
                    match=r"a task on a place of 16 SMs is open in this thread: end it before repartition\(\)",
                ):
                    stf.repartition(places, 8)
                check_good(places)
            with ctx.task(places[0], token.rw()):
                pass
        check_good(places)
    assert len(stf.repartition(places, 8)) == 15


def test_a_task_that_is_open_in_another_thread_is_waited_for(machine):
    places = stf.green_places(16, 2)
    opened, may_end, order = threading.Event(), threading.Event(), []

    def work():
        with stf.context() as ctx, ctx.task(places[0], ctx.token().rw()):
            opened.set()
            may_end.wait(30)
            order.append("ended")

    thread = threading.Thread(target=work)
    thread.start()
    assert opened.wait(30)
    threading.Timer(0.1, may_end.set).start()
    new = stf.repartition(places, 8, 2)
    order.append("repartitioned")
    thread.join()
    assert order == ["ended", "repartitioned"]
    assert [place.sm_count for place in new] == [8, 8]


def test_a_task_that_failed_to_start_is_not_open():
    places = stf.green_places(16, 2)
    with stf.context() as ctx, stf.context() as other:
        with pytest.raises(stf.WrongContext):
            ctx.task(places[0], other.token().rw()).start()
        t = ctx.task(places[0], ctx.token().rw())
        new = stf.repartition(places, 8, 2)
        with pytest.raises(stf.PartitionError, match="replaced"):
            t.start()
        check_good(new)


def test_work_of_tasks_and_streams_is_waited_for(machine):
    places, resources, seen = stf.green_places(16, 2), stf.exec_place_resources(), []
    stream = places[1].pick_stream(resources)

    def note(what):
        time.sleep(0.05)
        seen.append(what)

    with stf.context() as ctx:
        for what in range(3):
            with ctx.task(places[0], ctx.token().rw()) as t:
                t.run(note, what)
        machine._driver.host_function(int(stream), lambda: note("stream"))
        new = stf.repartition(places, 40, 3)
        assert sorted(map(str, seen)) == ["0", "1", "2", "stream"]
        check_good(new)


def test_data_on_old_places_keeps_its_value():
    places, source = stf.green_places(64, 2), np.arange(5.0)
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        for count in (8, 40, 16, 64):
            filled = ctx.logical_data_full(5, float(count), exec_place=places[0])
            with ctx.task(places[-1], data.rw()):
                pass
            places = stf.repartition(places, count)
            assert (ctx.wait(filled) == count).all()
        assert np.array_equal(ctx.wait(data), np.arange(5.0))


class Load:
    """Threads that mark numbers in data of their own, on whatever the places are at that moment."""

    def __init__(self, machine, places):
        self.driver, self.places = machine._driver, places
        self.stop, self.failures, self.done = threading.Event(), [], []
        self.threads = [threading.Thread(target=self.guarded, args=(k,)) for k in range(3)]

    def guarded(self, number):
        try:
            self.work(number)
        except BaseException as error:
            self.failures.append(error)

    def work(self, number):
        source, expected, done, seen = np.zeros(256), np.zeros(256), 0, []
        with stf.context() as ctx:
            data = ctx.logical_data(source)
            while not self.stop.is_set() or done < 20:
                try:
                    t = ctx.task(self.places[(done + number) % len(self.places)], data.rw()).start()
                except (stf.PartitionError, IndexError):
                    continue  # replaced since it was looked up
                value = np.float64(done + 1)
                self.driver.fill(t.get_arg(0) + 8 * (done % 256), 0, value.tobytes(), 1, int(t.stream_ptr()))
                t.run(seen.append, done)
                t.end()
                expected[done % 256] = value
                done += 1
                if done % 16 == 0:
                    assert np.array_equal(ctx.wait(data), expected)
        assert np.array_equal(source, expected) and seen == list(range(done))
        self.done.append(done)

    def repartition(self, asked):
        """Try until no task is open at that moment."""
        for _ in range(100000):
            try:
                return stf.repartition(self.places, asked)
            except stf.TaskStateError:
                time.sleep(0)
        pytest.fail("a task is open at each moment")


def test_a_hundred_repartitions_under_load_lose_nothing(machine):
    load = Load(machine, stf.green_places(8))
    for thread in load.threads:
        thread.start()
    try:
        for _, asked in zip(range(100), itertools.cycle([64, [16, 40, 8], 32, 8, [88, 24]]), strict=False):
            load.places = load.repartition(asked)
            check_disjoint(machine, load.places)
    finally:
        load.stop.set()
        for thread in load.threads:
            thread.join()
    assert load.failures == [] and len(load.done) == 3
    assert not machine.simulated or machine.conflicts == ()


# ---- Beside other threads --------------------------------------------------------------------------------


def at_once(*calls):
    """Call all at once, each on a thread of its own, and return results and refusals."""
    results, failures, barrier = [], [], threading.Barrier(len(calls))

    def work(call):
        barrier.wait()
        try:
            results.append(call())
        except stf.PartitionError as error:
            failures.append(error.with_traceback(None))

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) + len(failures) == len(calls)
    return results, failures


@pytest.mark.parametrize(
    ("asked", "winners"), [((16, 3), 2), ((8, 9), 1), ((72, 1), 1), (([24, 16],), 2)], ids=str
)
def test_threads_that_partition_at_once_never_overlap(machine, asked, winners):
    for _ in range(25):
        results, failures = at_once(*[lambda: stf.green_places(*asked)] * 2)
        assert len(results) == winners and len(failures) == 2 - winners
        check_disjoint(machine, [place for places in results for place in places])
        del results


def test_of_threads_that_repartition_the_same_places_one_wins(machine):
    places = stf.green_places(16, 8)
    for _ in range(25):
        results, failures = at_once(*[lambda p=places: stf.repartition(p, 16, 8)] * 3)
        assert len(results) == 1 and len(failures) == 2
        assert all("replaced" in str(error) for error in failures)
        places = results[0]
        check_disjoint(machine, places)
    check_good(places)


def test_threads_that_repartition_different_places_do_not_meet(machine):
    first, second = stf.green_places(8, 4), stf.green_places(8, 4)
    for asked in itertools.chain(*[([16, 16], [24, 8], [8] * 4)] * 8):
        results, failures = at_once(
            lambda p=first, a=asked: stf.repartition(p, a),
            lambda p=second, a=asked: stf.repartition(p, a),
            lambda: [stf.exec_place.host() for _ in range(3) if stf.plan_green_places(8)],
        )
        assert failures == []
        first, second = (places for places in results if isinstance(places, stf.GreenPlaces))
        check_disjoint(machine, [*first, *second])
    check_good([*first, *second])


# ---- What is current -------------------------------------------------------------------------------------


def test_a_place_becomes_current_and_gives_way(machine):
    place = stf.green_places(16, 1)[0]
    driver, other = machine._driver, stf.green_places(8, 1)[0]
    before = driver.current_context()
    with place:
        assert driver.current_context() == place.backing_context.handle
        assert stf.exec_place.current_device() == stf.exec_place.device(0)
        with pytest.raises(KeyError), other, stf.exec_place.device(0), other:
            assert driver.current_context() == other.backing_context.handle
            raise KeyError
        assert driver.current_context() == place.backing_context.handle
    assert driver.current_context() == before


def refused(*args, **options):
    with pytest.raises((stf.StfError, ValueError, TypeError)):
        stf.green_places(*args, **options)


CALLS = {
    "plan": lambda p, last: stf.plan_green_places(8, device_id=last),
    "make": lambda p, last: stf.green_places(8, 1, last),
    "as many": lambda p, last: stf.green_places(8),
    "refused": lambda p, last: refused(64, 5),
    "bad count": lambda p, last: refused("8"),
    "no device": lambda p, last: refused(8, 1, 99),
    "within": lambda p, last: stf.green_places(8, within=p[0]),
    "within, anew": lambda p, last: stf.green_places(2, within=p[0], fine_grained=True),
    "remainder": lambda p, last: p.remainder,
    "rest": lambda p, last: stf.exec_place.rest(p),
    "repartition": lambda p, last: stf.repartition(p, [8, 24]),
    "from_context": lambda p, last: stf.exec_place.from_context(p[0].backing_context.handle),
    "allocate": lambda p, last: stf.DeviceArray.from_host(np.ones(3), p[0].affine_data_place),
    "stream": lambda p, last: p[1].pick_stream(stf.exec_place_resources()),
    "let go": lambda p, last: p.clear(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("current", ["as it is", "primary", "last primary", "green"])
def test_what_is_current_stays_current(machine, call, current):
    driver, last = machine._driver, machine.device_count - 1
    places = stf.green_places(16, 2)
    chosen = {
        "as it is": contextlib.nullcontext(),
        "primary": stf.exec_place.device(0),
        "last primary": stf.exec_place.device(last),
        "green": places[1],
    }
    with chosen[current]:
        before = driver.current_context()
        device = stf.exec_place.current_device()
        call(places, last)
        assert driver.current_context() == before
        assert stf.exec_place.current_device() == device


def test_a_new_thread_keeps_having_no_context(machine):
    seen = []

    def work():
        places = stf.green_places(8, 2)
        with stf.context() as ctx, ctx.task(places[0], ctx.token().rw()):
            pass
        seen.append(machine._driver.current_context())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]
