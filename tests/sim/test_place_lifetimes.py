"""Places that are replaced, forgotten, used by several threads or over several machines."""

import gc
import json
import threading
import time
import weakref
from pathlib import Path

import pytest

import stf_places as stf
from stf_places._native import runtime


class Owner:
    """Another library's object around a context."""

    def __init__(self, handle):
        self.handle = handle


def current_context():
    return runtime.current().driver.current_context()


def test_a_replaced_place_does_not_come_back_by_its_context(machine):
    old = stf.green_places(64)
    context = old[0].backing_context
    new = stf.repartition(old, [104])
    with pytest.raises(stf.PartitionError, match="was replaced by repartition"):
        stf.exec_place.from_context(context)
    assert new[0].sm_count == 104


def test_the_same_sms_after_a_repartition_are_another_place(machine):
    old = stf.green_places([16, 24])
    handle = old[0].backing_context.handle
    new = stf.repartition(old, [16, 24])
    assert new[0].backing_context.handle == handle
    assert new[0] != old[0] and len({*new, *old}) == 4
    assert stf.exec_place.from_context(handle) == new[0]
    with pytest.raises(stf.PartitionError, match="was replaced"), stf.context() as ctx:
        ctx.task(old[0], ctx.token().rw()).start()


def test_work_that_a_repartition_waits_for_cannot_ask_for_places(machine):
    places = stf.green_places(64)
    opened, asked = threading.Event(), []

    def work():
        with stf.context() as ctx, ctx.task(places[0], ctx.token().rw()):
            opened.set()
            time.sleep(0.2)
            try:
                stf.plan_green_places(8)
            except stf.TaskStateError as error:
                asked.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    assert opened.wait(30)
    assert stf.repartition(places, [104])[0].sm_count == 104
    thread.join()
    assert asked == ["work that repartition() waits for cannot ask for places of the same SMs"]


def test_no_place_is_split_while_it_is_repartitioned(machine):
    for _ in range(20):
        (place,) = stf.green_places(64, 1)
        barrier, inner = threading.Barrier(2), []

        def split(place=place, barrier=barrier, inner=inner):
            barrier.wait()
            try:
                inner.append(stf.green_places(8, within=place))
            except stf.PartitionError:
                pass

        thread = threading.Thread(target=split)
        thread.start()
        barrier.wait()
        try:
            stf.repartition([place], [32])
        except stf.PartitionError as error:
            assert "split further" in str(error)
        thread.join()
        replaced = not inner
        with stf.context() as ctx:
            if replaced:
                with pytest.raises(stf.PartitionError):
                    ctx.task(place, ctx.token().rw()).start()
            else:
                with ctx.task(place, ctx.token().rw()):
                    pass
        del place, split, inner, thread


def test_a_repartition_waits_for_work_of_inner_places_that_are_gone(simulated):
    driver = runtime.current().driver
    outer = stf.green_places(64)
    inner = stf.green_places(16, within=outer[0])
    resources = stf.exec_place_resources()
    stream = int(inner[0].pick_stream(resources))
    driver.host_work(stream, None, symbol="long", cost_us=1e6)
    del inner
    stf.repartition(outer, [104])
    assert driver.query_stream(stream)


def test_contexts_of_others_are_given_back_without_any_partition(machine):
    handle = runtime.current().driver.primary_context(0)
    gone = []
    for _ in range(50):
        owner = Owner(handle)
        gone.append(weakref.ref(owner))
        place = stf.exec_place.from_context(owner)
        del owner, place
    with stf.context():
        pass
    assert [owner() for owner in gone] == [None] * 50


def test_the_current_context_survives_tasks_that_end_in_any_order(machine):
    before = current_context()
    with stf.context() as ctx:
        for order in ((0, 1), (1, 0)):
            tasks = [ctx.task(stf.exec_place.device(0), ctx.token().rw()).start() for _ in range(2)]
            for number in order:
                tasks[number].end()
            assert current_context() == before


def test_a_task_that_outlives_a_block_leaves_nothing_of_it_current(machine):
    before = current_context()
    place = stf.green_places(8, 1)[0]
    with stf.context() as ctx:
        with place:
            task = ctx.task(place, ctx.token().rw()).start()
        assert current_context() == before
        task.end()
        assert current_context() == before


def test_places_of_two_machines_differ():
    places = []
    for _ in range(2):
        with stf.use_machine("sim:h200x1"):
            places.append(stf.green_places(64)[0])
    assert places[0] != places[1] and len(set(places)) == 2
    assert places[0].backing_context != places[1].backing_context


def test_a_closed_context_stays_in_its_set():
    with stf.use_machine("sim:h200x1"):
        context = stf.green_places(8, 1)[0].backing_context
        known = {context}
        context.close()
        assert context in known


def test_the_remainder_is_that_of_the_places_own_split():
    with stf.use_machine("sim:h200x1"):
        places = stf.green_places(64)
        places.clear()
        other = stf.green_places(8, 2)
        with pytest.raises(stf.PartitionError, match="the split is gone with its last place"):
            places.remainder  # noqa: B018
        assert other.remainder.sm_count == 116


def test_a_partition_has_one_stream_of_its_own():
    with stf.use_machine("sim:h200x1"):
        partition = stf.green_places(8, 1)[0].backing_context._partition
        assert partition.open_stream() == partition.open_stream()


def test_grids_and_contexts_outlive_the_machine_of_their_places():
    with stf.use_machine("sim:h200x1"):
        grid = stf.exec_place_grid.create(stf.green_places(16, 4))
        resources = stf.exec_place_resources()
        stream = int(grid.pick_stream(resources))
        runtime.current().driver.host_work(stream, None, symbol="late", cost_us=50)
    del resources
    gc.collect()
    assert grid.sm_count == 64
    del grid
    gc.collect()


@pytest.fixture
def fine_steps(tmp_path):
    """Return a function that opens a chip whose partitions are multiples of 2 SMs, but 4 at least."""

    def opened(version):
        source = Path(stf.__file__).parent / "machines" / "data" / "h200x1.json"
        described = json.loads(source.read_text())
        described |= {"name": f"steps{version}", "driver_version": version}
        described["devices"][0] |= {
            "sm_count": 108,
            "min_partition": 4,
            "alignment": 2,
            "aligned_sms": 108,
            "resplit_loss": 0,
        }
        path = tmp_path / f"steps{version}.json"
        path.write_text(json.dumps(described))
        return stf.use_machine(f"sim:{path}")

    return opened


@pytest.mark.parametrize(
    ("version", "asked", "granted"),
    [
        (13000, [6, 4], (8, 4)),
        (13000, [10, 8], (12, 8)),
        (13000, [60, 34], (60, 36)),
        (13000, [50, 30, 10], (50, 30, 10)),
        (13010, [6, 4], (6, 4)),
        (13010, [60, 34], (60, 34)),
    ],
)
def test_a_minimum_above_the_step_is_kept(fine_steps, version, asked, granted):
    with fine_steps(version):
        assert stf.plan_green_places(asked).sm_counts == granted
        assert [place.sm_count for place in stf.green_places(asked)] == list(granted)
        assert stf.plan_green_places(asked, exact=True).fits == (list(granted) == asked)


def test_a_group_made_for_one_place_is_not_handed_to_a_much_smaller_one(fine_steps):
    with fine_steps(13010):
        places = stf.green_places([58, 34])
        del places[1]
        with pytest.raises(stf.PartitionError, match="groups of different sizes"):
            stf.green_places(4, 1)
        assert stf.green_places(34, 1)[0].sm_count == 34
