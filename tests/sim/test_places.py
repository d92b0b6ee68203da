"""Places as values, grids, streams of places, activation."""

import pickle
import threading

import numpy as np
import pytest

from stf_places import errors
from stf_places.machines import use_machine
from stf_places.places import (
    CudaStream,
    async_resources,
    data_place,
    exec_place,
    exec_place_grid,
    exec_place_resources,
)


def grid_of(count, dims=None):
    return exec_place_grid.create([exec_place.device(i) for i in range(count)], dims)


# ---- Values


def test_places_are_compared_by_what_they_are():
    assert exec_place.device(1) == exec_place.device(1) != exec_place.device(0)
    assert exec_place.host() != exec_place.device(0)
    assert data_place.device(1) == data_place.device(1) != data_place.device(0)
    assert len({data_place.host(), data_place.managed(), data_place.affine(), data_place.host()}) == 3
    assert len({exec_place.device(0), exec_place.device(0), exec_place.host()}) == 2
    assert exec_place.device(0) != data_place.device(0)
    assert exec_place.device(0) != grid_of(1)


def test_grids_are_compared_by_places_shape_and_axes():
    assert grid_of(4, (2, 2)) == grid_of(4, (2, 2))
    assert hash(grid_of(4, (2, 2))) == hash(grid_of(4, (2, 2)))
    assert grid_of(4, (2, 2)) != grid_of(4)
    assert grid_of(2) != exec_place_grid.from_devices([1, 0])
    assert exec_place_grid.from_devices([0, 1], axes=("gpu",)) != grid_of(2)
    assert len({grid_of(2), grid_of(2).reshape(2, axes=("x",)), grid_of(2).reshape(2, axes=("y",))}) == 2


@pytest.mark.parametrize(
    ("place", "kind", "device"),
    [
        (data_place.host(), "host", -1),
        (data_place.device(3), "device", 3),
        (data_place.managed(), "managed", -1),
        (data_place.affine(), "affine", -1),
        (exec_place.host(), "host", -1),
        (exec_place.device(3), "device", 3),
        (grid_of(2), "grid", -1),
    ],
)
def test_kind_and_device(place, kind, device):
    assert (place.kind, place.device_id) == (kind, device)


@pytest.mark.parametrize(
    "place",
    [
        data_place.host(),
        data_place.device(2),
        data_place.managed(),
        data_place.affine(),
        exec_place.host(),
        exec_place.device(2),
        grid_of(3),
        grid_of(4, (2, 2)),
        grid_of(3).reshape(3, axes=("gpu",)),
        grid_of(4).reshape((2, 2), axes=("node's", "gpu")),
        grid_of(4, (2, 2))[0],
    ],
    ids=lambda place: repr(place).partition("  #")[0],
)
def test_repr_and_pickle_read_back(place, simulated):
    names = {"data_place": data_place, "exec_place": exec_place, "exec_place_grid": exec_place_grid}
    assert eval(repr(place), names) == place
    assert repr(place).endswith("  # simulated h200x2")
    assert pickle.loads(pickle.dumps(place)) == place


@pytest.mark.gpu
def test_repr_on_a_real_machine_has_no_note(cuda):
    with use_machine("cuda"):
        assert repr(exec_place.device(0)) == "exec_place.device(0)"


@pytest.mark.parametrize("make", [exec_place.device, data_place.device])
def test_ordinals_are_checked(make):
    with pytest.raises(ValueError, match=r"device ordinals count from 0: got -1"):
        make(-1)
    for wrong in (1.5, "0", True, None):
        with pytest.raises(TypeError, match=r"a device is an int, its ordinal: got"):
            make(wrong)
    assert make(np.int64(1)) == make(1)


@pytest.mark.parametrize("kind", [exec_place, data_place, exec_place_grid])
def test_places_are_made_by_their_static_methods(kind):
    with pytest.raises(TypeError, match="is made by"):
        kind()


def test_single_places_have_the_size_of_one():
    place = exec_place.device(1)
    assert (place.size, place.dims, place.backing_context) == (1, (1, 1, 1, 1), None)
    assert place.get_place(0) is place
    with pytest.raises(IndexError, match="a single place has the index 0 only: got 1"):
        place.get_place(1)


# ---- Affine data places


def test_affine_data_place():
    assert exec_place.device(1).affine_data_place == data_place.device(1)
    assert exec_place.host().affine_data_place == data_place.host()
    assert grid_of(2).affine_data_place is None
    assert grid_of(2)[1:].affine_data_place == data_place.device(1)
    assert exec_place_grid.from_devices([1, 1]).affine_data_place == data_place.device(1)
    assert exec_place_grid.create([exec_place.host()] * 2).affine_data_place == data_place.host()
    assert exec_place_grid.create([exec_place.device(0), exec_place.host()]).affine_data_place is None


def test_the_setter_changes_one_object_alone():
    changed, other = exec_place.device(0), exec_place.device(0)
    changed.set_affine_data_place(data_place.managed())
    assert changed.affine_data_place == data_place.managed()
    assert other.affine_data_place == data_place.device(0)
    assert exec_place.device(0).affine_data_place == data_place.device(0)
    assert changed == other
    with pytest.raises(ValueError, match="the data place of a place is one place with memory"):
        other.set_affine_data_place(data_place.affine())
    with pytest.raises(TypeError):
        other.set_affine_data_place(exec_place.device(0))


# ---- Grids


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 1, 2), (1, 2, 1, 3)])
@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(None),
        slice(None, None, -1),
        ...,
        (..., 0),
        (-1, ...),
        (slice(0, 1),),
        (0, ..., slice(0, 1)),
    ],
    ids=repr,
)
def test_indexing_follows_numpy(shape, key):
    grid = grid_of(6, shape)
    numbers = np.arange(6).reshape(shape)
    if isinstance(key, tuple) and len(key) - (... in key) > len(shape):
        with pytest.raises(IndexError, match="too many indices"):
            grid[key]
        return
    expected = numbers[key]
    found = grid[key]
    if np.ndim(expected) == 0:
        assert found == exec_place.device(int(expected))
    else:
        assert found.shape == expected.shape
        assert [place.device_id for place in found.places] == expected.ravel().tolist()


def test_lengths_and_iteration_of_a_grid():
    grid = grid_of(6, (2, 3))
    assert (grid.size, grid.dims, grid.shape, len(grid)) == (6, (2, 3, 1, 1), (2, 3), 2)
    assert [row.places for row in grid] == [grid.places[:3], grid.places[3:]]
    assert list(grid_of(2)) == [exec_place.device(0), exec_place.device(1)]
    assert [grid.get_place(i).device_id for i in range(6)] == list(range(6))
    assert exec_place_grid.from_devices(range(2)) == grid_of(2)
    assert grid_of(200).size == 200


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ((), "a grid has 1 to 4 axes: got 0"),
        ((1, 1, 1, 1, 6), "a grid has 1 to 4 axes: got 5"),
        ((2, 0, 3), "each axis of a grid has 1 place or more"),
        ((-2, -3), "each axis of a grid has 1 place or more"),
        ((2, 2), r"got grid_dims=\(2, 2\), which makes 4, and 6 place"),
        (5, r"got grid_dims=\(5,\), which makes 5, and 6 place"),
    ],
)
def test_grid_dims_are_validated(dims, text):
    with pytest.raises(ValueError, match=text):
        grid_of(6, dims)


def test_grids_refuse_what_is_no_place():
    with pytest.raises(TypeError, match=r"for device ordinals use exec_place_grid\.from_devices"):
        exec_place_grid.create([0, 1])
    for wrong in (exec_place.device(0), 2, "xy"):
        with pytest.raises(
            TypeError, match=r"places is a sequence of exec_place objects: got .*give \[place\]"
        ):
            exec_place_grid.create(wrong)
    with pytest.raises(ValueError, match="a grid has 1 place or more: got none"):
        exec_place_grid.from_devices([])
    with pytest.raises(TypeError, match="device_ids is a sequence of device ordinals: got 2"):
        exec_place_grid.from_devices(2)
    with pytest.raises(TypeError, match="grid_dims is an int or a sequence of ints: got 'xy'"):
        grid_of(2, "xy")
    with pytest.raises(TypeError, match=r"by a mapper .*: got 3 \(int\)"):
        exec_place_grid.create([exec_place.device(0)], mapper=3)


def test_grid_indices_are_checked():
    grid = grid_of(6, (2, 3))
    with pytest.raises(IndexError, match=r"index 3 is outside axis 1 of a grid of shape \(2, 3\)"):
        grid[0, 3]
    with pytest.raises(IndexError, match="index -3 is outside axis 0"):
        grid[-3]
    with pytest.raises(IndexError, match="one ellipsis"):
        grid[..., ...]
    with pytest.raises(TypeError, match=r"a grid is indexed with ints, slices and '\.\.\.': got 1\.0"):
        grid[1.0]
    with pytest.raises(ValueError, match=r"slice\(2, None, None\) selects none of a grid of shape \(2, 3\)"):
        grid[2:]
    for wrong in (6, -1):
        with pytest.raises(IndexError, match="places of this grid are numbered 0 to 5, in C order"):
            grid.get_place(wrong)


# ---- Streams


def test_streams_come_in_turn_and_are_told_apart(machine):
    resources = exec_place_resources()
    place = exec_place.device(0)
    streams = [place.pick_stream(resources) for _ in range(32)]
    assert 1 < len(set(streams)) < 32
    assert streams[0] is next(stream for stream in streams[1:] if stream == streams[0])
    assert not set(streams) & {place.pick_stream(resources, False) for _ in range(8)}
    assert all(isinstance(stream, CudaStream) and stream.ptr == int(stream) != 0 for stream in streams)
    assert all(stream.simulated == machine.simulated for stream in streams)
    grid = exec_place_grid.from_devices([0])
    assert grid.pick_stream(async_resources()) not in streams


def test_only_real_streams_go_to_cuda(machine):
    stream = exec_place.device(0).pick_stream(resources := exec_place_resources())
    if machine.simulated:
        with pytest.raises(
            errors.NotSupported, match="belongs to a simulated machine and cannot be given to CUDA"
        ):
            stream.__cuda_stream__()
    else:
        assert stream.__cuda_stream__() == (0, int(stream))
    del resources


def test_stream_arguments(machine):
    stream = exec_place.device(0).pick_stream(resources := exec_place_resources())
    place = data_place.device(0)
    for good in (None, 0, stream, stream.ptr, np.uint64(stream.ptr)):
        place.deallocate(place.allocate(64, good), 64, good)
    for wrong in ("0", 1.0, True, object()):
        with pytest.raises(
            TypeError, match=r"a stream is None, an int .* or an object with __cuda_stream__: got"
        ):
            place.allocate(64, wrong)
    with pytest.raises(ValueError, match=r"a stream handle is a number from 0 to 2\*\*64 - 1: got -1"):
        place.allocate(64, -1)
    del resources


class ForeignStream:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


def test_foreign_streams(machine):
    place = data_place.device(0)
    if machine.simulated:
        with pytest.raises(
            errors.WrongContext, match=r"takes streams of its own only: got a CUDA stream \(ForeignStream\)"
        ):
            place.allocate(64, ForeignStream((0, 1)))
        with pytest.raises(errors.WrongContext, match="is simulated and has no stream 123456789"):
            place.allocate(64, 123456789)
        with pytest.raises(errors.WrongContext, match="the stream belongs to a CUDA machine"):
            place.allocate(64, CudaStream(5))
        return
    stream = ForeignStream((0, 1))
    place.deallocate(place.allocate(64, stream), 64, stream)
    with pytest.raises(
        TypeError, match=r"__cuda_stream__ returns \(version, handle\): ForeignStream returned 7"
    ):
        place.allocate(64, ForeignStream(7))
    with pytest.raises(
        ValueError, match="version 0 of the __cuda_stream__ protocol is known: ForeignStream returned"
    ):
        place.allocate(64, ForeignStream((1, 1)))


def test_missing_devices_are_named_at_first_use(machine):
    place = exec_place.device(99)
    text = rf"device 99 does not exist: this machine \({machine.name}\) has {machine.device_count} device"
    with pytest.raises(errors.InvalidDevice, match=text):
        place.pick_stream(exec_place_resources())
    with pytest.raises(errors.InvalidDevice, match=text), place:
        pass
    with pytest.raises(errors.InvalidDevice, match=text):
        data_place.device(99).allocate(8)


# ---- Memory


@pytest.mark.parametrize("place", [data_place.host(), data_place.device(0), data_place.managed()])
def test_allocate_and_deallocate(machine, place):
    address = place.allocate(1000)
    assert address != 0
    assert place.allocation_is_stream_ordered == (place.kind == "device")
    place.deallocate(address, 1000)
    assert place.allocate(0) == 0
    place.deallocate(0, 0)
    with pytest.raises(ValueError, match=r"nbytes is from 0 to 2\*\*63 - 1: got -1"):
        place.allocate(-1)
    with pytest.raises(TypeError, match=r"nbytes is an int: got 1.5 \(float\)"):
        place.allocate(1.5)
    if place.kind == "device":  # too much managed memory can hang a GPU
        with pytest.raises(errors.OutOfMemory):
            place.allocate(1 << 55)
    if machine.simulated:
        assert machine.live_allocations == 0


def test_what_has_no_memory_is_refused(machine):
    with pytest.raises(ValueError, match=r"affine\(\) has no memory of its own"):
        data_place.affine().allocate(8)


def test_giving_back_twice_is_an_error(simulated):
    address = data_place.device(0).allocate(8)
    data_place.device(0).deallocate(address, 8)
    with pytest.raises(errors.DriverError):
        data_place.device(0).deallocate(address, 8)


# ---- Activation


def test_places_become_current_and_nest(machine):
    driver = machine._driver
    before = driver.current_context()
    last = machine.device_count - 1
    with exec_place.device(last) as place:
        assert driver.current_context() == driver.primary_context(last)
        assert exec_place.current_device() == place
        assert data_place.current_device() == data_place.device(last)
        with pytest.raises(KeyError), exec_place.device(0), place, exec_place.device(0):
            assert driver.current_context() == driver.primary_context(0)
            raise KeyError
        assert driver.current_context() == driver.primary_context(last)
        with exec_place.host():
            assert driver.current_context() == driver.primary_context(last)
    assert driver.current_context() == before


def test_activation_belongs_to_its_thread(machine):
    driver = machine._driver
    seen = []
    with exec_place.device(0) as place:

        def other():
            seen.append(driver.current_context())
            try:
                place.__exit__(None, None, None)
            except errors.TaskStateError as error:
                seen.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen[0] == 0
    assert "a place is left by the thread that entered it" in seen[1]


def test_a_block_restores_on_its_own_machine(simulated):
    with exec_place.device(1):
        with use_machine("sim:h200x2") as other:
            assert other._driver.current_context() == 0
            with exec_place.device(0):
                assert other._driver.current_context() == other._driver.primary_context(0)
            assert other._driver.current_context() == 0
    assert simulated._driver.current_context() == 0


def test_a_grid_cannot_be_entered(simulated):
    with pytest.raises(TypeError, match=r"a grid of 2 place\(s\) cannot be entered; enter one of its places"):
        grid_of(2).__enter__()
