"""Arrays over two GPUs in CuPy and Torch, through both interchange protocols, and shards that CuPy works on.

A library takes an array for one of the device on which its first byte lies. CuPy copies what lies elsewhere when it is
to be an array of the current device (`cupy.asarray`), and warns when a kernel reads it where it is.
"""

import contextlib
import gc
import threading

import numpy as np
import pytest

import stf_places as stf
from stf_places import DeviceArray, blocked, data_place, exec_place, exec_place_grid, partition, whole
from stf_places._native import runtime as runtimes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore:The device where the array resides"
    ),  # CuPy's, of kernels that reach a peer
]

ROWS, COLUMNS = partition(blocked("x"), whole), partition(whole, blocked("x"))
ROW_BLOCKS = partition(stf.block_cyclic("x", 100), whole)
CYCLIC_COLUMNS = partition(whole, stf.cyclic("x"))
SHAPE = (1500, 3001)  # 18 MB of int32: pages hold ends of rows
PAGE_ROWS = (64, 1 << 19)  # of int32: each row is a page, so that shards begin with one of their own
EVERYWHERE = ["device 0", "last device", "halves", "halves from the last", "blocks of rows"]


@pytest.fixture
def machine(cuda):
    with stf.use_machine("cuda") as chosen:
        yield chosen


def require_two_devices(cuda):
    if cuda.device_count() < 2:
        pytest.skip("needs two devices")
    if not (cuda.link(0, 1)["peer"] and cuda.link(1, 0)["peer"]):
        pytest.skip("needs two devices that reach each other's memory")


@pytest.fixture
def pair(machine, cuda):
    """Give two devices that reach each other's memory."""
    require_two_devices(cuda)
    return exec_place_grid.from_devices([0, 1])


@pytest.fixture(params=EVERYWHERE)
def place(request, machine, cuda):
    """Give a place for arrays of two axes: a device, or memory of two."""
    if "device" in request.param:
        return data_place.device(0 if request.param == "device 0" else machine.device_count - 1)
    require_two_devices(cuda)
    order = [1, 0] if "last" in request.param else [0, 1]
    spec = ROW_BLOCKS if "blocks" in request.param else ROWS
    return data_place.composite(exec_place_grid.from_devices(order), spec)


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy", reason="needs CuPy")


@pytest.fixture
def torch(machine):
    found = pytest.importorskip("torch", reason="needs Torch")
    if not found.cuda.is_available():
        pytest.skip("needs Torch with CUDA")
    return found


def home(place):
    """Return the device on which an array begins."""
    return place.device_id if place.kind == "device" else place.grid.places[0].device_id


def readers(place):
    """Return the devices that reach all of an array, the one where it begins first."""
    return [home(place)] if place.kind == "device" else [home(place), 1 - home(place)]


def random_values(seed=1, shape=SHAPE):
    return np.random.default_rng(seed).integers(-(1 << 20), 1 << 20, shape).astype("i4")


def on_device(cupy, source, device):
    """Return memory as an array of a device, wherever it begins: what CuPy does on it, it does there, in place."""
    interface = source.__cuda_array_interface__
    shape, dtype, strides = interface["shape"], np.dtype(interface["typestr"]), interface.get("strides")
    steps = strides or np.empty(shape, dtype).strides
    nbytes = dtype.itemsize + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    memory = cupy.cuda.UnownedMemory(interface["data"][0], nbytes, source, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides=strides)


def total(cupy_array):
    return int(cupy_array.sum(dtype="i8"))


# ---- CuPy


def take_interface(cupy, array, device):
    with cupy.cuda.Device(device):
        return cupy.asarray(array)


def take_dlpack(cupy, array, device):
    with cupy.cuda.Device(device):
        return cupy.from_dlpack(array)


each_cupy_way = pytest.mark.parametrize("take", [take_interface, take_dlpack], ids=["interface", "dlpack"])


@each_cupy_way
def test_cupy_reads_and_writes_the_memory_itself(cupy, place, take):
    values = random_values()
    array = DeviceArray.from_host(values, place)
    view = take(cupy, array, home(place))
    assert (view.data.ptr, view.device.id, view.shape) == (array.ptr, home(place), SHAPE)
    for device in readers(place):
        with cupy.cuda.Device(device):
            assert total(view) == values.sum(dtype="i8")
            view *= 3
            view += device + 1
            cupy.cuda.Device(device).synchronize()
        values = values * 3 + np.int32(device + 1)
        assert np.array_equal(array.copy_to_host(), values)
    with cupy.cuda.Device(home(place)):
        assert np.array_equal(view.get(), values)


@each_cupy_way
@pytest.mark.parametrize(
    "key",
    [np.s_[700:], np.s_[3:-5:4, 10:2000], np.s_[..., ::7], np.s_[1499]],
    ids=["half", "box", "steps", "row"],
)
def test_cupy_reads_and_writes_slices(cupy, place, take, key):
    values = random_values(2)
    array = DeviceArray.from_host(values, place)
    for device in readers(place):
        with cupy.cuda.Device(device):
            view = on_device(cupy, array[key], device)
            assert (view.shape, view.strides) == (array[key].shape, array[key].strides)
            view -= 17
            values[key] -= 17
            assert total(view) == values[key].sum(dtype="i8")
            cupy.cuda.Device(device).synchronize()
        taken = take(cupy, array[key], home(place))
        with cupy.cuda.Device(home(place)):  # where CuPy works, not where the memory is
            assert total(taken) == values[key].sum(dtype="i8")
    assert np.array_equal(array.copy_to_host(), values)


def test_cupy_copies_to_another_device(cupy, pair):
    values = random_values(3)
    array = DeviceArray.from_host(values, data_place.composite(pair, ROWS))
    with cupy.cuda.Device(1):
        copied = cupy.asarray(array)
        assert copied.data.ptr != array.ptr
        assert copied.device.id == 1
        assert total(copied) == values.sum(dtype="i8")
        shared = cupy.from_dlpack(array)
        assert (shared.data.ptr, shared.device.id) == (array.ptr, 0), "DLPack says where it begins"
        assert total(shared) == values.sum(dtype="i8")
    for device in (0, 1):
        with pytest.raises(BufferError, match=r"\(2, 0\)") if device else contextlib.nullcontext():
            array.__dlpack__(dl_device=(2, device))


@each_cupy_way
def test_memory_lives_as_long_as_cupys_array(cupy, place, take):
    values = random_values(4)
    array = DeviceArray.from_host(values, place)
    view, address = take(cupy, array, home(place)), array.ptr
    del array
    gc.collect()
    others = [DeviceArray.from_host(values * 0, place) for _ in range(2)]
    assert address not in [other.ptr for other in others]
    with cupy.cuda.Device(home(place)):
        assert np.array_equal(view.get(), values)
    del view, others
    gc.collect()
    if place.kind == "composite":  # the ranges are kept, and used again, the last one first
        again = [DeviceArray.from_host(values, place) for _ in range(3)]
        assert address in [one.ptr for one in again]


def test_dlpack_orders_cupys_stream_behind_the_arrays(cupy, pair):
    resources, release = stf.exec_place_resources(), threading.Event()
    stream = exec_place.device(0).pick_stream(resources)
    array = DeviceArray.from_host(random_values(5), data_place.composite(pair, ROWS), stream)
    with cupy.cuda.Device(0):
        consumer = cupy.cuda.Stream(non_blocking=True)
        try:
            # Not for ever: should CuPy wait for the device here, this ends.
            runtimes.current().driver.host_function(int(stream), lambda: release.wait(5))
            with consumer:
                view = cupy.from_dlpack(array)
            assert not consumer.done
        finally:
            release.set()
        consumer.synchronize()
    assert view.data.ptr == array.ptr
    del view, array, stream


# ---- Torch


def torch_interface(torch, array, device):
    return torch.as_tensor(array, device=f"cuda:{device}")


def torch_dlpack(torch, array, device):
    return torch.from_dlpack(array)


each_torch_way = pytest.mark.parametrize("take", [torch_interface, torch_dlpack], ids=["interface", "dlpack"])


@each_torch_way
def test_torch_reads_and_writes_the_memory_itself(torch, place, take):
    values = random_values(6)
    array = DeviceArray.from_host(values, place)
    tensor = take(torch, array, home(place))
    assert (tensor.data_ptr(), tensor.device.index) == (array.ptr, home(place))
    assert int(tensor.sum(dtype=torch.int64)) == values.sum(dtype="i8")
    tensor.mul_(3).add_(5)
    torch.cuda.synchronize(home(place))
    assert np.array_equal(array.copy_to_host(), values * 3 + 5)
    assert np.array_equal(tensor.cpu().numpy(), values * 3 + 5)


@each_torch_way
def test_torch_reads_and_writes_slices(torch, place, take):
    values = random_values(7)
    array = DeviceArray.from_host(values, place)
    key = np.s_[1:700:3, 10:2000]  # begins where the array does
    tensor = take(torch, array[key], home(place))
    assert tensor.data_ptr() == array[key].ptr
    assert tensor.stride() == tuple(step // 4 for step in array[key].strides)
    assert int(tensor.sum(dtype=torch.int64)) == values[key].sum(dtype="i8")
    tensor.neg_()
    torch.cuda.synchronize(home(place))
    values[key] *= -1
    assert np.array_equal(array.copy_to_host(), values)


@each_torch_way
def test_torch_copies_to_another_device(torch, pair, take):
    values = random_values(8)
    array = DeviceArray.from_host(values, data_place.composite(pair, ROWS))
    with torch.cuda.device(1):  # the current device does not change where the memory is
        tensor = take(torch, array, 0)
        assert tensor.device.index == 0
        copied = tensor.to("cuda:1")
        assert int(copied.sum(dtype=torch.int64)) == values.sum(dtype="i8")
        assert np.array_equal(copied.cpu().numpy(), values)
        tensor.copy_(copied.add_(1))
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    assert np.array_equal(array.copy_to_host(), values + 1)


@each_torch_way
def test_memory_lives_as_long_as_torchs_tensor(torch, place, take):
    values = random_values(9)
    array = DeviceArray.from_host(values, place)
    tensor, address = take(torch, array, home(place)), array.ptr
    del array
    gc.collect()
    others = [DeviceArray.from_host(values * 0, place) for _ in range(2)]
    assert address not in [other.ptr for other in others]
    assert np.array_equal(tensor.cpu().numpy(), values)


def test_torch_and_cupy_share_an_array(torch, cupy, place):
    values = random_values(10)
    array = DeviceArray.from_host(values, place)
    with cupy.cuda.Device(home(place)):
        view = cupy.asarray(array)
        tensor = torch.from_dlpack(view)
        view += 1
        cupy.cuda.Device(home(place)).synchronize()
        tensor.mul_(2)
        torch.cuda.synchronize(home(place))
        assert total(view) == ((values + 1) * 2).sum(dtype="i8")
    assert tensor.data_ptr() == array.ptr
    assert np.array_equal(array.copy_to_host(), (values + 1) * 2)


# ---- Shards in CuPy


@pytest.fixture(params=["two devices", "partitions", "partitions of two devices"])
def places(request, machine, cuda):
    """Give a grid along an axis: devices, partitions of one of them, or of both."""
    if request.param == "partitions":
        return exec_place_grid.create(stf.green_places(32, 4))
    require_two_devices(cuda)
    if request.param == "two devices":
        return exec_place_grid.from_devices([0, 1])
    return exec_place_grid.create([one for device in (1, 0) for one in stf.green_places(32, 2, device)])


@contextlib.contextmanager
def working_on(cupy, shard):
    """Make the shard's device and stream those of CuPy."""
    with cupy.cuda.Device(shard.place.device_id), cupy.cuda.Stream.from_external(shard.stream):
        yield


SPECS = [ROWS, COLUMNS, ROW_BLOCKS, CYCLIC_COLUMNS]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_cupy_works_on_shards(cupy, places, spec):
    values = random_values(11)
    expected, source = values.copy(), values.copy()
    layout = spec.bind(SHAPE, places)
    for number in range(layout.place_count):
        for box in layout.boxes(number):
            expected[box] = (expected[box] * 3 + number + 1) * 3 + number + 1
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        for _ in range(2):
            with ctx.task(places.with_data(spec), data.rw()) as t:
                for shard in t.shards(0):
                    with working_on(cupy, shard):
                        view = on_device(cupy, shard.view, shard.place.device_id)
                        assert view.shape == shard.shape
                        view *= 3
                        view += shard.place_index + 1
        assert np.array_equal(ctx.wait(data), expected)
    assert np.array_equal(source, expected)


def test_cupy_takes_shards_that_begin_on_their_device_as_they_are(cupy, pair):
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(PAGE_ROWS, "i4", exec_place=pair.with_data(ROWS))
        with ctx.task(pair.with_data(ROWS), data.rw()) as t:
            for shard in t.shards(0):
                with working_on(cupy, shard):
                    view = cupy.asarray(shard.view)
                    assert (view.data.ptr, view.device.id) == (shard.view.ptr, shard.place.device_id)
                    view += shard.place_index + 1
        assert ctx.wait(stf.reduce(ctx, data, "sum", pair.with_data(ROWS))).tolist() == [96 << 19]


@pytest.mark.parametrize("spec", [ROWS, COLUMNS], ids=repr)
def test_cupy_reads_a_halo_and_writes_what_a_shard_owns(cupy, places, spec):
    steps, values = 3, random_values(12) & 0xFF
    expected = values.copy()
    for _ in range(steps):
        padded = np.pad(expected, 1, mode="edge")
        expected = padded[:-2, 1:-1] + padded[2:, 1:-1] - padded[1:-1, :-2] + 2 * padded[1:-1, 2:]
    with stf.context() as ctx:
        u, v = ctx.logical_data(values.copy()), ctx.logical_data_empty(SHAPE, "i4")
        for _ in range(steps):
            with ctx.task(places.with_data(spec), u.read(), v.write()) as t:
                for shard in t.shards(0, halo=1):
                    device = shard.place.device_id
                    with working_on(cupy, shard):
                        padded = cupy.pad(on_device(cupy, shard.view, device), 1, mode="edge")
                        new = padded[:-2, 1:-1] + padded[2:, 1:-1] - padded[1:-1, :-2] + 2 * padded[1:-1, 2:]
                        on_device(cupy, shard.get_arg_cai(1), device)[shard.owned] = new[shard.inner]
            u, v = v, u
        assert np.array_equal(ctx.wait(u), expected)


def test_cupy_reads_a_copy_of_replicated_data_on_each_device(cupy, places):
    values, factors = random_values(13), np.random.default_rng(13).integers(-9, 9, SHAPE[1]).astype("i4")
    with stf.context() as ctx:
        data, table = ctx.logical_data(values.copy()), ctx.logical_data(factors.copy())
        for _ in range(2):
            with ctx.task(places.with_data(ROWS), data.rw(), table.read(data_place.replicated())) as t:
                for number, single in enumerate(places):
                    with cupy.cuda.Device(single.device_id):
                        argument = t.get_arg_cai(1, number)
                        copy = cupy.asarray(argument)
                        assert argument.readonly
                        assert copy.data.ptr == t.get_arg(1, number) == argument.ptr
                        assert cupy.cuda.runtime.pointerGetAttributes(argument.ptr).device == single.device_id
                for shard in t.shards(0):
                    with working_on(cupy, shard):
                        view = on_device(cupy, shard.view, shard.place.device_id)
                        view *= cupy.asarray(shard.get_arg_cai(1))
            with ctx.task(exec_place.host(), table.rw()) as t:
                t.numpy(0)[:] += 1  # the copies are out of date
        assert len({single.device_id for single in places}) == 1 or ctx.stats.copies >= 4
        assert np.array_equal(ctx.wait(data), values * factors * (factors + 1))


def test_torch_works_on_shards(torch, places):
    with stf.context() as ctx:
        grid = places.with_data(ROWS)
        data = ctx.logical_data_full(PAGE_ROWS, 7, "i4", exec_place=grid)
        with ctx.task(grid, data.rw()) as t:
            for shard in t.shards(0):
                device = shard.place.device_id
                with torch.cuda.stream(torch.cuda.ExternalStream(int(shard.stream), device=device)):
                    tensor = torch.as_tensor(shard.view, device=f"cuda:{device}")
                    assert tensor.data_ptr() == shard.view.ptr
                    tensor.mul_(shard.place_index + 1)
        found = ctx.wait(data)
    share = PAGE_ROWS[0] // places.size
    for number in range(places.size):
        assert (found[number * share : (number + 1) * share] == 7 * (number + 1)).all()
