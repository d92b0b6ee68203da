"""Conditions of loops: what is compared, how terms are joined, and what the errors say."""

import copy
import doctest
import math
import operator
import re
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from fake_data import COMPARE, FakeData, fake
from hypothesis import given
from hypothesis import strategies as st

import stf_places as stf
from stf_places.flow import conditions
from stf_places.flow.conditions import DTYPES, MOST_TERMS, OPERATORS, Term, cond

MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
NAN, INF = math.nan, math.inf


def many(count):
    return [fake(symbol=f"x{number}") > number for number in range(count)]


def evaluate(condition, values):
    """Return what a condition says of these values of its data."""
    holds = [COMPARE[t.op](values[t.ld], t.threshold) != t.negate for t in condition.terms]
    return any(holds) if condition.any else all(holds)


# Terms


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_term_holds_what_was_given(op, dtype, shape):
    data = fake(dtype, shape=shape)
    condition = cond(data, op, 3)
    assert condition.terms == (Term(data, op, 3, False),)
    assert condition.terms[0].ld is data
    assert type(condition.terms[0].threshold) is (int if dtype.startswith("int") else float)
    assert condition.any is False


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    "number", [3, 3.0, np.float64(3), np.float32(3), np.int8(3), np.array(3.0), Fraction(3)]
)
def test_numbers_stand_on_either_side(op, number):
    data = fake()
    right, left = COMPARE[op](data, number), COMPARE[op](number, data)
    assert right.terms == (Term(data, op, 3.0),)
    assert left.terms == (Term(data, MIRRORED[op], 3.0),)


# Data and operations


@pytest.mark.parametrize("op", ["==", "!=", "", "gt", None, 1, b">", np.array([">", "<"])])
def test_other_operations_are_refused(op):
    with pytest.raises(ValueError, match=r"op is one of '>', '<', '>=', '<=': got "):
        cond(fake(), op, 1)


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 3)])
def test_data_has_one_element(shape):
    with pytest.raises(
        ValueError, match=f"compares one element: .* of shape {re.escape(str(shape))}.*stf.reduce"
    ):
        cond(fake(shape=shape), ">", 1)


@pytest.mark.parametrize(
    "dtype", ["i2", "u4", "u8", "f2", "?", "c16", ">f8", ">i4", "m8[s]", "S4", [("a", "f4")]]
)
def test_data_has_one_of_four_dtypes(dtype):
    with pytest.raises(
        TypeError, match="compares float32, float64, int32, int64, in the machine's byte order: got "
    ):
        cond(fake(dtype), ">", 1)


def test_tokens_have_nothing_to_compare():
    with pytest.raises(TypeError, match="a token only orders tasks"):
        cond(FakeData(None, None, None, token=True), ">", 1)


@pytest.mark.parametrize("thing", [1.0, None, np.ones(1), "x", object()])
def test_other_things_are_no_data(thing):
    with pytest.raises(
        TypeError, match=f"logical data of a stackable_context: got {type(thing).__name__}; make it"
    ):
        cond(thing, ">", 1)


# Joining


def test_terms_are_joined_in_their_order():
    a, b, c, d = many(4)
    for joined, holds in ((a & b & c & d, False), (a | b | c | d, True), ((a | b) | (c | d), True)):
        assert joined.terms == a.terms + b.terms + c.terms + d.terms
        assert joined.any is holds
    assert (a & a).terms == a.terms * 2
    a &= b
    assert len(a.terms) == 2


@st.composite
def expressions(draw, data):
    """Return how an expression is built, and what it says of values, by Python's own and, or and not."""
    if draw(st.integers(0, 2)) == 0:
        each, op, number = (
            draw(st.sampled_from(data)),
            draw(st.sampled_from(OPERATORS)),
            draw(st.integers(-2, 2)),
        )
        return lambda: cond(each, op, number), lambda values: COMPARE[op](values[each], number)
    first, first_says = draw(expressions(data))
    if draw(st.booleans()):
        return lambda: ~first(), lambda values: not first_says(values)
    second, second_says = draw(expressions(data))
    if draw(st.booleans()):
        return lambda: first() & second(), lambda values: first_says(values) and second_says(values)
    return lambda: first() | second(), lambda values: first_says(values) or second_says(values)


@given(st.data())
def test_expressions_say_what_their_terms_say(drawn):
    data = [fake(symbol="x"), fake(symbol="y"), fake("int32", symbol="i")]
    built, says = drawn.draw(expressions(data))
    try:
        condition = built()
    except (NotImplementedError, ValueError):
        return
    assert 1 <= len(condition.terms) <= MOST_TERMS
    numbers = st.sampled_from([-INF, -2.5, -1.0, 0.0, 1.0, INF, NAN])
    for _ in range(4):
        values = {each: drawn.draw(numbers) for each in data[:2]} | {data[2]: drawn.draw(st.integers(-3, 3))}
        assert evaluate(condition, values) is says(values)


@given(st.data(), st.integers(1, MOST_TERMS), st.booleans())
def test_negation_goes_inward(drawn, count, any_holds):
    terms = [~each if drawn.draw(st.booleans()) else each for each in many(count)]
    joined, opposite = terms[0], ~terms[0]
    for each in terms[1:]:
        joined = joined | each if any_holds else joined & each
        opposite = opposite & ~each if any_holds else opposite | ~each
    assert (~joined).terms == opposite.terms
    assert (~joined).any is opposite.any
    assert (~~joined).terms == joined.terms
    assert (~~joined).any is joined.any
    numbers = st.sampled_from([-1.0, 0.5, 3.0, 9.0, NAN])
    values = {term.ld: drawn.draw(numbers) for term in joined.terms}
    assert evaluate(~joined, values) is not evaluate(joined, values)


def test_a_negated_term_holds_for_nan():
    x = fake()
    assert evaluate(~(x > 1), {x: NAN})
    assert not evaluate(x <= 1, {x: NAN})


def test_combiners_are_not_mixed():
    a, b, c, d = many(4)
    text = r"one combiner, & or \|: got \(.*\) [|&] \(.*\); a & b & c and a \| b \| c work; for others, write a flag"
    for mixed in (
        lambda: (a & b) | c,
        lambda: c | (a & b),
        lambda: (a | b) & c,
        lambda: (a & b) | (c & d),
        lambda: ~(a & b) & c,
    ):
        with pytest.raises(NotImplementedError, match=text):
            mixed()
    assert len((~(a & b) | c).terms) == 3
    assert len((~(a | b) & ~(c | d)).terms) == 4


@pytest.mark.parametrize("combine", [operator.and_, operator.or_])
def test_eight_terms_are_the_most(combine):
    terms = many(MOST_TERMS)
    joined = terms[0]
    for each in terms[1:]:
        joined = combine(joined, each)
    assert len(joined.terms) == 8
    for more in (lambda: combine(joined, terms[0]), lambda: combine(terms[0], joined)):
        with pytest.raises(ValueError, match="8 terms at most: got 9; write a flag"):
            more()
    with pytest.raises(ValueError, match="got 16"):
        combine(joined, joined)


@pytest.mark.parametrize("other", [True, 1, None, 0.5, np.True_, np.float64(1), np.ones(2), fake()])
def test_conditions_are_joined_with_conditions_alone(other):
    condition = fake() > 1
    for combine in (operator.and_, operator.or_):
        for operands in ((condition, other), (other, condition)):
            with pytest.raises(TypeError, match="unsupported operand|does not support ufuncs"):
                combine(*operands)
    assert condition.__and__(other) is NotImplemented
    assert condition.__or__(other) is NotImplemented


# As values


def test_conditions_have_no_truth_value():
    x = fake()
    a, b = x > 0, x < 1
    for asking in (
        lambda: bool(a),
        lambda: a and b,
        lambda: a or b,
        lambda: not a,
        lambda: 0 < x < 1,
        lambda: bool(a & b),
    ):
        with pytest.raises(
            TypeError, match=r"no truth value before its loop runs: got .*x .*; use & \| ~ instead of"
        ):
            asking()


def test_conditions_are_immutable_and_compared_by_identity():
    x = fake()
    a, b = x > 0, x > 0
    for name in ("terms", "any", "other"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(a, name, None)
    with pytest.raises(FrozenInstanceError):
        a.terms[0].op = "<"
    assert a != b
    assert len({a, b, a}) == 2
    assert a.terms == b.terms
    assert copy.copy(a).terms is a.terms


def test_repr_names_the_data():
    res, it = fake("float32", "res"), fake("int32", "it")
    a, b = res > 1e-10, it < 100
    assert repr(a) == "res > 1e-10"
    assert repr(~b) == "~(it < 100)"
    assert repr(a & b) == "(res > 1e-10) & (it < 100)"
    assert repr(~(a & b)) == "~(res > 1e-10) | ~(it < 100)"
    assert repr(fake() >= 0.1) == "x >= 0.1"
    assert repr(fake() >= -INF) == "x >= -inf"
    nameless = fake(symbol=None)
    assert repr(nameless <= 2) == f"{nameless!r} <= 2.0"


# Logical data


@pytest.fixture
def ctx(simulated):
    with stf.context() as made:
        yield made


def test_data_of_plain_contexts_make_no_conditions(ctx):
    data = ctx.logical_data_full(1, 1.0, name="res")
    assert data.stackable is False
    text = r"only in a stackable_context: got .*'res'.* of a plain context; make the data in a stackable_context, or"
    with pytest.raises(TypeError, match=text):
        cond(data, ">", 1.0)
    for compare in COMPARE.values():
        for other in (
            1.0,
            1,
            np.float64(1),
            np.ones(3),
            np.array(1),
            None,
            data,
            ctx.logical_data_full(1, 1.0),
        ):
            with pytest.raises(TypeError, match="only in a stackable_context"):
                compare(data, other)
            with pytest.raises(TypeError, match="only in a stackable_context"):
                compare(other, data)
    with pytest.raises(TypeError, match="only in a stackable_context"):
        cond(ctx.token(), ">", 1)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("number", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0), None])
def test_comparisons_of_data_are_conditions(ctx, monkeypatch, op, number):
    monkeypatch.setattr(conditions, "cond", lambda *arguments: arguments)
    data = ctx.logical_data_full(1, 1.0)
    assert COMPARE[op](data, number) == (data, op, number)
    assert COMPARE[op](number, data) == (data, MIRRORED[op], number)


def test_equality_and_hash_of_data_are_those_of_identity(ctx):
    a, b = ctx.logical_data_full(1, 1.0), ctx.logical_data_full(1, 1.0)
    same = a
    assert a == same
    assert not a != same
    assert a != b
    assert not a == b
    for other in (1.0, np.float64(1), None, "a", np.ones(3)):
        assert (a == other, other == a, a != other, other != a) == (False, False, True, True)
    assert hash(a) == hash(same) == object.__hash__(a)
    assert len({a, b, same}) == 2
    assert {a: 1, b: 2}[same] == 1
    assert a.__eq__(b) is NotImplemented


@pytest.mark.skipif(not hasattr(stf, "stackable_context"), reason="needs stackable contexts")
def test_the_examples_run():
    failed, attempted = doctest.testmod(conditions)
    assert attempted
    assert not failed
