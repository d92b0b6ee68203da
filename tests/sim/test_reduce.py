"""Reductions of data to one element: values of every kind, places, use of the result, and what is refused."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import stf_places as stf
from stf_places import blocked, cyclic, data_place, exec_place, exec_place_grid, partition, whole

HOST = exec_place.host()
LINE = partition(blocked("x"))
OPS = {"sum": np.sum, "max": np.max, "min": np.min}
DTYPES = ("i4", "i8", "u4", "u8", "f4", "f8")
TOLERANCE = {"f4": 1e-6, "f8": 1e-13}
each_op = pytest.mark.parametrize("op", OPS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def expected_of(values, op):
    """Return what NumPy gives: integers wrap around within their type, floats are summed in double."""
    if op != "sum":
        return OPS[op](values)
    wide = np.longdouble if values.dtype.kind == "f" else values.dtype
    return values.sum(dtype=wide).astype(values.dtype)


def check(found, values, op):
    assert found.shape == (1,) and found.dtype == values.dtype
    if op == "sum" and values.dtype.kind == "f":
        scale = np.abs(values).sum(dtype="f8")
        error = abs(float(found[0]) - float(values.sum(dtype=np.longdouble)))
        assert error <= TOLERANCE[values.dtype.str[1:]] * scale
    else:
        assert found[0] == expected_of(values, op)


def drawn(rng, shape, dtype):
    """Return values of both signs and of all magnitudes that the type has, floats around 1."""
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.fixture
def ctx(machine):
    with stf.context() as made:
        yield made
    assert not machine.simulated or machine.conflicts == ()


@pytest.fixture(params=["device", "devices", "green places", "cyclic devices"])
def place(request, machine):
    """Give a place to reduce on, grids with a partition of one-dimensional data."""
    if request.param == "device":
        return exec_place.device(machine.device_count - 1)
    if request.param == "green places":
        return exec_place_grid.create(stf.green_places(16, 4)).with_data(LINE)
    grid = exec_place_grid.from_devices(range(machine.device_count))
    return grid.with_data(LINE if request.param == "devices" else partition(cyclic("x")))


# ---- Values


@each_op
@each_dtype
def test_results_are_those_of_numpy_on_every_kind_of_place(ctx, place, op, dtype):
    values = drawn(np.random.default_rng(9), 1_500_001, dtype)
    source = values.copy()
    result = stf.reduce(ctx, ctx.logical_data(source), op, place)
    assert (result.shape, result.dtype) == ((1,), np.dtype(dtype))
    check(ctx.wait(result), values, op)
    assert source.tobytes() == values.tobytes()


@each_op
@each_dtype
def test_results_do_not_need_a_place(ctx, machine, op, dtype):
    values = drawn(np.random.default_rng(10), (7, 50_001), dtype)
    grid = exec_place_grid.machine()
    spread = data_place.composite(grid, partition(whole, blocked("gpu")))
    with_rows = ctx.logical_data(values)
    with ctx.task(grid.with_data(spread), with_rows.rw()):
        pass  # its only valid instance lies over all devices
    for data in (ctx.logical_data(values.copy()), with_rows):
        check(ctx.wait(stf.reduce(ctx, data, op)), values, op)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_arrays_of_any_rank_and_layout_are_reduced(data):
    shape = data.draw(array_shapes(min_dims=1, max_dims=4, max_side=14))
    op, dtype = data.draw(st.sampled_from(list(OPS))), data.draw(st.sampled_from(DTYPES))
    values = drawn(np.random.default_rng(data.draw(st.integers(0, 99))), shape, dtype)
    cut = data.draw(st.integers(0, len(shape) - 1))
    rule = data.draw(st.sampled_from([blocked("x"), cyclic("x"), stf.block_cyclic("x", 3)]))
    spec = partition(*(rule if axis == cut else whole for axis in range(len(shape))))
    grid = exec_place_grid.create([exec_place.device(k % 2) for k in range(data.draw(st.integers(1, 5)))])
    seed = data.draw(st.one_of(st.none(), st.integers(0, 9)))
    with stf.use_machine("sim:tiny", chaos=seed) as machine:
        with stf.context() as ctx:
            source = ctx.logical_data(values)
            check(ctx.wait(stf.reduce(ctx, source, op, grid.with_data(spec))), values, op)
            check(ctx.wait(stf.reduce(ctx, source, op=op, place=exec_place.device(1))), values, op)
        assert machine.conflicts == ()


@each_op
def test_the_extremes_of_a_type_are_not_taken_for_its_neutral_element(ctx, place, op):
    for dtype in DTYPES:
        kind = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype)
        for value in (kind.min, kind.max):
            values = np.full(1 if op == "sum" else 3, value, dtype)
            found = ctx.wait(stf.reduce(ctx, ctx.logical_data(values), op, place))
            assert found[0] == expected_of(values, op)


@pytest.mark.parametrize("position", [0, 499_999, 999_999])
def test_no_element_is_left_out(ctx, place, position):
    values = np.zeros(1_000_000, "i4")
    values[position] = -5
    data = ctx.logical_data(values)
    assert [ctx.wait(stf.reduce(ctx, data, op, place))[0] for op in OPS] == [-5, 0, -5]


@each_op
def test_one_element_is_its_own_reduction(ctx, place, op):
    assert ctx.wait(stf.reduce(ctx, ctx.logical_data(np.array([42], "i8")), op, place)).tolist() == [42]


def test_the_default_is_the_sum(ctx):
    data = ctx.logical_data(np.arange(10))
    assert ctx.wait(stf.reduce(ctx, data)).tolist() == [45]


# ---- In a program


def test_results_are_used_by_later_tasks(ctx, machine, place):
    values = np.arange(1, 1001, dtype="i8")
    data, out = ctx.logical_data(values), ctx.logical_data_empty(2, "i8")
    largest, total = stf.reduce(ctx, data, "max", place), stf.reduce(ctx, data, "sum", place)
    with ctx.task(HOST, largest.read(), total.rw(), out.write()) as t:
        t.numpy(1)[0] += 1
        t.numpy(2)[:] = t.numpy(0)[0], t.numpy(1)[0]
    with ctx.task(exec_place.device(0), largest.rw()):
        pass
    assert ctx.wait(out).tolist() == [1000, 500_501] and ctx.wait(total).tolist() == [500_501]
    assert ctx.wait(largest).tolist() == [1000]


def test_reductions_follow_the_order_of_tasks(ctx, place):
    data, found = ctx.logical_data(np.zeros(100_000, "i4")), []
    for number in range(1, 5):
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] += number
        found.append(stf.reduce(ctx, data, "sum", place))
    with ctx.task(HOST, data.rw()) as t:
        t.numpy(0)[:] = -1
    assert [int(ctx.wait(one)[0]) for one in found] == [100_000, 300_000, 600_000, 1_000_000]


def test_a_result_can_be_reduced_again(ctx):
    once = stf.reduce(ctx, ctx.logical_data(np.arange(10.0)), "max")
    assert ctx.wait(stf.reduce(ctx, once, "sum")).tolist() == [9.0]


def test_data_of_many_places_is_reduced_where_it_lies():
    with stf.use_machine("sim:h200x8") as machine, stf.context() as ctx:
        grid = exec_place_grid.machine().with_data(partition(blocked("gpu")))
        data = ctx.logical_data_full(8 << 20, 3, "i4", exec_place=grid)
        result = stf.reduce(ctx, data, "sum", grid)
        assert ctx.wait(result).tolist() == [24 << 20]
        assert sum(machine.link_traffic().values()) < (8 << 20) * 4 // 100


def test_the_symbol_names_the_work():
    with stf.use_machine("sim:h200x2"):
        ctx = stf.context(trace=True)
        stf.reduce(ctx, ctx.logical_data(np.arange(10.0)), symbol="residual")
        ctx.finalize()
        assert any("residual" in record.symbol for record in ctx.trace if record.kind == "task")


def test_read_only_sources_are_reduced(ctx, place):
    values = np.arange(5000.0)
    values.flags.writeable = False
    assert ctx.wait(stf.reduce(ctx, ctx.logical_data(values), "max", place)).tolist() == [4999.0]


# ---- Bad input


@pytest.mark.parametrize("op", ["mean", "", "SUM", "prod"])
def test_unknown_operations_are_refused(ctx, op):
    with pytest.raises(ValueError, match=rf"'sum'.*'max'.*'min'.*got '{op}'"):
        stf.reduce(ctx, ctx.logical_data(np.ones(3)), op)


@pytest.mark.parametrize("op", [None, 3, np.max])
def test_operations_are_named(ctx, op):
    with pytest.raises((TypeError, ValueError), match="'sum'"):
        stf.reduce(ctx, ctx.logical_data(np.ones(3)), op)


@pytest.mark.parametrize("dtype", ["?", "c8", "M8[s]", "S4", ">i4", ">f8", [("a", "i4"), ("b", "f4")]])
def test_types_that_are_not_supported_are_named(ctx, dtype):
    data = ctx.logical_data(np.zeros(5, dtype), name="u")
    with pytest.raises(TypeError, match="int32.*float64.*got"):
        stf.reduce(ctx, data)


def test_tokens_have_nothing_to_reduce(ctx):
    with pytest.raises(TypeError, match="token"):
        stf.reduce(ctx, ctx.token())


@pytest.mark.parametrize("wrong", [np.ones(3), None, [1, 2]])
def test_only_logical_data_is_reduced(ctx, wrong):
    with pytest.raises(TypeError, match="logical data"):
        stf.reduce(ctx, wrong)


@each_op
@pytest.mark.parametrize("shape", [0, (3, 0)])
def test_empty_data_has_no_reduction(ctx, op, shape):
    with pytest.raises(ValueError, match=r"\(0,\)|\(3, 0\)"):
        stf.reduce(ctx, ctx.logical_data_zeros(shape), op)


def test_data_of_another_context_is_refused(ctx):
    with stf.context() as other:
        data = other.logical_data(np.ones(3))
        with pytest.raises(stf.WrongContext):
            stf.reduce(ctx, data)
    with pytest.raises(stf.WrongContext):
        stf.reduce(ctx, data)


def test_data_without_a_value_is_refused(ctx):
    with pytest.raises(stf.TaskStateError, match="before anything wrote it"):
        stf.reduce(ctx, ctx.logical_data_empty(3))


def test_places_are_places(ctx):
    data = ctx.logical_data(np.ones(3))
    for wrong in (0, data_place.device(0)):
        with pytest.raises(TypeError, match="place"):
            stf.reduce(ctx, data, "sum", wrong)


def test_partitions_of_another_rank_are_refused(ctx, machine):
    data = ctx.logical_data(np.ones((3, 4)), name="image")
    grid = exec_place_grid.from_devices([0]).with_data(LINE)
    with pytest.raises(stf.PartitionError, match="image"):
        stf.reduce(ctx, data, "sum", grid)


def test_a_closed_context_reduces_nothing(machine):
    with stf.context() as ctx:
        data = ctx.logical_data(np.ones(3))
    with pytest.raises((stf.ContextClosed, stf.WrongContext)):
        stf.reduce(ctx, data)
