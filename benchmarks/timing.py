"""Timing of repeats."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.records import Spread

__all__ = ["collector_off", "repeated"]


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's cyclic collector out of the timed part."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def seconds_of(function: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    with collector_off():
        start = time.perf_counter()
        function()
        return time.perf_counter() - start


def repeated(measure: Callable[[], float], repeats: int) -> Spread:
    """Measure once to warm up, then ``repeats`` times.

    Parameters
    ----------
    measure : callable
        Makes one measurement from scratch, checks its result and returns the value.
    repeats : int
        Measurements to keep, at least 1.
    """
    measure()
    return Spread(tuple(measure() for _ in range(repeats)))
