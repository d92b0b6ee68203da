"""Arrays in the memory of a place: values, views, interfaces, lifetime."""

import gc
import warnings

import numpy as np
import pytest

from stf_places import errors
from stf_places.machines import use_machine
from stf_places.places import CudaStream, DeviceArray, data_place, exec_place, exec_place_resources

PLACES = [data_place.host(), data_place.device(0), data_place.managed()]
on_each_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.kind)

KEYS = [
    1,
    -1,
    (),
    ...,
    slice(1, None),
    slice(0, 0),
    (slice(None), 1),
    (..., slice(None, None, -1)),
    (slice(None), slice(None, None, 2), slice(1, 3)),
    (slice(None), -1, slice(None, None, 3)),
    (1, 2, 3),
]


@pytest.fixture
def stream(machine):
    resources = exec_place_resources()
    yield exec_place.device(0).pick_stream(resources)


@on_each_place
@pytest.mark.parametrize("with_stream", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "i1", "?", "c16", ">u2", "M8[s]", [("a", "i4"), ("b", "f8")], "S3"])
def test_values_go_there_and_back(stream, place, with_stream, dtype):
    host = np.arange(1, 13).astype("u1").repeat(np.dtype(dtype).itemsize).view(dtype).reshape(3, 4)
    if dtype == "?":
        host = (np.arange(12) % 3 == 0).reshape(3, 4)
    array = DeviceArray.from_host(host, place, stream if with_stream else None)
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == (
        host.shape,
        host.dtype,
        host.ndim,
        host.size,
        host.nbytes,
    )
    assert array.data_place == place
    found = array.copy_to_host()
    assert found.dtype == host.dtype
    assert found.tobytes() == host.tobytes()


@on_each_place
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_views_read_and_write_as_numpy(machine, place, key):
    host = np.arange(24.0).reshape(2, 3, 4)
    array = DeviceArray.from_host(host, place)
    view = array[key]
    assert view.shape == host[key].shape
    assert np.array_equal(view.copy_to_host(), host[key])
    new = -np.ones(view.shape)
    view.copy_to_device(new)
    host[key] = new
    assert np.array_equal(array.copy_to_host(), host)


def test_views_of_views(machine):
    host = np.arange(60).reshape(5, 4, 3)
    array = DeviceArray.from_host(host, data_place.device(0))
    view = array[1:][::-2, 1:][:, :, 1]
    expected = host[1:][::-2, 1:][:, :, 1]
    assert view.strides == expected.strides
    assert np.array_equal(view.copy_to_host(), expected)


def test_a_view_keeps_the_block(machine):
    view = DeviceArray.from_host(np.arange(10), data_place.device(0))[4:6]
    gc.collect()
    assert view.copy_to_host().tolist() == [4, 5]


def test_lengths(machine):
    assert len(DeviceArray((3, 4), "f4", data_place.device(0))) == 3
    assert len(DeviceArray(5, "f4", data_place.device(0))) == 5
    scalar = DeviceArray((), "f4", data_place.device(0))
    assert (scalar.size, scalar.ndim) == (1, 0)
    with pytest.raises(TypeError, match="an array without axes has no length"):
        len(scalar)


@on_each_place
def test_empty_arrays(machine, place):
    array = DeviceArray((3, 0), "f4", place)
    assert (array.size, array.nbytes, array.ptr) == (0, 0, 0)
    assert array.copy_to_host().shape == (3, 0)
    array.copy_to_device(np.empty((3, 0), "f4"))
    with pytest.raises(ValueError, match="got 4 "):
        array.copy_to_device(np.zeros(1, "f4"))


@pytest.mark.parametrize("count", [0, 3, 5])
@pytest.mark.parametrize("key", [slice(None), slice(0, 4)])
def test_a_source_of_another_size_is_refused(machine, count, key):
    array = DeviceArray.from_host(np.arange(4, dtype="f4"), data_place.device(0))[key]
    with pytest.raises(
        ValueError,
        match=rf"as many bytes as the array, 16 .*: got {4 * count} \(shape \({count},\), float32\)",
    ):
        array.copy_to_device(np.zeros(count, "f4"))
    assert array.copy_to_host().tolist() == [0, 1, 2, 3]


def test_sequences_become_the_arrays_dtype(machine):
    array = DeviceArray(3, "f4", data_place.device(0))
    array.copy_to_device([1, 2, 3])
    assert array.copy_to_host().tolist() == [1.0, 2.0, 3.0]


def test_what_cannot_be_an_array_is_refused(machine):
    place = data_place.device(0)
    cases = [
        (ValueError, "no length of a shape is negative: got", -1, "f4", place),
        (ValueError, "no length of a shape is negative: got", (3, -2), "f4", place),
        (ValueError, r"an array has fewer than 2\*\*63 bytes: got shape", (1 << 40, 1 << 40), "f4", place),
        (ValueError, r"an array has fewer than 2\*\*63 bytes: got shape", (0, 1 << 40, 1 << 40), "f4", place),
        (TypeError, "a shape is an int or a sequence of ints: got 1.5", 1.5, "f4", place),
        (TypeError, "a shape is an int or a sequence of ints: got '12'", "12", "f4", place),
        (TypeError, "dtype object refers to Python objects", 1, object, place),
        (TypeError, "refers to Python objects", 1, [("a", object)], place),
        (TypeError, r"dtype \|S0 has none; give a size", 1, "S", place),
        (TypeError, r"dplace is a data_place: got exec_place.device\(0\)", 1, "f4", exec_place.device(0)),
        (
            ValueError,
            r"an array needs one place with memory: got data_place.affine\(\)",
            1,
            "f4",
            data_place.affine(),
        ),
        (errors.InvalidDevice, "device 99 does not exist", 1, "f4", data_place.device(99)),
        (errors.OutOfMemory, "(?i)out_of_memory", 1 << 52, "f8", place),
    ]
    for error, text, size, dtype, where in cases:
        with pytest.raises(error, match=text):
            DeviceArray(size, dtype, where)
    if machine.simulated:
        assert machine.live_allocations == 0


def test_wrong_indices_are_refused(machine):
    array = DeviceArray((2, 3), "f4", data_place.device(0))
    with pytest.raises(IndexError, match=r"index 3 is outside axis 1 of shape \(2, 3\)"):
        array[0, 3]
    with pytest.raises(IndexError, match=r"too many indices: 3 for an array of shape \(2, 3\)"):
        array[0, 0, 0]
    with pytest.raises(IndexError, match="one ellipsis"):
        array[..., ...]
    for wrong in (1.0, None, [0], True):
        with pytest.raises(TypeError, match=r"a device array is indexed with ints, slices and '\.\.\.'"):
            array[wrong]


def test_repr(simulated):
    array = DeviceArray((2, 3), "f4", data_place.device(1))
    assert (
        repr(array) == "<DeviceArray shape=(2, 3) dtype=float32 on data_place.device(1)  # simulated h200x2>"
    )


# ---- Interfaces


def test_numpy_sees_host_memory(machine):
    host = np.arange(12).reshape(3, 4)
    places = PLACES if machine.simulated else [data_place.host()]
    for place in places:
        array = DeviceArray.from_host(host, place)
        shared = np.asarray(array[:, 1:])
        assert np.array_equal(shared, host[:, 1:])
        shared[0, 0] = 77
        assert array.copy_to_host()[0, 1] == 77
        assert np.array(array, dtype="f4").dtype == np.float32
        del array
        gc.collect()
        assert shared[0, 0] == 77
    records = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])
    assert np.asarray(DeviceArray.from_host(records, data_place.host())).dtype == records.dtype


def test_numpy_does_not_see_device_memory(machine):
    array = DeviceArray(3, "f4", data_place.device(0))
    if machine.simulated:
        assert np.asarray(array).shape == (3,)
        return
    with pytest.raises(errors.NotSupported, match=r"copy_to_host\(\) returns a NumPy array with a copy"):
        np.asarray(array)
    assert not hasattr(array, "__array_interface__")


def test_cuda_array_interface(machine):
    stream = exec_place.device(0).pick_stream(resources := exec_place_resources())
    array = DeviceArray((2, 3), "f4", data_place.device(0))
    assert array.__cuda_array_interface__ == {
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (array.ptr, False),
        "strides": None,
        "version": 3,
        "stream": None,
    }
    view = DeviceArray((2, 3), "f4", data_place.device(0), stream)[:, 1]
    interface = view.__cuda_array_interface__
    assert (interface["strides"], interface["stream"]) == ((12,), int(stream))
    del view, resources


def test_dlpack_shares_and_keeps_the_memory(machine):
    host = np.arange(12, dtype="f4").reshape(3, 4)
    place = data_place.device(0) if machine.simulated else data_place.host()
    array = DeviceArray.from_host(host, place)
    shared = np.from_dlpack(array[::2, 1:])
    assert np.array_equal(shared, host[::2, 1:])
    del array
    gc.collect()
    assert np.array_equal(shared, host[::2, 1:])
    if machine.simulated:
        assert machine.live_allocations == 1
        del shared
        gc.collect()
        machine._driver.drain()
        assert machine.live_allocations == 0


def test_an_unused_capsule_gives_the_memory_back(simulated):
    array = DeviceArray(4, "f4", data_place.device(0))
    capsule = array.__dlpack__()
    assert 'PyCapsule object "dltensor"' in str(capsule) or "dltensor" in repr(capsule)
    del array
    gc.collect()
    assert simulated.live_allocations == 1
    del capsule
    gc.collect()
    simulated._driver.drain()
    assert simulated.live_allocations == 0


def test_dlpack_devices(machine):
    kinds = {place.kind: DeviceArray(1, "f4", place).__dlpack_device__() for place in PLACES}
    if machine.simulated:
        assert set(kinds.values()) == {(1, 0)}
    else:
        assert kinds == {"host": (3, 0), "device": (2, 0), "managed": (13, 0)}


def test_dlpack_arguments_are_checked(stream):
    array = DeviceArray(3, "f4", data_place.device(0), stream)
    for good in (None, -1, 1, 2, int(stream)):
        assert array.__dlpack__(
            stream=good, max_version=(1, 0), dl_device=array.__dlpack_device__(), copy=False
        )
    for wrong in (0, -2):
        with pytest.raises(
            ValueError, match=rf"stream is None, -1, 1, 2 or a stream's handle in __dlpack__: got {wrong}"
        ):
            array.__dlpack__(stream=wrong)
    for odd in (True, "1", 1.0):
        with pytest.raises(TypeError, match="stream is None or an int in __dlpack__"):
            array.__dlpack__(stream=odd)
    with pytest.raises(BufferError, match="the array lies on DLPack device"):
        array.__dlpack__(dl_device=(99, 0))
    with pytest.raises(BufferError, match="the export shares memory"):
        array.__dlpack__(copy=True)
    for dtype in ("M8[s]", ">f4", "S3", [("a", "i4")]):
        with pytest.raises(BufferError, match="DLPack has native integers, floats, complex numbers and bool"):
            DeviceArray(3, dtype, data_place.device(0)).__dlpack__()


# ---- Lifetime


@on_each_place
@pytest.mark.parametrize("with_stream", [False, True])
def test_the_block_goes_back_once(simulated, place, with_stream):
    resources = exec_place_resources()
    stream = exec_place.device(0).pick_stream(resources) if with_stream else None
    array = DeviceArray(1000, "f8", place, stream)
    views = [array[i:] for i in range(5)]
    assert simulated.live_allocations == 1
    del array, views
    gc.collect()
    simulated._driver.drain()
    assert simulated.live_allocations == 0
    assert simulated.conflicts == ()


def test_the_block_goes_back_to_its_own_machine(simulated):
    array = DeviceArray.from_host(np.arange(5), data_place.device(1))
    with use_machine("sim:h200x2") as other:
        assert array.copy_to_host().tolist() == [0, 1, 2, 3, 4]
        del array
        gc.collect()
        simulated._driver.drain()
        assert simulated.live_allocations == 0
        kept = DeviceArray(3, "f4", data_place.device(0))
    assert other.live_allocations == 1
    assert kept.copy_to_host().shape == (3,)


def test_nothing_leaks_when_making_fails(simulated):
    simulated.fail("allocation")
    with pytest.raises(errors.OutOfMemory):
        DeviceArray(10, "f4", data_place.device(0))
    simulated.fail("copy")
    with pytest.raises(errors.DriverError):
        DeviceArray.from_host(np.zeros(10), data_place.device(0))
    gc.collect()
    simulated._driver.drain()
    assert simulated.live_allocations == 0


def test_a_failed_copy_is_reported(simulated):
    array = DeviceArray.from_host(np.arange(6).reshape(2, 3), data_place.device(0))
    simulated.fail("copy", nth=2)
    with pytest.raises(errors.DriverError):
        array[:, 1:].copy_to_host()


def test_a_lost_device_is_silent_at_the_end(simulated):
    array = DeviceArray.from_host(np.arange(6), data_place.device(0))
    simulated.fail("copy", code="device_lost")
    with pytest.raises(errors.DeviceLost):
        array.copy_to_host()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del array
        gc.collect()


def test_a_machine_without_bytes_has_no_values():
    with use_machine("sim:h200x2", execute=False):
        array = DeviceArray.from_host(np.arange(6.0), data_place.device(0))
        assert array.copy_to_host().tolist() == [0.0] * 6
        with pytest.raises(errors.NotSupported, match=r"moves no bytes \(execute=False\)"):
            np.asarray(array)
        with pytest.raises(BufferError, match=r"moves no bytes \(execute=False\)"):
            array.__dlpack__()


def test_streams_read_back():
    stream = CudaStream(18)
    assert eval(repr(stream), {"CudaStream": CudaStream}) == stream == 18
    assert (stream.ptr, stream.__cuda_stream__()) == (18, (0, 18))


@pytest.mark.parametrize("seed", range(5))
def test_values_are_right_in_any_legal_order(seed):
    with use_machine("sim:h200x2", chaos=seed) as chosen:
        resources = exec_place_resources()
        arrays = [
            DeviceArray.from_host(np.full(100, i), place, exec_place.device(0).pick_stream(resources))
            for i, place in enumerate(PLACES * 3)
        ]
        arrays[4][10:20].copy_to_device(np.arange(10))
        for i, array in enumerate(arrays):
            expected = np.full(100, i)
            if i == 4:
                expected[10:20] = np.arange(10)
            assert np.array_equal(array.copy_to_host(), expected)
        del arrays, array
        assert chosen.conflicts == ()
