"""Thresholds of loop conditions: which numbers are taken, how they are rounded, and what else is refused."""

import math
import re
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from fake_data import COMPARE, fake
from hypothesis import example, given
from hypothesis import strategies as st

from stf_places.flow.conditions import DTYPES, OPERATORS, cond

INTEGERS = ("int32", "int64")
NAN, INF = math.nan, math.inf


def threshold_of(dtype, threshold, op=">"):
    (term,) = cond(fake(dtype), op, threshold).terms
    return term.threshold


@given(st.floats(allow_nan=False), st.sampled_from(OPERATORS))
def test_float64_takes_a_double_as_it_is(threshold, op):
    assert threshold_of("float64", threshold, op) == threshold


@given(st.floats(allow_nan=False))
@example(3.4028235677973362e38)  # the largest double that rounds to a finite float32
@example(3.4028235677973366e38)
@example(-1e-300)
@example(INF)
def test_float32_rounds_as_numpy_does_and_refuses_what_overflows(threshold):
    with np.errstate(all="ignore"):
        expected = float(np.float32(threshold))
    if math.isinf(expected) and math.isfinite(threshold):
        with pytest.raises(
            ValueError, match=r"float32 data is compared with numbers up to 3\.40.*, or infinity: got"
        ):
            threshold_of("float32", threshold)
    else:
        assert threshold_of("float32", threshold) == expected


@pytest.mark.parametrize("dtype", INTEGERS)
@given(
    threshold=st.integers()
    | st.floats(allow_nan=False)
    | st.fractions()
    | st.sampled_from([2.0**31, -(2.0**63)])
)
@example(threshold=2**63 - 1)
@example(threshold=2.0**63)
@example(threshold=2**31 - Fraction(1, 2))
@example(threshold=-(2**31) - Fraction(1, 2))
@example(threshold=-0.5)
def test_integers_are_compared_with_whole_numbers_of_their_range(dtype, threshold):
    limits = np.iinfo(dtype)
    if not limits.min <= threshold <= limits.max:
        with pytest.raises(
            ValueError, match=f"{dtype} data is compared with {limits.min} to {limits.max}: got <"
        ):
            threshold_of(dtype, threshold, "<")
    elif threshold != int(threshold):
        with pytest.raises(ValueError, match=f"{dtype} data is compared with whole numbers: got < "):
            threshold_of(dtype, threshold, "<")
    else:
        assert threshold_of(dtype, threshold) == threshold
        assert type(threshold_of(dtype, threshold)) is int


@given(st.fractions(-100, 100).filter(lambda each: each.denominator > 1), st.sampled_from(OPERATORS))
def test_what_is_said_to_work_instead_of_a_fraction_is_the_same(threshold, op):
    with pytest.raises(ValueError) as caught:
        threshold_of("int32", threshold, op)
    instead, number = re.search(r"; (\S+) (\S+) holds for the same values", str(caught.value)).groups()
    for value in range(-102, 103):
        assert COMPARE[instead](value, int(number)) == COMPARE[op](value, threshold)


class Indexed:
    def __index__(self):
        return 7


class Floating:
    def __float__(self):
        return 7.0


class Item:
    """Stand for an array without axes of another library."""

    shape = ()

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "seven",
    [
        *(np.dtype(each).type(7) for each in ("i1", "u8", "f2", "f4", "f8", "g")),
        *(np.array(7, each) for each in ("i8", "f4", ">f8", "g", "O")),
        *(np.array(each) for each in (Fraction(7), Decimal(7))),
        *(Fraction(7), Decimal("7.0"), Indexed(), Floating(), Item(7), Item(7.0)),
    ],
    ids=lambda each: f"{type(each).__name__}-{getattr(each, 'dtype', '')}",
)
def test_any_real_number_is_a_threshold(dtype, seven):
    threshold = threshold_of(dtype, seven)
    assert threshold == 7
    assert type(threshold) is (int if dtype in INTEGERS else float)


@pytest.mark.parametrize(
    "exact", [2**53 + 1, Fraction(2**53 + 1), Decimal(2**53 + 1), np.int64(2**53 + 1), np.array(2**53 + 1)]
)
def test_integers_are_exact_beyond_doubles(exact):
    assert threshold_of("int64", exact) == 2**53 + 1
    assert threshold_of("float64", exact) == 2.0**53


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "thing",
    [
        *(True, np.True_, np.array(False), np.array(True, object), Item(True)),
        *(1j, np.complex64(1), np.array(1j), Item(1j)),
        *("1", b"1", np.str_("1"), np.bytes_(b"1"), np.array("1"), np.array(b"1")),
        *(np.datetime64(1, "s"), np.timedelta64(1, "s"), np.array(1, "m8[s]"), np.void(b"1")),
        *(None, [1.0], (1.0,), object(), fake(), Ellipsis, slice(1)),
        *(np.ones(1), np.ones((1, 1)), np.ones(3), np.array(None)),
    ],
    ids=lambda each: f"{type(each).__name__}-{getattr(each, 'dtype', '')}",
)
def test_other_things_are_no_thresholds(dtype, thing):
    data = fake(dtype)
    text = f"compares with a real number on the host.*: got {type(thing).__name__}.*difference in a task"
    for op in OPERATORS:
        with pytest.raises(TypeError, match=text):
            cond(data, op, thing)
        with pytest.raises(TypeError, match=text):
            COMPARE[op](data, thing)


def test_arrays_are_refused_with_their_shape():
    with pytest.raises(TypeError, match=r"got ndarray of shape \(2, 3\)"):
        cond(fake(), "<", np.ones((2, 3)))


def test_conversions_that_fail_are_the_cause():
    class Broken:
        def __float__(self):
            raise TypeError("not today")

    with pytest.raises(TypeError, match="got Broken") as caught:
        cond(fake(), ">", Broken())
    assert str(caught.value.__cause__) == "not today"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "nan", [NAN, np.float32(NAN), np.array(NAN), Decimal("nan"), Item(NAN), np.longdouble(NAN)]
)
def test_nan_is_refused(dtype, nan):
    with pytest.raises(ValueError, match="a threshold is a number: got .*, with which no comparison holds"):
        threshold_of(dtype, nan)


@pytest.mark.parametrize("infinite", [INF, -INF, np.float32(INF), Decimal("-inf"), np.longdouble(INF)])
def test_infinities_are_thresholds_of_floats_alone(infinite):
    for dtype in ("float32", "float64"):
        assert threshold_of(dtype, infinite) == infinite
    for dtype in INTEGERS:
        with pytest.raises(ValueError, match="got >= -?(inf|Infinity), which is the same for all its values"):
            threshold_of(dtype, infinite, ">=")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "huge",
    [10**400, -(10**5000), Fraction(10**400), Decimal("-1e400"), Decimal("1e999999999")],
    ids=lambda _: "",
)
def test_numbers_beyond_doubles_are_refused_at_once(dtype, huge):
    with pytest.raises(ValueError, match=f"{dtype} data is compared with .*got .*a number beyond float64"):
        threshold_of(dtype, huge)


@pytest.mark.parametrize("tiny", [Decimal("1e-999999999"), Fraction(1, 10**400)], ids=lambda _: "")
def test_numbers_below_doubles_are_rounded_or_fractions(tiny):
    assert threshold_of("float64", tiny) == threshold_of("float32", tiny) == 0
    with pytest.raises(ValueError, match=r"whole numbers.*; >= 1 holds"):
        threshold_of("int32", tiny)


def test_conversion_heeds_no_settings_of_numpy():
    with np.errstate(all="raise"):
        assert threshold_of("float32", 1e-300) == 0
        assert threshold_of("float32", 0.1) == struct.unpack("f", struct.pack("f", 0.1))[0]
