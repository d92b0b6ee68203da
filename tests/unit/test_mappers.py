"""Mappers: functions of a program that say where elements belong."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawn_partitions import LINE, Grid, all_coords, bindings, brute_owner
from hypothesis import given, settings
from hypothesis import strategies as st

from stf_places.errors import MapperError, NotSupported
from stf_places.partitions import blocked, mapper, partition, whole


def as_mapper(spec, shape, grid, vectorized):
    """Return a mapper that answers as rules do."""

    def scalar(coords, dims, grid_dims):
        assert dims == (*shape, *(1,) * (4 - len(shape)))
        assert grid_dims == (*grid.shape, *(1,) * (4 - len(grid.shape)))
        assert coords[len(shape) :] == (0,) * (4 - len(shape))
        place = brute_owner(spec, shape, grid, coords[: len(shape)])
        return tuple(map(int, np.unravel_index(place, grid.shape)))

    def many(coords, dims, grid_dims):
        assert len(coords) == 4
        assert all(one.dtype == np.int64 and not one.flags.writeable for one in coords)
        answers = [scalar(tuple(map(int, one)), dims, grid_dims) for one in zip(*coords, strict=True)]
        return tuple(np.array(answers).T)

    return mapper(many if vectorized else scalar, vectorized)


@settings(deadline=None)
@given(bindings(replicas=False), st.booleans(), st.integers(1, 20), st.integers(1, 64))
def test_mappers_answer_as_the_rules_they_copy(binding, vectorized, itemsize, page):
    spec, shape, grid = binding
    layout, rules = as_mapper(spec, shape, grid, vectorized).bind(shape, grid), spec.bind(shape, grid)
    assert np.array_equal(layout.owner(all_coords(shape)), rules.owner(all_coords(shape)))
    assert layout.pages(itemsize, page) == rules.pages(itemsize, page)
    assert layout.stats(itemsize, page) == rules.stats(itemsize, page)
    assert layout.exact


def by_rows(coords, dims, grid):
    return (coords[0] * grid[0] // dims[0],)


def one_in_four(coords, dims, grid):
    return ((coords[0] % 4 == 0) * 1,)


def test_large_mappers_are_estimated_from_samples_and_say_so():
    grid = Grid((2,))
    layout = mapper(by_rows, vectorized=True).bind((1 << 12, 1 << 10), grid)
    assert not layout.exact
    stats = layout.stats(8)
    rules = partition(blocked("x"), whole).bind((1 << 12, 1 << 10), grid).stats(8)
    assert stats == replace(rules, exact=False)
    assert stats.mapped_by_place == (16 << 20, 16 << 20)
    assert stats.bytes_by_place == (16 << 20, 16 << 20)
    assert str(stats).endswith("0 B misplaced (estimated from samples)")
    assert layout.owner([[0, 0], [4095, 1023]]).tolist() == [0, 1]
    spread = mapper(one_in_four, vectorized=True).bind(1 << 20, grid)
    assert spread.size_of(0) + spread.size_of(1) == 1 << 20
    assert spread.size_of(1) == pytest.approx(1 << 18, rel=0.05)
    assert spread.stats(8).misplaced_bytes == pytest.approx(2 << 20, rel=0.5)


def test_estimates_are_found_once_and_come_out_equal():
    calls = []

    def counted(coords, dims, grid):
        calls.append(len(coords[0]))
        return by_rows(coords, dims, grid)

    layout = mapper(counted, vectorized=True).bind((1 << 12, 1 << 10), Grid((2,)))
    first = layout.stats(4)
    asked = sum(calls)
    assert layout.stats(4) == first
    assert layout.size_of(0) == 1 << 21
    assert layout.pages(4)[0].place == 0
    assert sum(calls) == asked
    assert asked < (1 << 22) // 16
    assert mapper(by_rows).bind((1 << 12, 1 << 10), Grid((2,))).stats(4) == first


def test_mappers_are_values():
    assert mapper(by_rows) == mapper(by_rows)
    assert hash(mapper(by_rows)) == hash(mapper(by_rows))
    assert mapper(by_rows) != mapper(by_rows, vectorized=True)
    assert repr(mapper(by_rows, True)) == "mapper(by_rows, vectorized=True)"
    assert mapper(by_rows).bind(8, LINE) == mapper(by_rows).bind(8, LINE)
    with pytest.raises(NotSupported, match=r"boxes need a partition of rules: got mapper\(by_rows\)"):
        mapper(by_rows).bind(8, LINE).boxes(0)
    with pytest.raises(IndexError, match=r"within the shape \(8,\): got \(8,\)"):
        mapper(by_rows).bind(8, LINE).owner([[3], [8]])


GRID_TEXT = r"the grid with axes=\('x',\), shape=\(4,\)"


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda c, d, g: (c[0],), r"coordinates within the grid: got \(7, 0, 0, 0\) for element \(7,\)"),
        (lambda c, d, g: (c[0] - 1,), r"within the grid: got \(-1, 0, 0, 0\) for element \(0,\)"),
        (lambda c, d, g: (0, 1), r"within the grid: got \(0, 1, 0, 0\) for element \(0,\)"),
        (lambda c, d, g: None, r"a tuple of up to 4 .*ints.*: got None for"),
        (lambda c, d, g: 3, r"a tuple of up to 4 .*ints.*: got 3 for"),
        (lambda c, d, g: (0.5,), r"a tuple of up to 4 .*ints.*: got \(0\.5(,|\)).* for"),
        (lambda c, d, g: (0,) * 5, r"a tuple of up to 4 .*ints.*: got \(0, 0, 0, 0, 0\) for"),
        (lambda c, d, g: (2**70,), r"got \(1180591620717411303424(,|\))"),
        (lambda c, d, g: ("0",), r"got \('0'(,|\))"),
    ],
)
@pytest.mark.parametrize("vectorized", [False, True])
def test_wrong_answers_name_element_and_grid(fn, text, vectorized):
    with pytest.raises(MapperError, match=text) as raised:
        mapper(fn, vectorized).bind(8, LINE)
    assert str(raised.value).endswith("of shape (8,), the grid with axes=('x',), shape=(4,)")


@pytest.mark.parametrize(
    ("vectorized", "asked"), [(False, r"element \(0,\)"), (True, r"16 elements from \(0,\) to \(\d,\)")]
)
def test_an_exception_of_a_mapper_is_the_cause(vectorized, asked):
    def broken(coords, dims, grid):
        raise KeyError("lost")

    with pytest.raises(
        MapperError, match=rf"raised KeyError: 'lost'; it was asked for {asked}.*{GRID_TEXT}"
    ) as raised:
        mapper(broken, vectorized).bind(8, LINE)
    assert isinstance(raised.value.__cause__, KeyError)


def test_arrays_of_the_wrong_length_are_refused():
    with pytest.raises(
        MapperError, match=r"arrays of ints of shape \(16,\): got \(an array of int64, shape \(3,\)"
    ):
        mapper(lambda c, d, g: (np.zeros(3, np.int64),), vectorized=True).bind(8, LINE)


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("size", [8, 1 << 18])
def test_a_mapper_that_changes_its_answer_is_refused(vectorized, size):
    calls = itertools.count()

    def restless(coords, dims, grid):
        return (coords[0] * 0 + next(calls) % 4,)

    with pytest.raises(
        MapperError, match=r"the same for the same arguments: got \(\d,\), then \(\d,\) for element"
    ):
        mapper(restless, vectorized).bind(size, LINE).stats(8)
