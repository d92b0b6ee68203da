"""Two systems measured in turn, so that a drift of the machine's speed cancels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

__all__ = ["in_turn", "median_ratio"]


def in_turn(measures: Sequence[Callable[[], float]], repeats: int) -> list[tuple[float, ...]]:
    """Call each once to warm up, then all in each of ``repeats`` rounds; every second round backwards.

    Parameters
    ----------
    measures : sequence of callable
        Each makes one measurement, checks its result and returns the value.
    repeats : int
        Rounds to keep, at least 1.

    Returns
    -------
    list of tuple of float
        For each of `measures` its values, one a round.
    """
    for measure in measures:
        measure()
    values: list[list[float]] = [[] for _ in measures]
    order = list(range(len(measures)))
    for _ in range(repeats):
        for i in order:
            values[i].append(measures[i]())
        order.reverse()
    return [tuple(each) for each in values]


def median_ratio(ours: Sequence[float], baseline: Sequence[float]) -> float:
    """Return the median over the rounds of ours divided by the baseline of the same round."""
    return median(a / b for a, b in zip(ours, baseline, strict=True))
