"""Grids as values: names of axes, nesting, other shapes, grids of a whole machine, their data places."""

import copy
import json
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import stf_places as stf
from stf_places import data_place, exec_place, exec_place_grid, machines

NAMES = ("node", "gpu", "domain", "sm")
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def devices(shape, axes=None):
    """Return a grid of made-up devices, numbered in C order."""
    return exec_place_grid.create(map(exec_place.device, range(int(np.prod(shape)))), shape, axes=axes)


def numbers(grid):
    return [place.device_id for place in grid.places]


# ---- Properties


def kept(key, rank):
    """Return the axes that a key leaves."""
    keys = list(key) if isinstance(key, tuple) else [key]
    at = keys.index(...) if ... in keys else len(keys)
    keys[at : at + 1] = [slice(None)] * (rank - len(keys) + (... in keys))
    return [axis for axis, one in enumerate(keys) if isinstance(one, slice)]


@given(st.data())
def test_parts_are_those_of_numpy_and_keep_names(data):
    shape = data.draw(SHAPES)
    key = data.draw(basic_indices(shape, allow_newaxis=False))
    grid, array = devices(shape, NAMES[: len(shape)]), np.arange(np.prod(shape)).reshape(shape)
    expected = array[key]
    if expected.size == 0:
        with pytest.raises(ValueError, match="a grid has 1 place or more"):
            grid[key]
    elif not kept(key, len(shape)):
        assert grid[key] == exec_place.device(int(expected))
    else:
        assert grid[key] == exec_place_grid.create(
            map(exec_place.device, expected.ravel().tolist()),
            expected.shape,
            axes=[NAMES[axis] for axis in kept(key, len(shape))],
        )


@given(SHAPES, SHAPES)
def test_reshape_is_that_of_numpy(shape, other):
    grid, array = devices(shape), np.arange(np.prod(shape)).reshape(shape)
    if np.prod(shape) != np.prod(other):
        with pytest.raises(ValueError, match="the product of shape is the number of places"):
            grid.reshape(other)
        return
    assert grid.reshape(other) == devices(other)
    assert grid.reshape(other)[..., -1].size == array.reshape(other)[..., -1].size
    assert grid.reshape((-1, *other[1:])).shape == other
    assert grid.reshape(-1).shape == (array.size,)


@given(st.data())
def test_collapsing_keeps_the_order_and_the_other_axes(data):
    shape = data.draw(SHAPES)
    first = data.draw(st.integers(0, len(shape) - 1))
    end = data.draw(st.integers(first + 1, len(shape)))
    axes = NAMES[: len(shape)]
    by_name, by_number = axes[first:end], [axis - len(shape) for axis in range(first, end)]
    found = devices(shape, axes).collapse_axes(*by_name)
    assert found == devices(shape, axes).collapse_axes(*by_number)
    assert found.shape == (*shape[:first], int(np.prod(shape[first:end])), *shape[end:])
    assert found.axes == (*axes[: first + 1], *axes[end:])
    assert numbers(found) == list(range(int(np.prod(shape))))


@given(SHAPES)
def test_a_grid_is_made_of_its_rows(shape):
    grid = devices(shape, NAMES[: len(shape)])
    assert exec_place_grid.create(grid, axes=grid.axes) == grid
    assert exec_place_grid.create(iter(grid), axes=grid.axes) == grid
    nested = np.arange(np.prod(shape)).reshape(shape).tolist()

    def places_of(item):
        return exec_place.device(item) if isinstance(item, int) else [places_of(one) for one in item]

    assert exec_place_grid.create(places_of(nested), axes=grid.axes) == grid


# ---- Names of axes


def test_axes_have_names():
    assert devices((2, 3)).axes == ("x", "y") and devices((1, 1, 1, 2)).axes == ("x", "y", "z", "t")
    grid = exec_place_grid.from_devices(range(3), axes=["gpu"])
    assert (grid.axes, grid.shape, grid.size, grid.dims) == (("gpu",), (3,), 3, (3, 1, 1, 1))
    assert type(exec_place_grid.from_devices([0], axes=[np.str_("gpu")]).axes[0]) is str
    grid = devices((2, 3), ("gpu", "sm"))
    assert [grid.axis_number(axis) for axis in ("gpu", "sm", 0, 1, -1, np.int64(-2))] == [0, 1, 0, 1, 1, 0]
    assert [row.axes for row in grid] == [("sm",)] * 2
    with pytest.raises(AttributeError):
        grid.axes = ("x", "y")


@pytest.mark.parametrize(
    ("axes", "error", "text"),
    [
        (("gpu", "sm"), ValueError, r"2 axes for a rank-1 grid: got axes=\('gpu', 'sm'\), shape=\(4,\)"),
        ((), ValueError, r"0 axes for a rank-1 grid: got axes=\(\), shape=\(4,\)"),
        (("",), ValueError, r"the name of an axis has 1 character or more: got axes=\('',\)"),
        ("gpu", TypeError, r"axes is a sequence of names, .*: got 'gpu'; give axes=\('gpu',\)"),
        (3, TypeError, "axes is a sequence of names, .*: got 3"),
        ((0,), TypeError, r"axes are named by strings: got axes=\(0,\)"),
    ],
)
def test_names_are_checked(axes, error, text):
    with pytest.raises(error, match=text):
        exec_place_grid.from_devices(range(4), axes=axes)
    with pytest.raises(error, match=text):
        devices(4).reshape(4, axes)


def test_names_are_distinct_and_one_for_each_axis():
    with pytest.raises(ValueError, match=r"distinct names: got axes=\('gpu', 'gpu'\)"):
        devices((2, 2), ("gpu", "gpu"))
    with pytest.raises(ValueError, match=r"1 axis for a rank-2 grid: got axes=\('gpu',\), shape=\(2, 2\)"):
        devices((2, 2), ("gpu",))


def test_axes_that_are_not_there_are_named():
    grid = devices((2, 3), ("gpu", "sm"))
    for ask in (grid.axis_number, grid.collapse_axes):
        with pytest.raises(ValueError, match=r"this grid has the axes \('gpu', 'sm'\): got 'x'"):
            ask("x")
        for number in (2, -3):
            with pytest.raises(IndexError, match=rf"are numbered 0 to 1: got {number}"):
                ask(number)
        for wrong in (1.0, True, None):
            with pytest.raises(TypeError, match="an axis is given by its name or number: got"):
                ask(wrong)


# ---- Nesting


def test_grids_nest():
    a, b = devices((2, 3), ("gpu", "sm")), devices((2, 3))
    grid = exec_place_grid.create([a, b], axes=("node", "gpu", "sm"))
    assert (grid.shape, grid.axes) == ((2, 2, 3), ("node", "gpu", "sm"))
    assert grid[0] == a and grid[1].places == b.places
    assert exec_place_grid.create([a, b]).axes == ("x", "y", "z")
    assert exec_place_grid.create([a[0], list(b[0])]).shape == (2, 3)


def test_dimensions_reshape_what_is_nested():
    rows = [[exec_place.device(0), exec_place.device(1)], [exec_place.device(2), exec_place.device(3)]]
    assert exec_place_grid.create(rows, 4, axes=("gpu",)) == devices(4, ("gpu",))
    with pytest.raises(ValueError, match=r"got grid_dims=\(3,\), which makes 3, and 4 place"):
        exec_place_grid.create(rows, 3)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[0, 1], [2]], r"one shape: got shape \(1,\) at places\[1\] beside shape \(2,\) at places\[0\]"),
        ([0, [1]], r"got shape \(1,\) at places\[1\] beside a single place at places\[0\]"),
        (
            [[[0], [1]], [[2], 3]],
            r"got a single place at places\[1\]\[1\] beside shape \(1,\) at places\[1\]\[0\]",
        ),
        ([[0], []], r"a grid has 1 place or more: got none at places\[1\]"),
        ([[[[[0]]]]], r"a grid has 1 to 4 axes: got a sequence at places\[0\]\[0\]\[0\]\[0\]"),
    ],
)
def test_ragged_nesting_is_located(rows, text):
    def places_of(item):
        return exec_place.device(item) if isinstance(item, int) else [places_of(one) for one in item]

    with pytest.raises(ValueError, match=text):
        exec_place_grid.create(places_of(rows))


def test_what_is_no_place_is_located():
    with pytest.raises(TypeError, match=r"got 'device' \(str\) at places\[1\]\[0\]; for device ordinals use"):
        exec_place_grid.create([[exec_place.device(0)], ["device"]])
    with pytest.raises(ValueError, match=r"a grid has 1 to 4 axes: got 5, shape=\(2, 1, 1, 1, 1\)"):
        exec_place_grid.create([devices((1, 1, 1, 1))] * 2)
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="a grid has 1 to 4 axes"):
        exec_place_grid.create(endless)


# ---- Other shapes


def test_reshape_names_the_axes():
    grid = devices(6, ("gpu",))
    assert grid.reshape((2, -1), axes=("node", "gpu")) == devices((2, 3), ("node", "gpu"))
    assert grid.reshape(6).axes == ("x",)
    assert grid.axes == ("gpu",)


@pytest.mark.parametrize(
    ("shape", "error", "text"),
    [
        (
            (4, -1),
            ValueError,
            r"got shape=\(4, -1\) and 6 place\(s\), which are no multiple of 4",
        ),
        ((-1, -1), ValueError, r"one length can be -1, which stands for what is left: got shape=\(-1, -1\)"),
        ((0, -1), ValueError, r"each axis of a grid has 1 place or more: got shape=\(0, -1\)"),
        ((-2, -3), ValueError, r"each axis of a grid has 1 place or more: got shape=\(-2, -3\)"),
        ((5,), ValueError, r"got shape=\(5,\), which makes 5, and 6 place\(s\)"),
        ((), ValueError, r"a grid has 1 to 4 axes: got 0, shape=\(\)"),
        ((1, 1, 1, 1, 6), ValueError, "a grid has 1 to 4 axes: got 5"),
        (1.5, TypeError, "shape is an int or a sequence of ints: got 1.5"),
        ("xy", TypeError, "shape is an int or a sequence of ints: got 'xy'"),
    ],
)
def test_shapes_are_checked(shape, error, text):
    with pytest.raises(error, match=text):
        devices(6).reshape(shape)


def test_collapsing_axes():
    grid = devices((2, 3, 4), ("node", "gpu", "sm"))
    assert grid.collapse_axes() == devices(24, ("node",))
    assert grid.collapse_axes(name="place") == devices(24, ("place",))
    assert grid.collapse_axes("gpu", "sm", name="sm") == devices((2, 12), ("node", "sm"))
    assert grid.collapse_axes("gpu") == grid
    assert grid.collapse_axes(1, name="device").axes == ("node", "device", "sm")
    for axes in (("sm", "gpu"), ("node", "sm"), ("gpu", "gpu"), (0, 2)):
        with pytest.raises(
            ValueError, match=r"neighbouring axes can be collapsed, given in their order: got"
        ):
            grid.collapse_axes(*axes)
    with pytest.raises(ValueError, match=r"distinct names: got axes=\('node', 'node'\)"):
        grid.collapse_axes("gpu", "sm", name="node")
    with pytest.raises(ValueError, match="has 1 character or more"):
        grid.collapse_axes(name="")
    with pytest.raises(TypeError, match=r"axes are named by strings: got axes=\(3,\)"):
        grid.collapse_axes(name=3)


# ---- Grids of a machine


def test_all_devices(machine):
    grid = exec_place_grid.machine()
    assert grid == exec_place_grid.from_devices(range(machine.device_count), axes=("gpu",))
    assert exec_place_grid.machine("device") == grid


def test_locality_domains(machine):
    count = machine.device_count
    assert [exec_place_grid.locality_domain_count(device) for device in range(count)] == [1] * count
    domains = exec_place_grid.locality_domains()
    assert (domains.axes, domains.places) == (("domain",), exec_place_grid.machine().places)
    assert exec_place_grid.locality_domains(count - 1).places == (exec_place.device(count - 1),)
    grid = exec_place_grid.machine("locality_domain")
    assert (grid.shape, grid.axes, grid.places) == ((count, 1), ("gpu", "domain"), domains.places)
    for ask in (exec_place_grid.locality_domain_count, exec_place_grid.locality_domains):
        with pytest.raises(stf.InvalidDevice, match=f"device {count} does not exist"):
            ask(count)
        with pytest.raises(ValueError, match="device ordinals count from 0: got -1"):
            ask(-1)
        with pytest.raises(TypeError, match="a device is an int, its ordinal: got '0'"):
            ask("0")


def test_partitions_of_all_devices(machine):
    per_device = min(
        len(stf.plan_green_places(16, device_id=device).sm_counts) for device in range(machine.device_count)
    )
    grid = exec_place_grid.machine(16)
    assert (grid.shape, grid.axes) == ((machine.device_count, per_device), ("gpu", "sm"))
    for device, row in enumerate(grid):
        assert {(place.device_id, place.sm_count) for place in row.places} == {(device, 16)}
        assert row.affine_data_place == data_place.device(device)


def test_what_some_devices_have_more_is_given_back(simulated):
    held = stf.green_places(16, 3, device_id=1)
    left = len(stf.plan_green_places(16, device_id=1).sm_counts)
    assert 0 < left <= 5
    grid = exec_place_grid.machine(np.int64(16))
    assert grid.shape == (2, left)
    assert len(stf.green_places(16, device_id=0)) == 8 - left
    del grid
    assert exec_place_grid.machine(16).shape == (2, left)
    del held
    assert exec_place_grid.machine(16).shape == (2, 8)


def test_devices_of_several_sizes(tmp_path):
    description = json.loads((Path(machines.__file__).parent / "data" / "tiny.json").read_text())
    description["devices"][1] |= {"sm_count": 8, "aligned_sms": 8}
    path = tmp_path / "uneven.json"
    path.write_text(json.dumps(description))
    with stf.use_machine(f"sim:{path}"):
        assert exec_place_grid.machine(4).shape == (2, 2)
        with pytest.raises(stf.PartitionError, match=r"green_places\(12\) cannot be met: device 1 has 8 SMs"):
            exec_place_grid.machine(12)
        assert len(stf.green_places(4, device_id=0)) == 4


def test_granularity_is_checked(simulated):
    with pytest.raises(ValueError, match=r"'device', 'locality_domain' or an int, .*: got 'gpu'"):
        exec_place_grid.machine("gpu")
    for wrong in (1.5, True, None, [16]):
        with pytest.raises(TypeError, match=r"'device', 'locality_domain' or an int, .*: got"):
            exec_place_grid.machine(wrong)
    with pytest.raises(stf.PartitionError, match="sms_per_place is 1 or more"):
        exec_place_grid.machine(0)
    with pytest.raises(stf.PartitionError, match=r"green_places\(200\) cannot be met"):
        exec_place_grid.machine(200)


# ---- Data places


def test_with_data_makes_another_grid():
    grid = devices((2, 2), ("gpu", "sm"))
    given = grid.with_data(data_place.managed())
    assert (given.affine_data_place, grid.affine_data_place) == (data_place.managed(), None)
    assert given == grid and given.axes == grid.axes and given.places is grid.places
    assert given.with_data(data_place.host()).affine_data_place == data_place.host()
    for wrong in (3, exec_place.device(0), None):
        with pytest.raises(TypeError, match=r"data is laid over a grid by a partition, such as .*: got"):
            grid.with_data(wrong)
    with pytest.raises(ValueError, match="the data place of a place is one place with memory"):
        grid.with_data(data_place.affine())


def test_a_given_data_place_stays_while_all_places_stay():
    grid = devices((2, 2)).with_data(data_place.managed())
    for same in (grid.reshape(4), grid.collapse_axes(), copy.copy(grid), pickle.loads(pickle.dumps(grid))):
        assert same.affine_data_place == data_place.managed()
        assert same.places == grid.places
    assert grid[0].affine_data_place is None
    assert grid[0, 1:].affine_data_place == data_place.device(1)


def test_what_was_set_on_a_place_stays_with_it():
    place = exec_place.device(0)
    place.set_affine_data_place(data_place.managed())
    grid = exec_place_grid.create([place, exec_place.device(0)])
    assert grid.affine_data_place == data_place.device(0)
    assert grid[0].affine_data_place == data_place.managed()


def test_tasks_on_partitions_of_one_device_use_its_memory(machine):
    last = machine.device_count - 1
    grid = exec_place_grid.create(stf.green_places(16, 3, device_id=last))
    assert grid.affine_data_place == data_place.device(last)
    values = np.arange(6.0)
    with stf.context() as ctx:
        data = ctx.logical_data(values)
        with ctx.task(exec_place.device(last), data.rw()) as t:
            address = t.get_arg(0)
        with ctx.task(grid, data.rw(), symbol="spread") as t:
            assert len(set(t.get_stream_ptrs())) == 3
            assert t.get_arg(0) == address
            if machine.simulated:
                t.numpy(0)[:] += 1
    assert values.tolist() == [value + machine.simulated for value in range(6)]


def test_tasks_use_the_data_place_of_their_grid(machine):
    grid = exec_place_grid.create(stf.green_places(16, 2))
    with stf.context() as ctx:
        data = ctx.logical_data_full(4, 7.0)
        with ctx.task(grid.with_data(data_place.managed()), data.read()) as t:
            address = t.get_arg(0)
        with ctx.task(grid, data.read()) as t:
            assert t.get_arg(0) != address
        with ctx.task(exec_place.device(0), data.read(data_place.managed())) as t:
            assert t.get_arg(0) == address


# ---- Many places


def test_thousands_of_places():
    count = 5000
    grid = devices((count // 10, 10), ("gpu", "sm"))
    assert numbers(grid) == list(range(count))
    assert grid == devices((count // 10, 10), ("gpu", "sm"))
    assert hash(grid) == hash(devices((count // 10, 10), ("gpu", "sm")))
    assert [numbers(row)[0] for row in grid] == list(range(0, count, 10))
    assert numbers(grid[:, 3]) == list(range(3, count, 10))
    flat = grid.collapse_axes("gpu", "sm")
    assert [flat[number].device_id for number in range(count)] == list(range(count))
    assert [place.device_id for place in flat] == list(range(count))
    assert all(grid[row, column] is flat[row * 10 + column] for row, column in product(range(500), range(10)))
    assert eval(repr(grid).partition("  #")[0], vars(stf)) == grid
    assert pickle.loads(pickle.dumps(grid)) == grid


def test_thousands_of_places_of_one_device_share_its_memory(simulated):
    grid = exec_place_grid.create([exec_place.device(1)] * 5000)
    assert grid.affine_data_place == data_place.device(1)
    assert grid.reshape((50, 100)).with_data(data_place.host()).affine_data_place == data_place.host()


def test_a_device_is_its_only_locality_domain(machine):
    for device in range(machine.device_count):
        assert exec_place_grid.locality_domain_count(device) == 1
        assert exec_place.locality_domain(device, 0) == exec_place.device(device)
        assert stf.data_place.locality_domain(device, 0) == stf.data_place.device(device)


@pytest.mark.parametrize("kind", [exec_place, stf.data_place])
def test_domains_that_are_not_there_are_refused(machine, kind):
    with pytest.raises(IndexError, match="device 0 has 1 locality domain, number 0: got 1"):
        kind.locality_domain(0, 1)
    with pytest.raises(stf.InvalidDevice):
        kind.locality_domain(machine.device_count, 0)
    with pytest.raises(TypeError, match=r"a locality domain is an int, counted from 0: got '0' \(str\)"):
        kind.locality_domain(0, "0")
