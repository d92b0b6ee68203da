"""Shards of grid tasks: boxes, halos, streams, work on them, and what they refuse."""

import functools
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stf_places as stf
from stf_places import blocked, cyclic, data_place, exec_place, exec_place_grid, partition, whole

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # where partitions are drawn

from drawn_partitions import bindings, brute_owners

HOST = exec_place.host()
LINE, ROWS, COLUMNS = partition(blocked("x")), partition(blocked("x"), whole), partition(whole, blocked("x"))


def on(device):
    return exec_place.device(device)


def places(count, devices=2):
    return exec_place_grid.create([on(k % devices) for k in range(count)])


@pytest.fixture(params=[None, 1, 2], ids=["program-order", "chaos-1", "chaos-2"])
def paged(request):
    """Put a machine of two devices with pages of 4 KiB in use."""
    with stf.use_machine("sim:tiny", chaos=request.param) as chosen:
        yield chosen


@pytest.fixture
def ctx(paged):
    with stf.context() as made:
        yield made
    assert paged.conflicts == ()


@pytest.fixture
def racing(paged):
    """Give a context of a program that is wrong."""
    with suppress(stf.DataRace), stf.context() as made:
        yield made


def mask(shape, *boxes):
    """Return how many of the boxes each element lies in."""
    counts = np.zeros(shape, int)
    for box in boxes:
        counts[box] += 1
    return counts


# ---- Boxes


def small_bindings(**kwargs):
    return bindings(**kwargs).filter(lambda binding: binding[2].size <= 16)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(small_bindings())
def test_shards_of_every_rule_are_what_the_places_own(binding):
    spec, shape, grid = binding
    owners = brute_owners(*binding)
    values = np.arange(owners.size).reshape(shape)
    place = exec_place_grid.create([on(k % 2) for k in range(grid.size)], grid.shape, axes=grid.axes)
    with stf.use_machine("sim:tiny"), stf.context() as ctx:
        with ctx.task(place.with_data(spec), ctx.logical_data(values).rw()) as t:
            shards = t.shards(0)
            for shard in shards:
                assert (owners[shard.box] == shard.place_index).all()
                assert shard.place == place.places[shard.place_index]
                assert shard.shape == values[shard.box].shape and shard.size == values[shard.box].size > 0
                assert shard.start == tuple(axis.start for axis in shard.box)
                assert shard.step == tuple(axis.step for axis in shard.box)
                assert np.array_equal(values[shard.box], values[shard.owned])
                assert np.array_equal(shard.numpy(), values[shard.box])
                assert np.array_equal(shard.numpy()[shard.inner], values[shard.box])
        assert (mask(shape, *(shard.box for shard in shards)) == 1).all()
        indices = [shard.place_index for shard in shards]
        assert indices == sorted(indices) and set(indices) == set(owners.reshape(-1).tolist())


def widened(owned, halo, shape):
    """Return the box with the elements within so many of the owned ones along each axis."""
    return tuple(
        slice(max(0, axis.start - width), min(length, axis.stop + width))
        for axis, width, length in zip(owned, halo, shape, strict=True)
    )


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_halos_widen_boxes_up_to_the_border(data):
    in_one_piece = small_bindings().filter(
        lambda one: all(
            rule.kind != "cyclic" and (rule.kind not in ("block_cyclic", "tiled") or rule.block > 1)
            for rule in one[0].rules
        )
    )
    spec, shape, grid = data.draw(in_one_piece)
    widths = st.integers(0, 4)
    halo = data.draw(st.one_of(widths, st.tuples(*[widths] * len(shape))))
    each = (halo,) * len(shape) if isinstance(halo, int) else halo
    values = np.arange(np.prod(shape)).reshape(shape)
    place = exec_place_grid.create([on(k % 2) for k in range(grid.size)], grid.shape, axes=grid.axes)
    with stf.use_machine("sim:tiny"), stf.context() as ctx:
        with ctx.task(place.with_data(spec), ctx.logical_data(values).read()) as t:
            plain, wide = t.shards(0), t.shards(0, halo=halo)
            assert [shard.place_index for shard in wide] == [shard.place_index for shard in plain]
            for one, shard in zip(plain, wide, strict=True):
                assert np.array_equal(values[shard.owned], values[one.box])
                assert np.array_equal(values[shard.box], values[widened(one.box, each, shape)])
                assert np.array_equal(shard.numpy(), values[shard.box])
                assert np.array_equal(shard.numpy()[shard.inner], values[shard.owned])
                assert shard.start == tuple(axis.start for axis in shard.box)
                assert (shard.shape, shard.size) == (values[shard.box].shape, values[shard.box].size)
        assert (mask(shape, *(shard.owned for shard in wide)) == 1).all()


def test_views_are_boxes_of_the_whole_array(ctx):
    values = np.arange(60.0).reshape(6, 10)
    with ctx.task(places(2).with_data(partition(cyclic("x"), whole)), ctx.logical_data(values).rw()) as t:
        for shard in t.shards(0):
            interface = shard.view.__cuda_array_interface__
            assert interface["data"] == (t.get_arg(0) + 80 * shard.place_index, False)
            assert (interface["shape"], interface["strides"], interface["typestr"]) == (
                (3, 10),
                (160, 8),
                "<f8",
            )
            assert (shard.view.shape, shard.view.dtype, shard.view.readonly) == (
                (3, 10),
                np.dtype("f8"),
                False,
            )
            assert np.shares_memory(np.asarray(shard.view), t.numpy(0))
            assert np.array_equal(np.asarray(shard.view), values[shard.place_index :: 2])
            assert (shard.task, shard.argument) == (t, 0)
            assert (shard.start, shard.step) == ((shard.place_index, 0), (2, 1))


def test_what_is_only_read_cannot_be_written_through_a_shard(ctx):
    with ctx.task(places(2).with_data(LINE), ctx.logical_data(np.zeros(10)).read()) as t:
        for shard in t.shards(0):
            assert shard.view.readonly and not shard.numpy().flags.writeable


def test_a_single_place_has_one_shard_of_everything(machine):
    values = np.arange(12.0).reshape(3, 4)
    with stf.context() as ctx:
        data, number = ctx.logical_data(values), ctx.logical_data_zeros(())
        for place in (on(0), HOST):
            with ctx.task(place, data.rw(), number.rw()) as t:
                (shard,) = t.shards(0, halo=2)
                assert (shard.place_index, shard.place, shard.stream) == (0, place, t.stream_ptr())
                assert (shard.start, shard.shape, shard.step) == ((0, 0), (3, 4), (1, 1))
                assert mask((3, 4), shard.box, shard.owned).sum() == 24
                assert shard.view.ptr == t.get_arg(0) == shard.get_arg(0) == shard.get_arg_cai(0).ptr
                (scalar,) = t.shards(1)
                assert (scalar.box, scalar.shape, scalar.size) == ((), (), 1)
                if place == HOST or machine.simulated:
                    shard.numpy()[...] += 1
        assert np.array_equal(ctx.wait(data), np.arange(12.0).reshape(3, 4) + 1 + machine.simulated)


def test_another_partition_can_be_asked_for(ctx):
    data = ctx.logical_data(np.arange(24.0).reshape(4, 6))
    with ctx.task(places(2).with_data(ROWS), data.read()) as t:
        assert [shard.shape for shard in t.shards(0)] == [(2, 6)] * 2
        assert [shard.shape for shard in t.shards(0, partition=COLUMNS)] == [(4, 3)] * 2
    with ctx.task(places(2), data.read(data_place.device(0))) as t:
        assert [shard.start for shard in t.shards(0, 1, partition=COLUMNS)] == [(0, 0), (0, 2)]


def test_the_partition_is_laid_over_the_grid_of_the_task(ctx):
    data = ctx.logical_data(np.arange(8.0))
    with ctx.task(places(4), data.read(data_place.composite(places(2), LINE))) as t:
        assert [(shard.start, shard.shape) for shard in t.shards(0)] == [((2 * k,), (2,)) for k in range(4)]
    with ctx.task(places(4).with_data(LINE), data.read(data_place.device(1))) as t:
        assert [shard.place_index for shard in t.shards(0)] == [0, 1, 2, 3]
    with ctx.task(
        places(4).with_data(LINE), data.read(data_place.composite(places(2), partition(cyclic("x"))))
    ) as t:
        assert [shard.step for shard in t.shards(0)] == [(4,)] * 4


# ---- Streams and arguments


def test_each_place_has_its_own_stream(machine):
    per_device = 3
    grid = exec_place_grid.create(
        [stf.green_places(16, per_device, device_id=device) for device in range(machine.device_count)],
        axes=("gpu", "sm"),
    ).with_data(partition(blocked("gpu", "sm")))
    driver = machine._driver
    with stf.context() as ctx:
        data = ctx.logical_data_zeros(3_000_000)
        with ctx.task(grid, data.rw()) as t:
            shards = t.shards(0)
            assert [shard.place for shard in shards] == list(grid.places)
            assert len({int(shard.stream) for shard in shards}) == grid.size
            assert [shard.stream for shard in shards] == t.get_stream_ptrs()
            for shard in shards:
                assert isinstance(shard.stream, stf.CudaStream)
                context = driver.stream_context(int(shard.stream))
                assert driver.context_device(context) == shard.place.device_id


def test_places_that_own_nothing_have_no_shard(ctx):
    with ctx.task(places(4).with_data(LINE), ctx.logical_data(np.zeros(5)).read()) as t:
        assert [shard.place_index for shard in t.shards(0)] == [0, 1, 2]


def test_copies_of_replicated_axes_have_no_shards(ctx):
    grid = exec_place_grid.create([on(0), on(1)] * 2, (2, 2), axes=("gpu", "copy"))
    spec = partition(blocked("gpu"), replicated=["copy"])
    with ctx.task(grid.with_data(spec), ctx.logical_data(np.zeros(10)).rw()) as t:
        assert [(shard.place_index, shard.start) for shard in t.shards(0)] == [(0, (0,)), (2, (5,))]


def test_replicated_arguments_are_those_of_the_shards_device(ctx):
    table, values = np.arange(5.0), np.zeros(8)
    data = ctx.logical_data(values)
    with ctx.task(
        places(4).with_data(LINE), ctx.logical_data(table).read(data_place.replicated()), data.rw()
    ) as t:
        shards = t.shards(1)
        addresses = [shard.get_arg(0) for shard in shards]
        assert addresses == [t.get_arg(0, place_index=k) for k in range(4)]
        assert addresses[:2] == addresses[2:] and addresses[0] != addresses[1]
        for shard in shards:
            assert shard.get_arg_cai(0).ptr == shard.get_arg(0) and shard.get_arg(1) == t.get_arg(1)
            copy = np.asarray(shard.get_arg_cai(0))
            shard.run(
                lambda out, one, k: np.add(out, one[k + 1], out), shard.numpy(), copy, shard.place_index
            )
    assert ctx.wait(data).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


# ---- Work on shards


@settings(deadline=None, max_examples=60)
@given(small_bindings(replicas=False), st.booleans(), st.one_of(st.none(), st.integers(0, 9)))
def test_writes_through_shards_make_the_whole_array(binding, deferred, seed):
    spec, shape, grid = binding
    values = np.full(shape, -1)
    place = exec_place_grid.create(
        [on(k % 2) for k in range(grid.size)], grid.shape, axes=grid.axes
    ).with_data(spec)
    with stf.use_machine("sim:tiny", chaos=seed) as machine:
        with stf.context() as ctx:
            data = ctx.logical_data(values)
            with ctx.task(place, data.write()) as t:
                for shard in t.shards(0):
                    do = shard.run if deferred else lambda fn, *args: fn(*args)
                    do(np.copyto, shard.numpy(), shard.place_index)
            with ctx.task(place, data.rw()) as t:
                for shard in t.shards(0):
                    shard.run(np.multiply, shard.numpy(), 2, shard.numpy())
        assert machine.conflicts == ()
    assert np.array_equal(values, 2 * brute_owners(*binding))


def blur(padded):
    return (
        padded[1:-1, 1:-1] * 3 + padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    )


def blurred(view, out, box, owned):
    """Do one step on what a place owns; zeros lie around the whole array."""
    edges = [
        (1 - (own.start - wide.start), 1 - (wide.stop - own.stop))
        for wide, own in zip(box, owned, strict=True)
    ]
    out[owned] = blur(np.pad(view, edges))


@pytest.mark.parametrize("spec", [ROWS, COLUMNS, partition(stf.block_cyclic("x", 5), whole)], ids=repr)
@pytest.mark.parametrize(
    "by_source", [True, False], ids=["shards of what is read", "shards of what is written"]
)
def test_a_stencil_with_halos_equals_numpy(ctx, spec, by_source):
    image = np.random.default_rng(7).integers(0, 1 << 30, (23, 19))
    expected = image.copy()
    grid = places(4).with_data(spec)
    u, v = ctx.logical_data(image), ctx.logical_data_empty(image.shape, image.dtype)
    for step in range(5):
        with ctx.task(grid, u.read(), v.write(), symbol=f"step {step}") as t:
            for shard in t.shards(0 if by_source else 1, halo=1 if by_source else 0):
                if by_source:
                    box, view = shard.box, shard.numpy()
                else:
                    box = widened(shard.owned, (1, 1), image.shape)
                    view = t.numpy(0)[box]
                shard.run(blurred, view, t.numpy(1), box, shard.owned)
        u, v = v, u
        expected = blur(np.pad(expected, 1))
    assert np.array_equal(ctx.wait(u), expected)


@functools.cache
def blur_kernel():
    wp = pytest.importorskip("warp", reason="needs Warp")

    @wp.kernel
    def step(u: wp.array2d(dtype=wp.int32), v: wp.array2d(dtype=wp.int32), row: int, column: int):
        a, b = wp.tid()
        i, j = a + row, b + column
        total = 3 * u[i, j]
        if i > 0:
            total += u[i - 1, j]
        if i < u.shape[0] - 1:
            total += u[i + 1, j]
        if j > 0:
            total += u[i, j - 1]
        if j < u.shape[1] - 1:
            total += u[i, j + 1]
        v[i, j] = total

    return step


@pytest.mark.parametrize("spec", [ROWS, COLUMNS], ids=repr)
@pytest.mark.parametrize("kind", ["devices", "partitions"])
def test_warp_kernels_over_shards_equal_numpy(machine, kind, spec):
    from stf_places.interop import warp as stf_warp

    kernel = blur_kernel()
    image = np.random.default_rng(8).integers(0, 1000, (301, 2003)).astype("i4")
    grid = exec_place_grid.machine() if kind == "devices" else exec_place_grid.create(stf.green_places(16, 4))
    grid = grid.reshape(grid.size).with_data(spec)
    expected = image.copy()
    with stf.context() as ctx:
        u, v = ctx.logical_data(image), ctx.logical_data_empty(image.shape, image.dtype)
        for _ in range(4):
            with ctx.task(grid, u.read(), v.write()) as t:
                for shard in t.shards(1):
                    inputs = [stf_warp.array(shard, 0), stf_warp.array(shard, 1), *shard.start]
                    assert inputs[0].shape == image.shape
                    stf_warp.launch(shard, kernel, dim=shard.shape, inputs=inputs)
            u, v = v, u
            expected = blur(np.pad(expected, 1))
        assert np.array_equal(ctx.wait(u), expected)
    assert not machine.simulated or machine.conflicts == ()


def test_work_of_a_grid_task_without_shards_is_done_once(ctx):
    calls, data = [], ctx.logical_data(np.zeros(5000))
    with ctx.task(places(4).with_data(LINE), data.rw()) as t:
        t.run(calls.append, 1)
        t.run(np.add, t.numpy(0), 1, t.numpy(0))
    with ctx.task(places(2).with_data(LINE), data.rw()) as t:
        assert (t.numpy(0) == 1).all()
        t.numpy(0)[:] += 1
    assert (ctx.wait(data) == 2).all() and calls == [1]


def test_exceptions_of_work_on_a_shard_are_raised_by_the_next_blocking_call(ctx):
    data = ctx.logical_data(np.zeros(10))
    with ctx.task(places(2).with_data(LINE), data.rw()) as t:
        t.shards(0)[1].run(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ctx.wait(data)


# ---- Races


@pytest.mark.parametrize("uses", ["write", "rw"])
def test_shards_that_write_the_same_elements_race(racing, paged, uses):
    data = racing.logical_data(np.zeros((8, 512)))
    with racing.task(places(2).with_data(ROWS), getattr(data, uses)(), symbol="overlap") as t:
        for shard in t.shards(0, halo=1):
            shard.run(np.copyto, shard.numpy(), 1)
    with pytest.raises(stf.DataRace, match="overlap"):
        racing.wait(data)
    assert paged.conflicts


@pytest.mark.parametrize("uses", [("rw",), ("read", "rw")], ids=" ".join)
def test_reading_what_another_shard_writes_is_a_race(racing, uses):
    data = racing.logical_data(np.zeros((8, 512)))
    with racing.task(
        places(2).with_data(ROWS), *(getattr(data, use)() for use in uses), symbol="in place"
    ) as t:
        for shard in t.shards(0, halo=1):
            shard.run(blurred, shard.numpy(), t.numpy(len(uses) - 1), shard.box, shard.owned)
    with pytest.raises(stf.DataRace, match="in place"):
        racing.wait(data)


@pytest.mark.parametrize("spec", [ROWS, COLUMNS, partition(whole, cyclic("x"))], ids=repr)
def test_disjoint_boxes_are_no_race(ctx, spec):
    data = ctx.logical_data(np.zeros((8, 512)))
    for number in range(3):
        with ctx.task(places(4).with_data(spec), data.rw()) as t:
            for shard in t.shards(0):
                shard.run(np.add, shard.numpy(), shard.place_index + number, shard.numpy())
    assert ctx.wait(data).sum() == 8 * 128 * sum(place + number for place in range(4) for number in range(3))


def test_boxes_that_overlap_in_what_is_only_read_are_no_race(ctx, paged):
    data, sums = ctx.logical_data(np.ones((8, 512))), []
    with ctx.task(places(4).with_data(ROWS), data.read()) as t:
        for shard in t.shards(0, halo=2):
            shard.run(lambda view: sums.append(view.sum()), shard.numpy())
    paged._driver.synchronize_stream(ctx.fence())
    assert sorted(sums) == [4 * 512, 4 * 512, 6 * 512, 6 * 512]


# ---- Many places


def cost_of_tasks(count):
    """Return what five tasks over so many places ask of the driver once everything is warm."""
    with stf.use_machine("sim:h200x8") as machine, stf.context() as ctx:
        grid = exec_place_grid.machine(8).reshape(120)[:count].with_data(LINE)
        data = ctx.logical_data_zeros(240 * 8192)
        for number in range(8):
            if number == 3:
                before, operations = ctx.stats, machine.operations
            with ctx.task(grid, data.rw()) as t:
                for shard in t.shards(0):
                    shard.run(np.add, shard.numpy(), shard.place_index, shard.numpy())
        after = ctx.stats
        return (
            after.events_recorded - before.events_recorded,
            after.waits + after.waits_skipped - before.waits - before.waits_skipped,
            machine.operations - operations,
        )


def test_a_task_over_many_places_costs_in_proportion_to_them():
    least, most = cost_of_tasks(30), cost_of_tasks(120)
    for few, many in zip(least, most, strict=True):
        assert 0 < many <= 4.2 * few
    assert most[0] <= 5 * 2 * 120 and most[1] <= 5 * 4 * 120


# ---- Bad input


def test_shards_belong_inside_the_task(ctx):
    data = ctx.logical_data(np.zeros(10))
    t = ctx.task(places(2).with_data(LINE), data.rw(), symbol="late")
    with pytest.raises(stf.TaskStateError, match=r"shards\(\).*'late'"):
        t.shards(0)
    with t:
        shard = t.shards(0)[0]
    for use in (lambda: t.shards(0), lambda: shard.run(print), shard.numpy, lambda: shard.get_arg(0)):
        with pytest.raises(stf.TaskStateError, match="late"):
            use()


BAD = [
    (lambda t: t.shards(1), TypeError, "token"),
    (lambda t: t.shards(2), ValueError, "with_data"),
    (lambda t: t.shards(3), IndexError, "3"),
    (lambda t: t.shards("0"), TypeError, "str"),
    (lambda t: t.shards(0, halo=-1), ValueError, "halo.*-1"),
    (lambda t: t.shards(0, halo=(1, -1)), ValueError, "halo.*-1"),
    (lambda t: t.shards(0, halo=(1, 1, 1)), ValueError, r"halo.*\(1, 1, 1\)"),
    (lambda t: t.shards(0, halo=1.0), TypeError, "halo.*1.0"),
    (lambda t: t.shards(0, halo=None), TypeError, "halo"),
    (lambda t: t.shards(0, 1, partition=partition(cyclic("x"), whole)), ValueError, "halo"),
    (lambda t: t.shards(0, partition=LINE), stf.PartitionError, "rank-2"),
    (lambda t: t.shards(0, partition=3), TypeError, "partition"),
    (lambda t: t.shards(0, partition=partition(blocked("gpu"), whole)), stf.PartitionError, "'gpu'"),
    (lambda t: t.shards(0, partition=stf.mapper(lambda c, n, g: (0,))), stf.NotSupported, "mapper"),
    (lambda t: t.shards(0)[0].get_arg(1), TypeError, "token"),
    (lambda t: t.shards(0)[0].run(3), TypeError, "function"),
]


@pytest.mark.parametrize(("ask", "error", "text"), BAD, ids=range(len(BAD)))
def test_wrong_questions_are_explained(ctx, ask, error, text):
    data, plain = ctx.logical_data(np.zeros((8, 8))), ctx.logical_data(np.zeros(4))
    place = data_place.composite(places(2), ROWS)
    deps = [data.rw(place), ctx.token().rw(), plain.read(data_place.device(0))]
    with ctx.task(places(2), *deps) as t, pytest.raises(error, match=text):
        ask(t)


def test_mappers_have_no_shards(ctx):
    with ctx.task(places(2).with_data(lambda c, n, g: (c[0] % 2,)), ctx.logical_data(np.zeros(4)).rw()) as t:
        with pytest.raises(stf.NotSupported, match="mapper"):
            t.shards(0)
