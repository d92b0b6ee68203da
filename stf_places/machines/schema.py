"""The checks behind machine files: what a field may hold, and the texts that say what is wrong with it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

__all__ = ["Fields", "boolean", "check_object", "integer", "number", "parse", "text"]

Check = Callable[[str, Any], None]
Fields = Mapping[str, Check]


def integer(least: int) -> Check:
    """Return the check of an integer that is at least `least`."""

    def check(where: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{where} is an integer from {least} on: got {value!r}")

    return check


def number(*, positive: bool = False) -> Check:
    """Return the check of a finite number that is not negative, or positive."""

    def check(where: str, value: Any) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value < 0 or (positive and value == 0):
            raise ValueError(
                f"{where} is a {'positive' if positive else 'non-negative'} number: got {value!r}"
            )

    return check


def text(where: str, value: Any) -> None:
    """Check a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where} is a string that is not empty: got {value!r}")


def boolean(where: str, value: Any) -> None:
    """Check ``true`` or ``false``."""
    if not isinstance(value, bool):
        raise ValueError(f"{where} is true or false: got {value!r}")


def check_object(where: str, value: Any, fields: Fields, optional: Collection[str] = ()) -> None:
    """Check that a value is an object with exactly these fields, each of which holds what it may.

    Those of `optional` may be missing.

    Raises
    ------
    ValueError
        If it is no object, a field is missing, unknown or wrong.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is an object with the fields {', '.join(fields)}: got {value!r}")
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise ValueError(f"{where} has the fields {', '.join(fields)}: got {', '.join(map(repr, unknown))}")
    missing = [name for name in fields if name not in value and name not in optional]
    if missing:
        raise ValueError(f"{where} needs all of the fields {', '.join(fields)}: {', '.join(missing)} missing")
    for name, check in fields.items():
        if name in value:
            check(f"{where}: {name}", value[name])


def parse(where: str, content: str) -> Any:
    """Return what a JSON text holds.

    Raises
    ------
    ValueError
        If it is no JSON, holds NaN or an infinity, or names a field twice.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"numbers are finite: got {constant}")

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"a field stands once in an object: got {', '.join(map(repr, twice))} again")
        return dict(pairs)

    try:
        return json.loads(content, parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON text: {error}") from error
