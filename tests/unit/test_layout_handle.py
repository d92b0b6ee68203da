"""The border to the core's layouts: against brute force with NumPy, and what is refused with which words."""

import re
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stf_places._native.layouts import LayoutHandle


@st.composite
def axes_and_places(draw):
    """Draw axes whose parts name places in C order over shuffled axes, sometimes with replicas between."""
    rank = draw(st.integers(1, 4))
    stride = draw(st.sampled_from((1, 1, 2)))
    axes = [None] * rank
    for at in draw(st.permutations(range(rank))):
        parts = draw(st.integers(1, 4))
        places = draw(st.permutations(range(0, parts * stride, stride)))
        axes[at] = (draw(st.integers(1, 60 if rank == 1 else 8)), draw(st.integers(1, 9)), tuple(places))
        stride *= parts
    return axes, stride


def parts_along(length, block, places):
    return np.arange(length) // block % len(places)


def owners_of(axes):
    """Return the owner of each element, an array of the layout's shape."""
    return sum(
        np.asarray(axis[2])[parts_along(*axis)].reshape(-1, *(1,) * (len(axes) - 1 - at))
        for at, axis in enumerate(axes)
    )


def coordinates_of(shape):
    return np.ascontiguousarray(np.indices(shape).reshape(len(shape), -1).T)


def pages_of(axes, place_count, itemsize, page):
    """Return the owner of each page, and the misplaced bytes."""
    owner_of_byte = np.repeat(owners_of(axes).ravel(), itemsize)
    owners, misplaced = [], 0
    for start in range(0, owner_of_byte.size, page):
        counts = np.bincount(owner_of_byte[start : start + page], minlength=place_count)
        owners.append(int(counts.argmax()))
        misplaced += int(counts.sum() - counts.max())
    return owners, misplaced


# ---- Properties ------------------------------------------------------------------------------------------


@given(axes_and_places())
def test_each_element_has_the_owner_of_its_parts(drawn):
    axes, place_count = drawn
    coords = coordinates_of([axis[0] for axis in axes])
    out = np.full(len(coords), -1)
    LayoutHandle(axes, place_count).owners(coords, out)
    np.testing.assert_array_equal(out, owners_of(axes).ravel())


@given(axes_and_places())
def test_ranges_of_the_parts_tile_each_axis(drawn):
    axes, place_count = drawn
    handle = LayoutHandle(axes, place_count)
    for at, (length, block, places) in enumerate(axes):
        parts = parts_along(length, block, places)
        for part in range(len(places)):
            start, stride, each, count, stop, step = handle.ranges(at, part)
            begins = [start + k * stride for k in range(count)]
            seen = [x for begin in begins for x in range(begin, min(begin + each, stop), step)]
            assert seen == np.flatnonzero(parts == part).tolist()
            if block == 1 or length <= block * len(places):
                assert count <= 1


@given(axes_and_places())
def test_elements_are_counted_and_parts_add_up(drawn):
    axes, place_count = drawn
    handle = LayoutHandle(axes, place_count)
    expected = np.bincount(owners_of(axes).ravel(), minlength=place_count)
    elements = handle.elements()
    assert elements.dtype == np.int64
    np.testing.assert_array_equal(elements, expected)
    named = 0
    for place in range(place_count):
        parts = handle.parts_of(place)
        if parts is None:
            assert expected[place] == 0
        else:
            assert sum(axis[2][part] for axis, part in zip(axes, parts, strict=True)) == place
            named += 1
    assert named == prod(len(axis[2]) for axis in axes)


@given(axes_and_places(), st.integers(1, 16), st.integers(1, 64))
def test_pages_go_to_who_owns_most_of_them(drawn, itemsize, page):
    axes, place_count = drawn
    handle = LayoutHandle(axes, place_count)
    owners, misplaced = pages_of(axes, place_count, itemsize, page)
    runs = handle.pages(itemsize, page)
    assert runs.dtype == np.int64 and runs.shape[1] == 3
    np.testing.assert_array_equal(np.repeat(runs[:, 0], runs[:, 2]), owners)
    np.testing.assert_array_equal(runs[:, 1], np.cumsum(runs[:, 2]) - runs[:, 2])
    assert (runs[1:, 0] != runs[:-1, 0]).all()
    assert handle.misplaced(itemsize, page) == misplaced


# ---- Examples --------------------------------------------------------------------------------------------


def test_no_rows_are_no_work():
    out = np.empty(0, dtype=np.int64)
    assert LayoutHandle([(4, 2, (0, 1))], 2).owners(np.empty((0, 1), dtype=np.int64), out) is None
    assert out.size == 0


def test_read_only_coordinates_are_read():
    coords = np.arange(4).reshape(4, 1)
    coords.flags.writeable = False
    out = np.empty(4, dtype=np.int64)
    LayoutHandle([(4, 2, (0, 1))], 2).owners(coords, out)
    assert out.tolist() == [0, 0, 1, 1]


def test_large_arrays_have_exact_counts():
    length = 1 << 62
    handle = LayoutHandle([(length, 3, range(5))], 5)
    assert int(handle.elements().sum()) == length
    coords = np.array([[0], [length - 1]])
    out = np.empty(2, dtype=np.int64)
    handle.owners(coords, out)
    assert out.tolist() == [0, (length - 1) // 3 % 5]


@pytest.mark.parametrize(
    ("row", "coordinates"), [(17, (5, 9)), (0, (-1, 0)), (3999, (0, 8)), (1500, (-(2**63), 2**63 - 1))]
)
def test_the_first_row_outside_is_named(row, coordinates):
    coords = np.zeros((4000, 2), dtype=np.int64)
    coords[row] = coordinates
    handle = LayoutHandle([(4, 2, (0, 1)), (8, 8, (0,))], 2)
    text = f"coordinates {coordinates} lie outside an array of shape (4, 8): row {row}"
    with pytest.raises(IndexError, match=f"^{re.escape(text)}$"):
        handle.owners(coords, np.empty(4000, dtype=np.int64))


COORDS = np.zeros((4, 1), dtype=np.int64)
OUT = np.zeros(4, dtype=np.int64)
READ_ONLY = np.zeros(4, dtype=np.int64)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("coords", "out", "error", "text"),
    [
        ([[0]], OUT, TypeError, "coords is a NumPy array of int64: got list"),
        (OUT, OUT, ValueError, "coords has the shape (4, 1): got (4,)"),
        (np.zeros((4, 1)), OUT, TypeError, "coords is a NumPy array of int64: got an array of float64"),
        (np.zeros((4, 2), dtype=np.int64), OUT, ValueError, "coords has the shape (4, 1): got (4, 2)"),
        (np.zeros((8, 1), dtype=np.int64)[::2], OUT, ValueError, "coords is C-contiguous and aligned"),
        (COORDS, None, TypeError, "out is a NumPy array of int64: got NoneType"),
        (COORDS, OUT.astype(np.int32), TypeError, "out is a NumPy array of int64: got an array of int32"),
        (COORDS, OUT[:3], ValueError, "out has the shape (4,): got (3,)"),
        (COORDS, np.zeros(8, dtype=np.int64)[::2], ValueError, "out is C-contiguous and aligned"),
        (COORDS, READ_ONLY, ValueError, "out is written to: got a read-only array"),
        (COORDS, COORDS[:, 0], ValueError, "got arrays that share memory"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(coords, out, error, text):
    with pytest.raises(error, match=re.escape(text)):
        LayoutHandle([(4, 2, (0, 1))], 2).owners(coords, out)


@pytest.mark.parametrize(
    ("axes", "place_count", "error", "text"),
    [
        ([], 1, ValueError, "a layout has 1 axis or more: got none"),
        ([(1,)], 1, TypeError, "an axis is (length, block, places of its parts): got (1,) for axis 0"),
        ([(4.0, 1, (0,))], 1, TypeError, "the length of an axis is an int: got 4.0"),
        ([(2**63, 1, (0,))], 1, ValueError, f"the length of an axis fits into 64 bits: got {2**63}"),
        ([(0, 1, (0,))], 1, ValueError, "1 element or more: got length=0, block=1"),
        ([(4, 0, (0,))], 1, ValueError, "1 element or more: got length=4, block=0"),
        ([(4, 1, ())], 1, ValueError, "axis 0 of a layout has 1 part or more: got places=()"),
        ([(4, 1, (0,))], 0, ValueError, "a grid has 1 to 2**31 - 1 places: got place_count=0"),
        ([(2**62, 1, (0,)), (2, 1, (0,))], 1, ValueError, "at most 2**62 elements"),
        ([(4, 1, (0, 1))], 1, ValueError, "a place from 0 to 0: parts (1,) do not"),
        ([(4, 1, (0, 1)), (4, 1, (0, 1))], 3, ValueError, "parts (1, 0) add up to place 1, which another"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(axes, place_count, error, text):
    with pytest.raises(error, match=re.escape(text)):
        LayoutHandle(axes, place_count)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda handle: handle.ranges(1, 0), IndexError, "a layout of rank 1 has no axis 1"),
        (lambda handle: handle.ranges(-1, 0), IndexError, "axes count from 0: got -1"),
        (lambda handle: handle.ranges(0, 2), IndexError, "axis 0 of the layout has parts 0 to 1: got part 2"),
        (lambda handle: handle.parts_of(4), IndexError, "a grid of 4 place(s) has no place 4"),
        (lambda handle: handle.pages(0, 1), ValueError, "itemsize is 1 byte or more: got 0"),
        (lambda handle: handle.misplaced(1, -1), ValueError, "page is 1 byte or more: got -1"),
        (
            lambda handle: handle.pages(2**62, 1),
            ValueError,
            "an array has at most 2**62 bytes: got 4 elements",
        ),
    ],
)
def test_questions_without_an_answer_are_refused(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call(LayoutHandle([(4, 2, (0, 3))], 4))
