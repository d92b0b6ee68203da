"""Conditions of loops: comparisons of one value with a number, joined by ``&`` or ``|``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import inf, isinf, isnan
from operator import index
from typing import Any, Literal, NoReturn, SupportsFloat, SupportsIndex, TypeAlias, final

import numpy as np

from stf_places._native.data import logical_data

__all__ = ["DTYPES", "MOST_TERMS", "OPERATORS", "Term", "cond"]

Operator: TypeAlias = Literal[">", "<", ">=", "<="]

OPERATORS: tuple[Operator, ...] = (">", "<", ">=", "<=")
#: What a term compares.
DTYPES = ("float32", "float64", "int32", "int64")
#: As many terms as a condition has at most.
MOST_TERMS = 8

#: Kinds of NumPy's dtypes that are no real numbers, whatever float() makes of them.
_NO_NUMBERS = frozenset("bcmMSUT")
#: Beyond all integers of `DTYPES`.
_BEYOND_INTEGERS = 2.0**64


@dataclass(frozen=True)
class Term:
    """Hold one comparison of a condition, as the core takes it; made by `cond` and its operators.

    Parameters
    ----------
    ld : logical_data
        One element of `DTYPES`, in a stackable context.
    op : {">", "<", ">=", "<="}
        How it is compared.
    threshold : int or float
        What it is compared with, a value of the data's dtype: an int for integers, a float otherwise.
    negate : bool, optional
        True if the term holds where the comparison does not. Not the same as the opposite comparison: with NaN as
        the data's value, no comparison holds.
    """

    ld: logical_data
    op: Operator
    threshold: int | float
    negate: bool = False

    def __repr__(self) -> str:
        """Return the comparison in parentheses, behind ``~`` if it is negated."""
        return f"~({_comparison(self)})" if self.negate else f"({_comparison(self)})"


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class cond:
    """Build a loop's condition: continue while the value of the data compares so with a number.

    ``ld > threshold`` and the like are the same. Conditions are joined by ``&`` (continue while all hold) or by
    ``|`` (while any holds) and negated by ``~``; they are immutable, compared by identity.

    Parameters
    ----------
    ld : logical_data
        One element of float32, float64, int32 or int64, of a stackable context.
    op : {">", "<", ">=", "<="}
        How its value is compared.
    threshold : real number
        A Python or NumPy number, a fraction, a decimal or an array without axes, on the host. It is read now and
        rounded to the data's dtype; for integers it must be whole. Infinities are numbers to float data.

    Attributes
    ----------
    terms : tuple of Term
        The comparisons, 1 to 8, for the core.
    any : bool
        True if one term that holds is enough, False if all must hold.

    Raises
    ------
    TypeError
        If `ld` is no logical data, of a context that is not stackable, a token or of another dtype, or `threshold` no
        real number.
    ValueError
        If `ld` has not one element, `op` is another operation, or `threshold` is NaN, beyond the range of the dtype or
        a fraction for integers; with ``&`` and ``|``, if more than 8 terms are joined.
    NotImplementedError
        If ``&`` and ``|`` are mixed in one condition.

    Notes
    -----
    ``~`` goes inward: ``~(a & b)`` is ``~a | ~b``. A negated term also holds for NaN.

    ``and``, ``or``, ``not`` and chains such as ``0 < x < 1``, which use ``and``, ask for the truth value, which a
    condition does not have before the loop runs: they raise TypeError. ``&`` binds tighter than comparisons, so these
    need parentheses.

    Examples
    --------
    >>> import numpy as np
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x2"), stf.stackable_context() as ctx:
    ...     res = ctx.logical_data_full(1, 1.0, name="res")
    ...     it = ctx.logical_data_full(1, 0, np.int32, name="it")
    ...     (res > 1e-10) & (it < 100), ~((res <= 1e-10) | (it < 100)), stf.cond(it, ">=", 3)
    ((res > 1e-10) & (it < 100), ~(res <= 1e-10) & ~(it < 100), it >= 3)
    """

    terms: tuple[Term, ...]
    any: bool

    # NumPy's scalars and arrays leave `&` and `|` with a condition to the condition, which refuses them.
    __array_ufunc__ = None

    def __init__(self, ld: logical_data, op: Operator, threshold: SupportsFloat | SupportsIndex) -> None:
        """Check the arguments."""
        _check_data(ld)
        if not isinstance(op, str) or op not in OPERATORS:
            raise ValueError(f"op is one of {', '.join(map(repr, OPERATORS))}: got {op!r}")
        _set(self, (Term(ld, op, _checked_threshold(ld, op, threshold)),), False)

    def __and__(self, other: cond) -> cond:
        """Return the condition that holds while both do."""
        return _joined(self, other, False) if isinstance(other, cond) else NotImplemented

    def __or__(self, other: cond) -> cond:
        """Return the condition that holds while one of both does."""
        return _joined(self, other, True) if isinstance(other, cond) else NotImplemented

    def __invert__(self) -> cond:
        """Return the condition that holds while this does not."""
        terms = tuple(Term(each.ld, each.op, each.threshold, not each.negate) for each in self.terms)
        return _made(terms, len(terms) > 1 and not self.any)

    def __bool__(self) -> NoReturn:
        """Raise, since the value is not known before the loop runs."""
        raise TypeError(
            f"a condition has no truth value before its loop runs: got {self!r}; use & | ~ instead of and, or, not, "
            "and (x > 0) & (x < 1) instead of 0 < x < 1"
        )

    def __repr__(self) -> str:
        """Return it as it is written, with the names of the data."""
        if len(self.terms) == 1 and not self.terms[0].negate:
            return _comparison(self.terms[0])
        return _sign(self.any).join(map(repr, self.terms))


def _set(condition: cond, terms: tuple[Term, ...], any_holds: bool) -> None:
    """Put the terms into a new condition."""
    object.__setattr__(condition, "terms", terms)
    object.__setattr__(condition, "any", any_holds)


def _made(terms: tuple[Term, ...], any_holds: bool) -> cond:
    """Return the condition of these terms."""
    made = object.__new__(cond)
    _set(made, terms, any_holds)
    return made


def _joined(left: cond, right: cond, any_holds: bool) -> cond:
    """Return all terms of both under one combiner."""
    if any(len(each.terms) > 1 and each.any != any_holds for each in (left, right)):
        raise NotImplementedError(
            f"a condition has one combiner, & or |: got ({left!r}){_sign(any_holds)}({right!r}); a & b & c and "
            "a | b | c work; for others, write a flag of one int32 in a task of the body and continue while flag > 0"
        )
    count = len(left.terms) + len(right.terms)
    if count > MOST_TERMS:
        raise ValueError(
            f"a condition has {MOST_TERMS} terms at most: got {count}; write a flag of one int32 in a task of the body "
            "and continue while flag > 0"
        )
    return _made(left.terms + right.terms, any_holds)


def _sign(any_holds: bool) -> str:
    return " | " if any_holds else " & "


def _comparison(term: Term) -> str:
    """Return the comparison of a term as it is written."""
    single = term.ld.dtype == np.float32
    threshold = str(np.float32(term.threshold)) if single else repr(term.threshold)
    name = repr(term.ld) if term.ld.symbol is None else term.ld.symbol
    return f"{name} {term.op} {threshold}"


def _is_stackable(ld: object) -> bool:
    """Tell whether it is data of a stackable context."""
    return getattr(ld, "stackable", False) is True


def _check_data(ld: Any) -> None:
    """Raise unless a term can compare this data."""
    if not _is_stackable(ld):
        if not isinstance(ld, logical_data):
            raise TypeError(
                f"a condition compares logical data of a stackable_context: got {type(ld).__name__}; "
                "make it with ctx.logical_data first"
            )
        raise TypeError(
            f"comparisons build a loop condition only in a stackable_context: got {ld!r} of a plain context; make the "
            "data in a stackable_context, or compare the value that ctx.wait(data) returns"
        )
    if ld.token:
        raise TypeError(
            f"a condition compares a value, and a token only orders tasks: got {ld!r}; use data of one element"
        )
    if ld.dtype.name not in DTYPES or not ld.dtype.isnative:
        raise TypeError(
            f"a condition compares {', '.join(DTYPES)}, in the machine's byte order: got {ld!r}; convert the value in "
            "a task of the body"
        )
    if ld.size != 1:
        raise ValueError(
            f"a condition compares one element: got {ld!r} of shape {ld.shape}, which is {ld.size}; reduce it to one "
            "in the body, as stf.reduce does"
        )


def _checked_threshold(ld: logical_data, op: Operator, threshold: object) -> int | float:
    """Return the threshold as a value of the data's dtype."""
    assert ld.dtype is not None
    value = _real(threshold)
    try:
        near = float(value)
    except OverflowError:
        near = inf if value > 0 else -inf
    if isnan(near):
        raise ValueError(f"a threshold is a number: got {threshold!r}, with which no comparison holds")
    if ld.dtype.kind == "i":
        return _whole(ld.dtype.name, op, value, near)
    return _rounded(ld.dtype.name, value, near)


def _real(threshold: object) -> Any:
    """Return the number itself: an int, a float, or of another type that converts to both."""
    value: Any = threshold
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in _NO_NUMBERS:
        _refuse(threshold)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    kind = type(value)
    if isinstance(value, bool) or getattr(value, "shape", ()) != ():
        _refuse(threshold)
    try:
        if hasattr(kind, "__index__"):
            return index(value)
        near = float(value) if hasattr(kind, "__float__") else _refuse(threshold)
    except OverflowError:
        return value
    except (TypeError, ValueError) as error:
        _refuse(threshold, error)
    return value if hasattr(kind, "__int__") or hasattr(kind, "__trunc__") else near


def _refuse(threshold: object, cause: Exception | None = None) -> NoReturn:
    """Raise for what is no real number."""
    shape = getattr(threshold, "shape", None)
    of_shape = f" of shape {tuple(shape)}" if shape else ""
    raise TypeError(
        f"a condition compares with a real number on the host, no bool, text, array or data: got "
        f"{type(threshold).__name__}{of_shape}; to compare two data, write their difference in a task of the body and "
        "compare that with 0"
    ) from cause


def _text(value: Any, near: float) -> str:
    """Return a number for a message, without the digits of those beyond float64."""
    return "a number beyond float64" if isinf(near) and value != near else str(value)


def _whole(dtype: str, op: Operator, value: Any, near: float) -> int:
    """Return a threshold for integers, exactly."""
    limits = np.iinfo(dtype)
    lower = upper = int(limits.max) + 1
    if abs(near) < _BEYOND_INTEGERS:
        toward_zero = int(value)
        lower = toward_zero - 1 if toward_zero > value else toward_zero
        upper = lower if lower == value else lower + 1
    if lower < limits.min or upper > limits.max:
        raise ValueError(
            f"{dtype} data is compared with {limits.min} to {limits.max}: got {op} {_text(value, near)}, which is the "
            "same for all its values"
        )
    if lower != upper:
        instead = f">= {upper}" if op in {">", ">="} else f"<= {lower}"
        raise ValueError(
            f"{dtype} data is compared with whole numbers: got {op} {value}; {instead} holds for the same values"
        )
    return lower


def _rounded(dtype: str, value: Any, near: float) -> float:
    """Return a threshold for floats, rounded to float64 and, for float32, to that."""
    try:
        if isinf(near) and value != near:
            raise OverflowError
        return near if dtype == "float64" else float(struct.unpack("=f", struct.pack("=f", near))[0])
    except OverflowError:
        largest = np.finfo(dtype).max
        raise ValueError(
            f"{dtype} data is compared with numbers up to {largest}, or infinity: got {_text(value, near)}"
        ) from None
