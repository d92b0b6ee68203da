"""How room is made for composite data and beside it, on machines too large to hold: only the model runs."""

import gc

import numpy as np
import pytest

import stf_places as stf
from stf_places import blocked, data_place, exec_place, exec_place_grid

GIB = 1 << 30
MOST = 90 * GIB  # more than half of a device
PAIR = exec_place_grid.from_devices([0, 1]).with_data(blocked("x"))


def line(*devices):
    return data_place.composite(exec_place_grid.from_devices(devices), blocked("x"))


@pytest.fixture
def large():
    with stf.use_machine("sim:h200x4", execute=False) as chosen:
        yield chosen


@pytest.fixture
def stream(large):
    resources = stf.exec_place_resources()
    yield exec_place.device(0).pick_stream(resources)
    del resources


def write_pair(stream):
    """Write composite data in a context on a caller's stream, which ends without waiting."""
    ctx = stf.context(stream=stream)
    data = ctx.logical_data_empty((2 * MOST,), np.uint8)
    with ctx.task(PAIR, data.write()):
        pass
    del data
    ctx.finalize()


def test_ranges_of_a_callers_stream_are_used_again(large, stream):
    for _ in range(3):
        write_pair(stream)
    assert [large.used_memory(device) for device in (0, 1)] == [MOST, MOST]


def test_ranges_of_a_callers_stream_make_room_for_arrays(stream):
    write_pair(stream)
    assert stf.DeviceArray(MOST, np.uint8, data_place.device(0)).nbytes == MOST


def test_ranges_of_a_callers_stream_make_room_for_other_contexts(large, stream):
    with stf.context() as ctx:
        write_pair(stream)
        data = ctx.logical_data_empty((MOST,), np.uint8)
        with ctx.task(exec_place.device(1), data.write()):
            assert [large.used_memory(device) for device in (0, 1)] == [0, MOST]


def test_an_array_gets_room_on_one_device_after_the_other(large):
    for devices in ((0, 1), (2, 3)):
        stf.DeviceArray(2 * MOST, np.uint8, line(*devices))
    assert stf.DeviceArray(2 * MOST, np.uint8, line(0, 2)).nbytes == 2 * MOST


@pytest.mark.parametrize("steps", ["stale", "invalid", "back"])
def test_a_value_makes_room_for_its_other_copies(large, steps):
    with stf.context() as ctx:
        data = ctx.logical_data_empty((120 * GIB,), np.uint8, name="u")
        first, second = (PAIR, exec_place.device(0)) if steps == "back" else (exec_place.device(0), PAIR)
        with ctx.task(first, data.write()):
            pass
        if steps == "invalid":
            with ctx.task(exec_place.host(), data.write()):
                pass
        with ctx.task(second, data.write() if steps == "stale" else data.read()):
            pass
        assert ctx.stats.evictions == 1


def test_what_holds_a_full_device_is_named_other_copies_included(large):
    with stf.context() as ctx:
        data = ctx.logical_data_empty((120 * GIB,), np.uint8, name="u")
        with ctx.task(PAIR, data.write()) as t:
            assert t.get_arg(0)
            other = ctx.logical_data_empty((120 * GIB,), np.uint8, name="v")
            with pytest.raises(
                stf.OutOfMemory, match=r"'v'.*device\(0\).* holds 64424509440 bytes: 'u' .*in use"
            ):
                ctx.task(exec_place.device(0), other.write()).start()


def test_partitions_are_free_once_the_last_reference_goes_without_a_collection():
    gc.disable()
    try:
        with stf.use_machine("sim:h200x2"):
            grid = exec_place_grid.create(stf.green_places(64, 2)).with_data(blocked("x"))
            with stf.context() as ctx:
                data = ctx.logical_data_zeros(1 << 20, np.float64)
                with ctx.task(grid, data.rw()) as t:
                    assert len(t.shards(0)) == 2
                del data, t
            del grid, ctx
            assert len(stf.green_places(64, 2)) == 2
    finally:
        gc.enable()


def test_the_host_fills_composite_memory_of_other_devices():
    with stf.use_machine("sim:h200x4"), stf.context() as ctx:
        data = ctx.logical_data_full((1 << 20,), 2.0, where=line(1, 2), exec_place=exec_place.host())
        assert ctx.wait(data).sum() == 2 << 20


def test_parts_of_an_ended_task_are_refused():
    with stf.use_machine("sim:h200x2"), stf.context() as ctx:
        data = ctx.logical_data(np.zeros(8))
        with ctx.task(PAIR, data.rw()) as t:
            (shard, *_) = t.shards(0)
        for use in (
            lambda: t.part(0, 0, 0, (1,), (8,)),
            lambda: t.touch(0, []),
            lambda: shard.view,
            shard.numpy,
        ):
            with pytest.raises(stf.TaskStateError):
                use()


@pytest.mark.parametrize("first", ["replicated", "plain"])
def test_what_one_place_cannot_reach_is_refused_beside_replicas_too(first):
    with stf.use_machine("sim:nopeer2"), stf.context() as ctx:
        data = ctx.logical_data(np.arange(8.0))
        deps = [data.read(data_place.replicated()), data.read(data_place.device(0))]
        with pytest.raises(ValueError, match=r"on device\(1\) cannot use"):
            ctx.task(
                exec_place_grid.from_devices([0, 1]), *(deps if first == "replicated" else deps[::-1])
            ).start()


def test_only_arrays_of_ours_lie_on_composite_places():
    class Foreign:
        def __init__(self, array):
            self.__cuda_array_interface__ = dict(array.__array_interface__, version=3)

    with stf.use_machine("sim:h200x2"), stf.context() as ctx:
        known = stf.DeviceArray(1 << 20, np.float64, line(0, 1))
        with pytest.raises(
            ValueError, match="memory on a composite data place is a DeviceArray's: got Foreign"
        ):
            ctx.logical_data(Foreign(np.zeros(1 << 20)), known.data_place)
        empty = ctx.logical_data(stf.DeviceArray((0,), np.float64, line(0, 1)))
        with ctx.task(PAIR, empty.rw()):
            pass
