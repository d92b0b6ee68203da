"""Who can use composite data beside the devices of its grid, and grids that list a place often."""

from array import array

import numpy as np
import pytest

import stf_places as stf
from stf_places import blocked, data_place, exec_place, exec_place_grid

LINE = stf.partition(blocked("x"))


def test_a_device_outside_the_grid_reads_and_writes_all_pages():
    values = np.random.default_rng(1).random(3 << 20)
    with stf.use_machine("sim:h200x4") as machine, stf.context() as ctx:
        place = data_place.composite(exec_place_grid.from_devices([0, 1]), LINE)
        data = ctx.logical_data(values.copy())
        for _ in range(2):
            with ctx.task(exec_place.device(3), data.rw(place)) as t:
                t.numpy(0)[:] *= 2
        result = ctx.wait(data)
        assert machine.conflicts == ()
    np.testing.assert_array_equal(result, values * 4)


def test_a_device_that_reaches_no_pages_is_refused_by_name():
    with stf.use_machine("sim:nopeer2"), stf.context() as ctx:
        data = ctx.logical_data(np.ones(8))
        place = data_place.device(0)
        with pytest.raises(ValueError, match=r"on device\(1\) cannot use .* no peer access"):
            ctx.task(exec_place.device(1), data.read(place)).start()


@pytest.mark.parametrize("count", [9, 20])
def test_a_device_can_stand_in_a_grid_more_often_than_it_has_streams(machine, count):
    grid = exec_place_grid.from_devices([0] * count).with_data(LINE)
    values = np.arange(1000)
    with stf.context() as ctx:
        data = ctx.logical_data_full(1000, 0, np.int64, exec_place=grid)
        with ctx.task(grid, data.rw()) as t:
            assert len(t.get_stream_ptrs()) == count
            assert 1 < len({int(stream) for stream in t.get_stream_ptrs()}) <= 8
            if machine.simulated:
                for shard in t.shards(0):
                    shard.run(lambda view, part: view.__iadd__(part), shard.numpy(), values[shard.box])
        total = stf.reduce(ctx, data, place=grid)
        assert ctx.wait(total)[0] == (values.sum() if machine.simulated else 0)


def test_a_task_gives_its_streams_back_that_its_places_share(machine):
    grid = exec_place_grid.from_devices([0] * 9)
    with stf.context() as ctx:
        token = ctx.token()
        for _ in range(3):
            with ctx.task(grid, token.rw()), ctx.task(exec_place.host(), ctx.token().rw()):
                pass
        with ctx.task(exec_place.device(0), token.rw()) as t:
            assert int(t.stream_ptr())


@pytest.mark.parametrize(
    ("make", "grow", "error"),
    [
        (lambda: np.arange(10.0), lambda a: a.resize(20), ValueError),
        (lambda: bytearray(16), lambda b: b.extend(b"more"), BufferError),
        (lambda: array("d", [1.0, 2.0]), lambda a: a.append(3.0), BufferError),
    ],
    ids=["numpy", "bytearray", "array"],
)
def test_a_buffer_in_use_cannot_be_resized(machine, make, grow, error):
    buffer = make()
    with stf.context() as ctx:
        data = ctx.logical_data(buffer)
        with pytest.raises(error):
            grow(buffer)
        assert len(ctx.wait(data)) == len(buffer)
