"""The task flows on stf_places, and the counts that must come out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.task_overhead.programs import TOKENS, Program
from benchmarks.timing import collector_off

__all__ = [
    "Measurement",
    "WrongResult",
    "measure",
    "measure_throughput",
    "simulated_machine",
]

COUNTS = ("tasks", "events_recorded", "waits", "waits_skipped", "copies", "allocations")
WARM_UP = 2 * TOKENS


class WrongResult(Exception):
    """Report a timed part that did not do what it was to do."""


@dataclass(frozen=True)
class Measurement:
    """Hold the time of one repeat and what the context counted in it."""

    us_per_task: float
    counts: dict[str, int]


@contextmanager
def simulated_machine(otherwise: str) -> Iterator[None]:
    """Keep the current machine if it is simulated, else use another one for the block."""
    if current_driver().simulated:
        yield
        return
    with stf.use_machine(otherwise):
        yield


def arrays(count: int, length: int = 16) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """Return arrays that each hold their own values."""
    return [np.arange(length, dtype=np.float64) + 1000 * i for i in range(count)]


def require_unchanged(found: list[np.ndarray[Any, np.dtype[np.float64]]]) -> None:
    """Refuse a result in which empty tasks changed an array."""
    expected = arrays(len(found), found[0].size) if found else []
    for i, (array, before) in enumerate(zip(found, expected, strict=True)):
        if not np.array_equal(array, before):
            raise WrongResult(f"empty tasks changed array {i}: got {array[:4]}, expected {before[:4]}")


def counts_of(context: Any) -> dict[str, int]:
    """Return what the context has counted so far."""
    statistics = context.stats
    return {name: int(getattr(statistics, name)) for name in COUNTS}


def require_counts(program: Program, counts: dict[str, int], tasks: int) -> None:
    """Check the counts of a timed part.

    Raises
    ------
    WrongResult
        If tasks are missing, a chain recorded events, or a fan-out needed no order between streams.
    """
    expected = {"tasks": tasks, "copies": 0, "allocations": 0}
    if program.tokens == 0:
        expected |= {"events_recorded": 0, "waits": 0}
    for name, value in expected.items():
        if counts[name] != value:
            raise WrongResult(f"{program.name}: {name} is {counts[name]}, expected {value}: {counts}")
    if program.tokens and tasks > TOKENS and counts["waits"] == 0:
        raise WrongResult(f"{program.name}: a fan-out over the streams of a device waits: {counts}")


def measure(program: Program, tasks: int) -> Measurement:
    """Submit a flow once, in a context of its own.

    Parameters
    ----------
    program : Program
        The flow.
    tasks : int
        Tasks in the timed part.

    Raises
    ------
    WrongResult
        If the counts or the values at the end are wrong.
    """
    buffers = arrays(program.buffers)
    with stf.context() as context:
        data = [context.logical_data(buffer) for buffer in buffers]
        data += [context.token() for _ in range(program.tokens)]
        program.submit(context, data, WARM_UP)
        before = counts_of(context)
        with collector_off():
            start = time.perf_counter()
            program.submit(context, data, tasks)
            seconds = time.perf_counter() - start
        counts = {name: value - before[name] for name, value in counts_of(context).items()}
    require_counts(program, counts, tasks)
    require_unchanged(buffers)
    return Measurement(seconds * 1e6 / tasks, counts)


def measure_throughput(tasks: int) -> float:
    """Run a whole program on a simulated machine: 64 chains of tasks over 4 KiB arrays.

    Returns
    -------
    float
        Tasks a second, the making and the end of the context included.

    Raises
    ------
    WrongResult
        If tasks are missing or a value at the end is wrong.
    """
    buffers = arrays(TOKENS, 512)
    with collector_off():
        start = time.perf_counter()
        with stf.context() as context:
            data = [context.logical_data(buffer) for buffer in buffers]
            for i in range(tasks):
                with context.task(data[i % TOKENS].rw()):
                    pass
            done = counts_of(context)["tasks"]
        seconds = time.perf_counter() - start
    if done != tasks:
        raise WrongResult(f"simulated_throughput: {done} tasks, expected {tasks}")
    require_unchanged(buffers)
    return tasks / seconds
