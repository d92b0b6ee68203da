"""Composite and replicated data places: what they are as values, what they refuse, arrays and blocks on them."""

import copy
import ctypes
import gc
import pickle
import subprocess
import sys
from math import prod

import numpy as np
import pytest

import stf_places as stf
from stf_places import DeviceArray, blocked, cyclic, data_place, exec_place, exec_place_grid, partition, whole
from stf_places._native import runtime as runtimes
from stf_places._native.drivers import sim_driver
from stf_places.machines import Machine, specs

PAGE = 4096
HOST = exec_place.host()
ROWS = partition(blocked("x"), whole)
LINE = partition(blocked("x"))


def by_columns(coords, dims, grid):
    return (coords[1] * grid[0] // dims[1],)


def by_thirds(coords, dims, grid):
    return (coords[0] * 3 // dims[0] % grid[0],)


def pair(axes=None):
    return exec_place_grid.from_devices([0, 1], axes)


NAMES = {**vars(stf), "by_columns": by_columns, "by_thirds": by_thirds}
SPECS = [
    ROWS,
    partition(cyclic("x")),
    partition(stf.block_cyclic("x", 3), whole, replicated=()),
    stf.mapper(by_columns),
    stf.mapper(by_thirds, vectorized=True),
]


@pytest.fixture
def devices(machine):
    """Give all devices of the machine as a grid, where they reach each other's memory."""
    if machine.device_count < 2:
        pytest.skip("needs two devices")
    return pair()


@pytest.fixture(params=[None, 1], ids=["program-order", "chaos"])
def paged(request):
    """Put a machine of two devices with pages of 4 KiB in use."""
    with stf.use_machine("sim:tiny", chaos=request.param) as chosen:
        yield chosen


def without_peers():
    """Return the machine nopeer2 with small pages."""
    spec = specs.load("nopeer2").to_dict()
    spec["devices"] = [{**device, "page": PAGE} for device in spec["devices"]]
    return Machine(runtimes.make_runtime(sim_driver(spec)), runtimes.current_or_none())


# ---- Values


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_composite_place_tells_what_it_is_made_of(spec):
    place = data_place.composite(pair(), spec)
    assert (place.kind, place.device_id, place.grid, place.spec) == ("composite", -1, pair(), spec)
    with pytest.raises(AttributeError):
        place.spec = ROWS
    with pytest.raises(AttributeError):
        place.grid = pair()


@pytest.mark.parametrize(
    "place", [data_place.host(), data_place.device(0), data_place.managed(), data_place.affine()]
)
def test_other_places_have_no_grid_and_no_partition(place):
    assert (place.grid, place.spec) == (None, None)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_composite_places_compare_by_grid_and_partition(spec):
    place, same = data_place.composite(pair(), spec), data_place.composite(pair(), spec)
    assert place == same and hash(place) == hash(same)
    others = [
        data_place.composite(exec_place_grid.from_devices([1, 0]), spec),
        data_place.composite(exec_place_grid.from_devices([0, 1, 2]), spec),
        data_place.composite(pair(axes=("gpu",)), spec),
        data_place.composite(pair(), partition(whole, blocked("x"))),
        data_place.device(0),
        data_place.replicated(pair()),
    ]
    assert place not in others
    assert len({place, same, *others}) == len(others) + 1


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_repr_pickle_and_copy_give_the_same_place(spec, simulated):
    place = data_place.composite(pair(axes=("x",)), spec)
    assert eval(repr(place), NAMES) == place and repr(place).endswith("  # simulated h200x2")
    assert pickle.loads(pickle.dumps(place)) == place
    assert copy.copy(place) == copy.deepcopy(place) == place


def test_one_rule_is_enough_for_one_axis(paged):
    values = np.arange(4096.0)
    with stf.context() as ctx:
        data, flat = ctx.logical_data(values), ctx.logical_data_zeros((4, 4), name="flat")
        grid = pair().with_data(data_place.composite(pair(), blocked("x")))
        with ctx.task(grid, data.rw()) as t:
            assert [shard.shape for shard in t.shards(0)] == [(2048,), (2048,)]
            t.numpy(0)[:] += 1
        with pytest.raises(stf.PartitionError, match="'flat'"):
            ctx.task(grid, flat.read()).start()
    assert np.array_equal(values, np.arange(4096.0) + 1)


def test_a_function_is_a_mapper_of_single_elements(paged):
    values = np.arange(64 * 128.0).reshape(64, 128)
    with stf.context() as ctx:
        data = ctx.logical_data(values)
        with ctx.task(pair().with_data(by_columns), data.rw()) as t:
            t.numpy(0)[:] *= 2
    assert np.array_equal(values, 2 * np.arange(64 * 128.0).reshape(64, 128))


def test_making_places_opens_no_machine():
    program = """
from stf_places import blocked, data_place, exec_place, exec_place_grid, partition
from stf_places._native import runtime
grid = exec_place_grid.from_devices([0, 1])
place = data_place.composite(grid, partition(blocked("x")))
grid = grid.with_data(place).with_data(partition(blocked("x")))
assert data_place.replicated(grid).grid == grid
hash(place), repr(place), repr(grid), place == place, place.kind, place.spec, place.grid
assert runtime.current_or_none() is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- Bad input


@pytest.mark.parametrize("grid", [None, 3, "x", [0, 1], exec_place.device(0), data_place.device(0)])
def test_what_is_no_grid_is_refused(grid):
    with pytest.raises(TypeError, match="grid"):
        data_place.composite(grid, ROWS)


@pytest.mark.parametrize("spec", [None, 3, "x", (blocked("x"), whole), [blocked("x")], data_place.device(0)])
def test_what_is_no_partition_is_refused(spec):
    with pytest.raises(TypeError, match=r"partition.*got "):
        data_place.composite(pair(), spec)


@pytest.mark.parametrize("places", [[HOST], [HOST, exec_place.device(0)], [exec_place.device(0), HOST]])
def test_grids_with_the_host_are_refused(places):
    grid = exec_place_grid.create(places)
    with pytest.raises(ValueError, match="host"):
        data_place.composite(grid, LINE)
    with pytest.raises(ValueError, match="host"):
        grid.with_data(LINE)
    with pytest.raises(ValueError, match="host"):
        exec_place_grid.create(places, None, by_thirds)


def test_devices_that_do_not_reach_each_other_are_refused_at_once():
    pattern = r"device\D{0,2}(0\b.*\b1|1\b.*\b0)\b"
    with stf.use_machine("sim:nopeer2"):
        for make in (lambda: data_place.composite(pair(), LINE), lambda: pair().with_data(LINE)):
            with pytest.raises(stf.PartitionError, match=pattern):
                make()


def test_devices_that_do_not_reach_each_other_are_refused_by_the_task(simulated):
    grid, values = pair().with_data(LINE), np.arange(5000.0)
    with without_peers() as machine:
        with stf.context() as ctx:
            data = ctx.logical_data(values)
            with pytest.raises(stf.PartitionError, match=r"\b0\b.*\b1\b"):
                ctx.task(grid, data.rw()).start()
            with pytest.raises(stf.PartitionError, match=r"\b0\b.*\b1\b"):
                ctx.task(exec_place.device(0), data.rw(data_place.composite(pair(), LINE))).start()
            with ctx.task(exec_place.device(1), data.rw()) as t:
                t.numpy(0)[:] += 1
        with pytest.raises(stf.PartitionError, match=r"\b0\b.*\b1\b"):
            DeviceArray(5000, "f8", data_place.composite(grid, LINE))
        assert machine.live_allocations == 0
    assert np.array_equal(values, np.arange(5000.0) + 1)


def test_places_of_one_device_need_no_peer():
    values = np.arange(5000.0)
    with without_peers(), stf.context() as ctx:
        grid = exec_place_grid.create([exec_place.device(1)] * 3).with_data(LINE)
        data = ctx.logical_data(values)
        with ctx.task(grid, data.rw()) as t:
            t.numpy(0)[:] += 1
    assert np.array_equal(values, np.arange(5000.0) + 1)


def test_a_partition_of_another_rank_names_data_and_place(paged):
    with stf.context() as ctx:
        data = ctx.logical_data_zeros((4, 4), name="image")
        for dep, grid in (
            (data.rw(), pair().with_data(LINE)),
            (data.rw(data_place.composite(pair(), LINE)), pair()),
        ):
            with pytest.raises(stf.PartitionError, match=r"(?s)image") as caught:
                ctx.task(grid, dep, symbol="heat").start()
            assert "composite" in str(caught.value) and "rank-2" in str(caught.value)
        with pytest.raises(stf.PartitionError, match="'x'"):
            ctx.task(pair(axes=("gpu",)).with_data(ROWS), data.rw()).start()
        assert np.array_equal(ctx.wait(data), np.zeros((4, 4)))


def test_arrays_without_elements_need_no_memory(paged):
    with stf.context() as ctx:
        data = ctx.logical_data_empty((0, 4), name="none")
        with ctx.task(pair().with_data(ROWS), data.write()) as t:
            assert (t.get_arg(0), t.shards(0)) == (0, [])
        assert ctx.wait(data).shape == (0, 4)
        assert paged.live_allocations == 0
    assert DeviceArray((0, 4), "f8", data_place.composite(pair(), ROWS)).copy_to_host().shape == (0, 4)


@pytest.mark.parametrize("kind", ["raises", "outside", "no tuple"])
def test_a_wrong_mapper_is_reported_and_leaves_nothing(paged, kind):
    def wrong(coords, dims, grid):
        if kind == "raises":
            raise LookupError("lost")
        return (2,) if kind == "outside" else 0

    values = np.arange(5000.0)
    with stf.context() as ctx:
        data = ctx.logical_data(values, name="u")
        before = [paged.used_memory(device) for device in range(2)]
        with pytest.raises(stf.MapperError) as caught:
            ctx.task(pair().with_data(wrong), data.rw()).start()
        assert isinstance(caught.value.__cause__, LookupError) == (kind == "raises")
        assert [paged.used_memory(device) for device in range(2)] == before
        with ctx.task(exec_place.device(0), data.rw()) as t:
            t.numpy(0)[:] += 1
    assert np.array_equal(values, np.arange(5000.0) + 1)


def test_a_mapper_that_changes_its_answer_is_reported(paged):
    calls = iter(range(1 << 30))
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(5000, name="u")
        with pytest.raises(stf.MapperError):
            ctx.task(pair().with_data(lambda coords, dims, grid: (next(calls) % 2,)), data.rw()).start()


def test_devices_that_are_not_there_are_named_when_they_are_used(paged):
    grid = exec_place_grid.from_devices([0, 7])
    with pytest.raises(stf.InvalidDevice, match="7"), stf.context() as ctx:
        ctx.task(grid.with_data(LINE), ctx.logical_data_zeros(5000).rw()).start()


# ---- Grids with data


def test_a_partition_given_to_a_grid_is_a_composite_place_over_it():
    for spec in [*SPECS, by_columns, blocked("x")]:
        given = pair().with_data(spec)
        assert given == pair() and given.affine_data_place == data_place.composite(pair(), spec)
    assert pair().affine_data_place is None
    place = data_place.composite(pair(), ROWS)
    assert pair().with_data(place).affine_data_place == place
    with pytest.raises(TypeError, match="got 3"):
        pair().with_data(3)


def test_create_takes_a_mapper():
    places = [exec_place.device(device) for device in range(4)]
    grid = exec_place_grid.create(places, (2, 2), by_columns, axes=("gpu", "sm"))
    plain = exec_place_grid.create(places, (2, 2), axes=("gpu", "sm"))
    assert grid == plain and plain.affine_data_place is None
    assert grid.affine_data_place == data_place.composite(plain, by_columns)
    assert exec_place_grid.create(places, mapper=LINE).affine_data_place.spec == LINE
    with pytest.raises(TypeError):
        exec_place_grid.create(places, mapper=3)


# ---- Arrays and blocks


@pytest.mark.parametrize("dtype", ["u1", "f4", "c16", "S3", [("a", "i4"), ("b", "f8")]])
def test_arrays_on_composite_places_keep_their_bytes(devices, dtype):
    shape = (9, 700_001) if np.dtype(dtype).itemsize < 4 else (9, 150_001)
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    host = np.frombuffer(np.random.default_rng(3).bytes(nbytes), dtype).reshape(shape)
    place = data_place.composite(devices, ROWS)
    array = DeviceArray.from_host(host, place)
    assert (array.shape, array.dtype, array.data_place) == (shape, host.dtype, place)
    assert array.copy_to_host().tobytes() == host.tobytes()


@pytest.mark.parametrize(
    "spec", [ROWS, partition(whole, blocked("x")), partition(cyclic("x"), whole), by_columns]
)
def test_slices_of_composite_arrays_read_and_write_as_numpy(devices, spec):
    host = np.random.default_rng(4).random((8, 300_000)).astype("f4")
    array = DeviceArray.from_host(host, data_place.composite(devices, spec))
    for key in [
        3,
        slice(1, 6),
        (slice(None, None, 3), slice(5, 299_000)),
        (..., slice(140_000, 160_000)),
        (7, -1),
    ]:
        assert np.array_equal(array[key].copy_to_host(), host[key])
        new = np.full(host[key].shape, host[key].size, "f4")
        array[key].copy_to_device(new)
        host[key] = new
    assert np.array_equal(array.copy_to_host(), host)


def test_interfaces_of_composite_arrays(devices, machine):
    host = np.arange(2_000_000, dtype="f4").reshape(1000, 2000)
    array = DeviceArray.from_host(host, data_place.composite(devices, ROWS))
    interface = array.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["data"]) == (
        (1000, 2000),
        "<f4",
        (array.ptr, False),
    )
    if machine.simulated:
        assert array.__dlpack_device__() == (1, 0)
        shared = np.from_dlpack(array[1:, 3:])
        assert np.array_equal(shared, host[1:, 3:]) and np.array_equal(np.asarray(array), host)
        del array
        gc.collect()
        assert np.array_equal(shared, host[1:, 3:])


def test_pages_of_an_array_lie_on_their_owners(paged):
    shape = (37, 900)
    layout = ROWS.bind(shape, pair())
    array = DeviceArray(shape, "f4", data_place.composite(pair(), ROWS))
    expected = [
        sum(run.count for run in layout.pages(4, PAGE) if run.place == device) * PAGE for device in (0, 1)
    ]
    assert [paged.used_memory(device) for device in (0, 1)] == expected
    assert array.nbytes == 37 * 900 * 4


def test_data_over_a_composite_array_is_written_back(devices, machine):
    values = np.random.default_rng(5).integers(0, 1000, (5, 700_000)).astype("i4")
    array = DeviceArray.from_host(values, data_place.composite(devices, ROWS))
    with stf.context() as ctx:
        data = ctx.logical_data(array)
        with ctx.task(devices.with_data(ROWS), data.read()) as t:
            assert t.get_arg(0) == array.ptr
        for place in (HOST, exec_place.device(1), HOST):
            with ctx.task(place, data.rw()) as t:
                if place == HOST or machine.simulated:
                    t.numpy(0)[:] += 1
        with ctx.task(devices.with_data(partition(whole, blocked("x"))), data.rw()) as t:
            assert t.get_arg(0) != array.ptr
    assert np.array_equal(array.copy_to_host(), values + 2 + machine.simulated)


def test_a_slice_that_begins_inside_the_block_is_refused(devices):
    array = DeviceArray.from_host(np.zeros((8, 300_000), "f4"), data_place.composite(devices, ROWS))
    with stf.context() as ctx:
        for inside in (array[1:], array[3]):
            with pytest.raises(ValueError, match="begin"):
                ctx.logical_data(inside)
        data = ctx.logical_data(array[:3])
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] = 5
    assert array.copy_to_host().sum() == 3 * 300_000 * 5


def test_blocks_on_composite_places_are_bytes(paged):
    place, nbytes = data_place.composite(pair(), LINE), 10 * PAGE - 7
    assert place.allocate(0) == 0
    ptr = place.allocate(nbytes)
    ctypes.memset(ptr, 7, nbytes)
    assert ctypes.string_at(ptr, nbytes) == b"\x07" * nbytes
    assert [paged.used_memory(device) for device in (0, 1)] == [5 * PAGE, 5 * PAGE]
    place.deallocate(ptr, nbytes)
    again = place.allocate(nbytes)
    assert [paged.used_memory(device) for device in (0, 1)] == [5 * PAGE, 5 * PAGE]
    place.deallocate(again, nbytes)
    with pytest.raises(stf.PartitionError):
        data_place.composite(pair(), ROWS).allocate(nbytes)
    with pytest.raises(ValueError, match="-1"):
        place.allocate(-1)


def test_what_is_no_block_of_the_place_cannot_be_given_back(paged):
    place, nbytes = data_place.composite(pair(), LINE), 4 * PAGE
    ptr = place.allocate(nbytes)
    for wrong in ((ptr, 2 * nbytes), (ptr + PAGE, nbytes), (12345, nbytes)):
        with pytest.raises((stf.DriverError, ValueError)):
            place.deallocate(*wrong)
    place.deallocate(ptr, nbytes)
    with pytest.raises((stf.DriverError, ValueError)):
        place.deallocate(ptr, nbytes)
    assert place.allocate(nbytes) != place.allocate(nbytes)


# ---- Replicated data


def test_replicated_places_are_values():
    place, over = data_place.replicated(), data_place.replicated(pair())
    assert (place.kind, place.device_id, place.grid, place.spec) == ("replicated", -1, None, None)
    assert (over.kind, over.grid) == ("replicated", pair())
    for one in (place, over):
        assert pickle.loads(pickle.dumps(one)) == one and hash(copy.copy(one)) == hash(one)
        assert eval(repr(one), NAMES) == one
    assert place != over and place == data_place.replicated(None) and over == data_place.replicated(pair())
    assert over != data_place.replicated(exec_place_grid.from_devices([0])) and place != data_place.device(0)
    with pytest.raises(TypeError, match="grid"):
        data_place.replicated(exec_place.device(0))


@pytest.mark.parametrize("late", [True, False])
def test_each_device_reads_its_own_copy(devices, machine, late):
    values = np.random.default_rng(6).random(1000)
    place = data_place.replicated() if late else data_place.replicated(devices)
    grid = exec_place_grid.create([exec_place.device(d) for d in (1, 0, 1)])
    with stf.context() as ctx:
        data = ctx.logical_data(values.copy())
        with ctx.task(grid, data.read(place)) as t:
            at = [t.get_arg(0, place_index=k) for k in range(3)]
            assert at[0] == at[2] != at[1] and t.get_arg(0) == at[0]
            assert [t.get_arg_cai(0, place_index=k).ptr for k in range(3)] == at
            if machine.simulated:
                assert all(np.array_equal(t.numpy(0, place_index=k), values) for k in range(3))
                assert not t.numpy(0, place_index=1).flags.writeable
            with pytest.raises(IndexError):
                t.get_arg(0, place_index=3)
        with ctx.task(exec_place.device(0), data.read()) as t:
            assert t.get_arg(0) == at[1]
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] += 1
        with ctx.task(grid, data.read(place)) as t:
            if machine.simulated:
                assert all(np.array_equal(t.numpy(0, place_index=k), values + 1) for k in range(3))
    assert not machine.simulated or machine.conflicts == ()


def test_replicas_are_only_read(simulated):
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(4, name="u")
        for dep in (data.write, data.rw):
            with pytest.raises(ValueError, match="read"):
                ctx.task(pair(), dep(data_place.replicated())).start()
        assert np.array_equal(ctx.wait(data), np.zeros(4))
        with pytest.raises(ValueError, match="replicated"):
            ctx.logical_data(np.ones(3), dplace=data_place.replicated())
        with pytest.raises(ValueError, match="replicated"):
            pair().with_data(data_place.replicated())
    with pytest.raises(ValueError, match="replicated"):
        data_place.replicated().allocate(10)
    with pytest.raises(ValueError, match="replicated"):
        DeviceArray(3, "f4", data_place.replicated(pair()))


def test_replicas_of_a_grid_are_for_its_devices(simulated):
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(4)
        over = data_place.replicated(exec_place_grid.from_devices([0]))
        for place in (pair(), exec_place.device(1)):
            with pytest.raises(ValueError, match=r"\b1\b"):
                ctx.task(place, data.read(over)).start()
        with ctx.task(exec_place.device(0), data.read(over)) as t:
            assert np.array_equal(t.numpy(0), np.zeros(4))
