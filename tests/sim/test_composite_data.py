"""Data over the memory of several devices: values, coherence with other instances, pages, memory and its limits."""

import functools
import gc
from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stf_places as stf
from stf_places import DeviceArray, blocked, data_place, exec_place, exec_place_grid, partition, whole
from stf_places._native import runtime as runtimes
from stf_places._native.drivers import sim_driver
from stf_places.machines import Machine, specs

PAGE = 4096
HOST = exec_place.host()
LINE = partition(blocked("x"))
ROWS, COLUMNS = partition(blocked("x"), whole), partition(whole, blocked("x"))
AXES = ("gpu", "sm", "node")
DTYPES = ("u1", "i4", "f8", "c16", [("a", "f8"), ("b", "i4", 4)])
MIB = 1 << 20


def machine_of(count, memory=64 * MIB, **options):
    """Open a simulated machine of equal devices with pages of 4 KiB."""
    spec = specs.load("tiny").to_dict()
    spec["devices"] = [{**spec["devices"][0], "memory": memory, "page": PAGE}] * count
    spec["links"] = [
        {"from": a, "to": b, "peer": min(a, b) >= 0, "bandwidth": 50.0, "latency_us": 1.0}
        for a, b in permutations(range(-1, count), 2)
    ]
    return Machine(runtimes.make_runtime(sim_driver(spec, **options)), runtimes.current_or_none())


def on(device):
    return exec_place.device(device)


def pair():
    return exec_place_grid.from_devices([0, 1])


def over(spec, grid=None):
    return data_place.composite(grid or pair(), spec)


def used(machine):
    machine._driver.drain()  # what is freed in stream order is free once the streams come to it
    return [machine.used_memory(device) for device in range(machine.device_count)]


def bytes_on(place, shape, itemsize):
    """Return the bytes of an array, without what fills its last page, by device."""
    found = dict.fromkeys((one.device_id for one in place.grid.places), 0)
    for run in place.spec.bind(shape, place.grid).pages(itemsize, PAGE):
        end = min((run.first + run.count) * PAGE, prod(shape) * itemsize)
        found[place.grid.places[run.place].device_id] += end - run.first * PAGE
    return {device: nbytes for device, nbytes in found.items() if nbytes}


@pytest.fixture(params=[False, True], ids=["program-order", "chaos"])
def paged(request):
    """Put a machine of two devices with pages of 4 KiB in use."""
    with machine_of(2, chaos=request.param) as chosen:
        yield chosen


@pytest.fixture(params=[False, True], ids=["program-order", "chaos"])
def small(request):
    """Put a machine of two devices with 16 pages each in use."""
    with machine_of(2, 16 * PAGE, chaos=request.param) as chosen:
        yield chosen


@pytest.fixture
def devices(machine):
    """Give two devices of the machine as a grid."""
    if machine.device_count < 2:
        pytest.skip("needs two devices")
    return pair()


# ---- Coherence


@st.composite
def composites(draw, rank, devices):
    """Return a composite place for arrays of a rank over some devices, some of them more than once."""
    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda n: prod(n) <= 8))
    axes = AXES[: len(lengths)]
    ids = draw(st.lists(st.integers(0, devices - 1), min_size=prod(lengths), max_size=prod(lengths)))
    grid = exec_place_grid.create(map(on, ids), lengths, axes=axes)
    if draw(st.integers(0, 9)) == 0:
        return data_place.composite(grid, lambda coords, dims, shape: (sum(coords) // 7 % shape[0],))
    used_axes, replicated = [[] for _ in range(rank)], []
    for axis in draw(st.permutations(axes)):
        at = draw(st.integers(-1, rank - 1))
        (replicated if at < 0 else used_axes[at]).append(axis)
    rules = []
    for own in used_axes:
        rule = draw(st.sampled_from([stf.blocked, stf.cyclic, stf.block_cyclic, stf.tiled]))
        length = (draw(st.integers(1, 500)),) if rule in (stf.block_cyclic, stf.tiled) else ()
        rules.append(rule(*own, *length) if own else whole)
    return data_place.composite(grid, partition(*rules, replicated=replicated))


def shapes(rank):
    longest = {1: 20_000, 2: 160, 3: 28, 4: 12}[rank]
    return st.tuples(*[st.integers(1, longest)] * rank)


def change(array, number, mode):
    """Do what a body does; each byte shows its position and the order of bodies."""
    raw = array.reshape(-1).view("u1")
    raw[:] = (raw * 3 if mode == "rw" else 0) + np.arange(raw.size, dtype="u4") * 7 + number


class Program:
    """Draw tasks and do each twice: with stf_places and on plain arrays."""

    def __init__(self, draw, ctx, places, shape, dtype):
        self.draw, self.ctx, self.places = draw, ctx, places
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        self.source = np.frombuffer(bytearray(np.random.default_rng(1).bytes(nbytes)), dtype).reshape(shape)
        self.expected = [self.source.copy(), np.zeros_like(self.source)]
        self.data = [ctx.logical_data(self.source, name="source"), ctx.logical_data_empty(shape, dtype)]
        with ctx.task(HOST, self.data[1].write()) as t:
            t.numpy(0)[...] = self.expected[1]
        self.seen = []
        self.checks = 0

    def place(self):
        """Return a place to run on and the places of two dependencies, None for the affine one."""
        composite = self.draw(st.sampled_from(self.places))
        other = self.draw(st.sampled_from([None, composite, *self.places]))
        kind = self.draw(st.sampled_from(["host", "device", "peer", "grid"]))
        if kind == "host":
            return HOST, None, None
        if kind == "device":
            return on(self.draw(st.integers(0, 1))), None, None
        if kind == "peer":
            return composite.grid.places[0], composite, None
        return composite.grid.with_data(composite), None, other

    def look(self, array, expected):
        self.seen.append(array.tobytes() == expected)

    def step(self, number):
        place, *at = self.place()
        count = self.draw(st.integers(1, 2))
        first = self.draw(st.integers(0, 1))
        modes = [self.draw(st.sampled_from(["read", "rw", "write"])) for _ in range(count)]
        deferred = self.draw(st.booleans())
        which = [first, 1 - first][:count]
        deps = [getattr(self.data[k], mode)(p) for k, mode, p in zip(which, modes, at, strict=False)]
        with self.ctx.task(place, *deps, symbol=f"step {number}") as t:
            for index, (k, mode) in enumerate(zip(which, modes, strict=True)):
                do = t.run if deferred else lambda fn, *args: fn(*args)
                if mode != "write":
                    self.checks += 1
                    do(self.look, t.numpy(index), self.expected[k].tobytes())
                if mode != "read":
                    do(change, t.numpy(index), number, mode)
                    change(self.expected[k], number, mode)
        if self.draw(st.integers(0, 5)) == 0:
            assert self.ctx.wait(self.data[first]).tobytes() == self.expected[first].tobytes()


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_programs_over_all_kinds_of_places_agree_with_numpy(data):
    rank = data.draw(st.integers(1, 4))
    shape, dtype = data.draw(shapes(rank)), data.draw(st.sampled_from(DTYPES))
    seed = data.draw(st.one_of(st.none(), st.integers(0, 99)))
    tight = (-(-prod(shape) * np.dtype(dtype).itemsize // PAGE) + 1) * 3 * PAGE
    memory = data.draw(st.sampled_from([64 * MIB, tight]))
    with machine_of(3, memory, chaos=seed is not None, seed=seed or 0) as machine:
        places = data.draw(st.lists(composites(rank, 3), min_size=1, max_size=3))
        with stf.context() as ctx:
            program = Program(data.draw, ctx, places, shape, dtype)
            for number in range(data.draw(st.integers(1, 10))):
                program.step(number)
            assert ctx.wait(program.data[1]).tobytes() == program.expected[1].tobytes()
        assert program.source.tobytes() == program.expected[0].tobytes()
        assert program.seen == [True] * program.checks and machine.conflicts == ()


def test_values_travel_through_every_place(devices, machine):
    values = np.random.default_rng(2).integers(0, 1 << 30, (1003, 3001)).astype("i4")
    source = values.copy()
    layouts = [
        devices.with_data(one) for one in (ROWS, COLUMNS, partition(stf.block_cyclic("x", 100), whole))
    ]
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        route = [*layouts, on(1), layouts[1], on(0), layouts[2], layouts[0], HOST]
        for place in (*route, *reversed(route)):
            with ctx.task(place, data.rw()) as t:  # alone valid behind this, so the value has to travel on
                if place == HOST:
                    assert np.array_equal(t.numpy(0), values)
                    t.numpy(0)[:] += 1
                    values += 1
        assert np.array_equal(ctx.wait(data), values)
    assert np.array_equal(source, values)


@pytest.mark.parametrize("ids", [((1, 2), (0,)), ((0, 1), (2, 3)), ((2, 3), (0, 1)), ((1, 2), (2, 3))])
def test_values_travel_to_devices_that_had_no_page(ids):
    values = np.arange(20 * PAGE, dtype="i4")
    with machine_of(4), stf.context() as ctx:
        data = ctx.logical_data(values)
        for one in ids * 2:
            with ctx.task(exec_place_grid.from_devices(one).with_data(LINE), data.rw()) as t:
                t.numpy(0)[:] += 1
    assert np.array_equal(values, np.arange(20 * PAGE, dtype="i4") + 4)


@pytest.mark.parametrize(("value", "dtype"), [(7, "u1"), (-300, "i2"), (1e-3, "f4"), (1 - 2j, "c16")])
@pytest.mark.parametrize("spec", [ROWS, COLUMNS, partition(stf.cyclic("x"), whole)], ids=repr)
def test_fills_reach_every_element(devices, value, dtype, spec):
    shape, expected = (257, 9001), np.dtype(dtype).type(value)
    with stf.context() as ctx:
        by_place = ctx.logical_data_full(shape, value, dtype, where=over(spec))
        by_grid = ctx.logical_data_full(shape, value, dtype, exec_place=devices.with_data(spec))
        from_one = ctx.logical_data_full(shape, value, dtype, where=over(spec), exec_place=on(1))
        with ctx.task(devices.with_data(spec), by_place.read(), by_grid.read()) as t:
            assert t.get_arg(0) != t.get_arg(1)
        assert ctx.stats.copies == 0
        for data in (by_place, by_grid, from_one):
            found = ctx.wait(data)
            assert found.shape == shape and (found == expected).all()


def test_data_dropped_in_the_middle_is_written_back(devices, machine):
    source = np.arange(3_000_000, dtype="i4")
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] += 5
        with ctx.task(devices.with_data(LINE), data.rw()):
            pass
        with ctx.task(devices.with_data(LINE), ctx.logical_data_empty(source.shape, "i4").write()):
            pass  # dropped without a source
        del data, t
        gc.collect()
        other = ctx.logical_data_full(100, 1, "i4", where=over(LINE))
        assert ctx.wait(other).sum() == 100
    assert np.array_equal(source, np.arange(3_000_000, dtype="i4") + 5)


def test_read_only_sources_are_read_over_all_devices(devices, machine):
    source = np.arange(3_000_000, dtype="i4")
    source.flags.writeable = False
    with stf.context() as ctx:
        data = ctx.logical_data(source, name="fixed")
        with pytest.raises(stf.ReadOnlyError, match="'fixed'"):
            data.rw(over(LINE))
        with ctx.task(devices.with_data(LINE), data.read()) as t:
            assert t.readonly(0) and t.get_arg_cai(0).readonly
            if machine.simulated:
                assert np.array_equal(t.numpy(0), source) and not t.numpy(0).flags.writeable
        assert np.array_equal(ctx.wait(data), source)


def test_what_a_failed_body_wrote_is_unusable_until_it_is_overwritten(devices):
    values = np.arange(3_000_000, dtype="i4")
    with stf.context() as ctx:
        grid, data, other = (
            devices.with_data(LINE),
            ctx.logical_data(values, name="u"),
            ctx.logical_data_ones(5),
        )
        with pytest.raises(ZeroDivisionError), ctx.task(grid, data.rw(), other.read(), symbol="bad"):
            1 / 0  # noqa: B018
        for place in (grid, on(0), HOST):
            with pytest.raises(stf.PoisonedData, match="'u' has no usable value, because task 'bad' failed"):
                ctx.task(place, data.read()).start()
        with pytest.raises(stf.PoisonedData):
            ctx.wait(data)
        with ctx.task(grid, data.write()):
            pass
        with ctx.task(HOST, data.write()) as t:
            t.numpy(0)[:] = 4
        with ctx.task(grid, data.rw()):
            pass
        assert (ctx.wait(data) == 4).all() and np.array_equal(ctx.wait(other), np.ones(5))
    assert (values == 4).all()


@functools.cache
def add_kernel():
    wp = pytest.importorskip("warp", reason="needs Warp")

    @wp.kernel
    def add(x: wp.array(dtype=wp.int32), y: wp.array(dtype=wp.int32), number: wp.int32):
        i = wp.tid()
        x[i] = 3 * x[i] + number
        y[i] = x[i]

    return add


@pytest.mark.parametrize("spec", [LINE, partition(stf.block_cyclic("x", 1 << 19))], ids=repr)
def test_every_device_writes_every_page_and_reads_it_back(devices, spec):
    from stf_places.interop import warp as stf_warp

    add, values = add_kernel(), np.arange(5_000_011, dtype="i4")
    expected = values.copy()
    with stf.context() as ctx:
        data = ctx.logical_data(values)
        for number in (0, 1, 0, 1):
            seen = ctx.logical_data_empty(values.shape, "i4")
            with ctx.task(on(number), data.rw(over(spec)), seen.write()) as t:
                arrays = stf_warp.array(t, 0), stf_warp.array(t, 1)
                stf_warp.launch(t, add, dim=values.shape, inputs=[*arrays, number + 5])
            expected = 3 * expected + number + 5
            assert np.array_equal(ctx.wait(seen), expected)
        assert np.array_equal(ctx.wait(data), expected)
    assert np.array_equal(values, expected)


def test_each_of_eight_devices_writes_every_page_and_reads_it_back():
    with machine_of(8) as machine, stf.context() as ctx:
        grid = exec_place_grid.machine()
        place = over(partition(stf.cyclic("gpu"), whole), grid)
        data = ctx.logical_data_zeros((64, PAGE // 8), where=place)
        assert bytes_on(place, (64, PAGE // 8), 8) == dict.fromkeys(range(8), 8 * PAGE)
        for device in range(8):
            with ctx.task(on(device), data.rw(place)) as t:
                t.run(np.add, t.numpy(0), device + 1, t.numpy(0))
            with ctx.task(on(7 - device), data.read(place)) as t:
                assert (t.numpy(0) == sum(range(device + 2))).all()
        assert ctx.stats.copies == 0 and machine.conflicts == ()


# ---- Pages


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_pages_lie_where_the_layout_says(data):
    rank = data.draw(st.integers(1, 4))
    shape, dtype = data.draw(shapes(rank)), data.draw(st.sampled_from(DTYPES))
    place = data.draw(composites(rank, 3).filter(lambda place: isinstance(place.spec, stf.Partition)))
    itemsize = np.dtype(dtype).itemsize
    expected = bytes_on(place, shape, itemsize)
    with machine_of(3) as machine, stf.context() as ctx:
        source = ctx.logical_data(np.zeros(shape, dtype))
        with ctx.task(place.grid.with_data(place), source.rw()):
            pass
        traffic = machine.link_traffic()
        assert {to: nbytes for (start, to), nbytes in traffic.items() if start == -1} == expected
        if len(expected) > 1:
            assert used(machine) == [-(-expected.get(device, 0) // PAGE) * PAGE for device in range(3)]
        before = machine.link_traffic()
        ctx.wait(source)
        back = {
            start: n - before.get((start, to), 0)
            for (start, to), n in machine.link_traffic().items()
            if to == -1
        }
        assert back == expected


def test_work_of_one_device_crosses_the_link_to_pages_of_the_other(paged):
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(10 * PAGE, "u1", where=over(LINE))
        for mode, pair_of in (("read", (1, 0)), ("write", (0, 1))):
            before = paged.link_traffic().get(pair_of, 0)
            with ctx.task(on(0), getattr(data, mode)(over(LINE))):
                pass
            ctx.fence()
            assert paged.link_traffic()[pair_of] - before == 5 * PAGE


def test_data_of_one_device_is_an_ordinary_block(paged):
    grid = exec_place_grid.create([on(1)] * 4)
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(10 * PAGE + 1, "u1", where=over(LINE, grid))
        with ctx.task(on(1), data.read()) as t:
            address = t.get_arg(0)
        with ctx.task(grid.with_data(LINE), data.read()) as t:
            assert t.get_arg(0) == address
        with ctx.task(pair(), data.read(over(partition(stf.block_cyclic("x", 1 << 20))))) as t:
            assert t.get_arg(0) != address  # all on device 0
        assert used(paged)[0] > 0
        with ctx.task(on(0), data.read()) as t:
            assert t.get_arg(0) != address


def test_equal_layouts_share_one_instance(paged):
    by_name = exec_place_grid.from_devices([0, 1], axes=("gpu",))
    with stf.context() as ctx:
        data = ctx.logical_data(np.arange(5000.0))
        with ctx.task(pair(), data.read(over(LINE))) as t:
            address = t.get_arg(0)
        for same in (over(partition(blocked("gpu")), by_name), over(lambda at, n, g: (at[0] // 2500,))):
            with ctx.task(pair(), data.read(same)) as t:
                assert t.get_arg(0) == address


# ---- Memory


def test_memory_is_used_again_within_a_context_and_by_the_next(paged):
    addresses = []
    for _ in range(2):
        with stf.context() as ctx:
            for k in range(3):
                data = ctx.logical_data_full(40 * PAGE, k, "u1", where=over(LINE))
                with ctx.task(pair(), data.rw(over(LINE))) as t:
                    assert (t.numpy(0) == k).all()
                    addresses.append(t.get_arg(0))
                del data, t
            assert ctx.stats.reused_blocks == 2 and ctx.stats.allocations <= 1
        assert used(paged) == [20 * PAGE] * 2
    assert len(set(addresses)) == 1
    assert paged.conflicts == ()


def test_composites_give_way_to_other_data_and_other_data_to_them(small):
    blocks = partition(stf.block_cyclic("x", 2 * PAGE))
    places = [pair().with_data(LINE), on(0), pair().with_data(blocks), on(1)]
    sources = [
        np.full(12 * PAGE, k, "u1") for k in range(8)
    ]  # 12 pages each, 96 in all; there is room for 32
    with stf.context() as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for turn in range(3):
            for k, one in enumerate(data):
                with ctx.task(places[(k + turn) % 4], one.rw()) as t:
                    t.numpy(0)[:] += 1
        assert ctx.stats.evictions > 0
    assert [np.unique(source).tolist() for source in sources] == [[k + 3] for k in range(8)]
    assert small.conflicts == ()


def test_what_does_not_fit_names_the_sizes_and_leaves_everything(small):
    grid = pair().with_data(LINE)
    with stf.context() as ctx:
        big = ctx.logical_data_empty(40 * PAGE, "u1", name="big")
        with pytest.raises(stf.OutOfMemory, match=rf"'big'.*\b{40 * PAGE} bytes") as caught:
            ctx.task(grid, big.write()).start()
        assert isinstance(caught.value, MemoryError)
        assert used(small) == [0, 0] and small.live_allocations == 0
        held = [ctx.logical_data_full(8 * PAGE, k, "u1", where=over(LINE)) for k in range(3)]
        before = used(small)
        with pytest.raises(stf.OutOfMemory, match="'big'"):
            ctx.task(grid, big.write()).start()
        assert all(now <= then for now, then in zip(used(small), before, strict=True))
        with ctx.task(grid, ctx.logical_data_empty(30 * PAGE, "u1").write()) as t:
            t.numpy(0)[:] = 9
        assert [np.unique(ctx.wait(one)).tolist() for one in held] == [[0], [1], [2]]
        with ctx.task(HOST, big.write()) as t:
            t.numpy(0)[:] = 5
        assert (ctx.wait(big) == 5).all()


def test_a_place_that_is_short_on_one_device_names_who_holds_it_and_takes_nothing_of_the_other(small):
    grid = pair().with_data(LINE)
    with stf.context() as ctx:
        held = ctx.logical_data_full(12 * PAGE, 1, "u1", where=data_place.device(1), name="held")
        wide = ctx.logical_data_full(20 * PAGE, 2, "u1", exec_place=HOST, name="wide")
        with ctx.task(on(1), held.rw()) as t:
            pattern = rf"(?s)'wide'.*\b{20 * PAGE} bytes.*device\(1\).*'held' \({12 * PAGE} bytes, in use\)"
            with pytest.raises(stf.OutOfMemory, match=pattern):
                ctx.task(grid, wide.rw()).start()
            assert small.used_memory(0) == 0
        with ctx.task(grid, wide.rw()) as t:  # now it fits
            t.numpy(0)[:] += 1
        assert (ctx.wait(held) == 1).all() and (ctx.wait(wide) == 3).all()


def test_ranges_that_are_kept_give_way_before_memory_is_short(small):
    for place in (data_place.device(0), over(COLUMNS), data_place.device(1)):
        with stf.context() as ctx:
            ctx.logical_data_zeros(24 * PAGE, "u1", where=over(LINE))
        assert used(small) == [12 * PAGE] * 2
        array = DeviceArray.from_host(np.full((3, 5 * PAGE), 7, "u1"), place)
        assert (array.copy_to_host() == 7).all()
        del array
    with stf.context() as ctx:
        assert (ctx.wait(ctx.logical_data_full(15 * PAGE, 3, "u1", where=data_place.device(0))) == 3).all()
        assert (ctx.wait(ctx.logical_data_full(15 * PAGE, 3, "u1", where=data_place.device(1))) == 3).all()


def test_machines_without_bytes_hold_large_arrays():
    with stf.use_machine("sim:h200x2", execute=False) as machine, stf.context() as ctx:
        data = ctx.logical_data_empty((1 << 16, 1 << 14), "f4")
        with ctx.task(pair().with_data(ROWS), data.write()):
            pass
        assert used(machine) == [2 << 30] * 2
        huge = ctx.logical_data_empty((1 << 19, 1 << 18), "f4", name="huge")
        with pytest.raises(stf.OutOfMemory, match=rf"'huge'.*\b{1 << 39} bytes"):
            ctx.task(pair().with_data(ROWS), huge.write()).start()
