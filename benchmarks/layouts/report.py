"""Puts the cases, their checks and their baselines together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.environment import Environment, current_environment
from benchmarks.layouts import numpy_arithmetic, ours
from benchmarks.layouts.programs import PLACES, Program, owner_programs, page_programs
from benchmarks.machines import use_machine
from benchmarks.paired import in_turn, median_ratio
from benchmarks.records import Baseline, Record, Spread
from benchmarks.timing import collector_off

__all__ = ["WrongResult", "measure_all"]

NAME = "layouts"
GOAL = {"goal": 0.2, "unit": "s for 1e8 elements on one core", "source": "the design's goal"}

Numbers = npt.NDArray[np.int64]
Result = TypeVar("Result")


class WrongResult(Exception):
    """Report that a system gave a wrong answer: there is no measurement of it."""


def timed(function: Callable[[], Result], check: Callable[[Result], None], scale: float) -> float:
    """Call once, check what it returned outside the timed part, and return seconds times `scale`."""
    with collector_off():
        start = time.perf_counter()
        result = function()
        seconds = time.perf_counter() - start
    check(result)
    return seconds * scale


def require(same: bool, what: str) -> None:
    """Raise `WrongResult` unless `same`."""
    if not same:
        raise WrongResult(f"{what} differ from those of the definition")


def check_owners(program: Program, coords: Numbers, out: Numbers) -> None:
    """Compare owners with the definition, piece by piece; then spoil them for the next system."""
    axis = program.axes[0]
    for start in range(0, coords.size, 1 << 20):
        piece = slice(start, start + (1 << 20))
        expected = coords[piece] // axis.block % axis.parts * axis.stride
        require(np.array_equal(out[piece], expected), f"owners of {program.name}")
    out.fill(-1)


def owner_record(
    program: Program, coords: Numbers, out: Numbers, repeats: int, environment: Environment
) -> Record:
    """Measure the owners of all elements."""
    handle = ours.handle_of(program)

    def check(_: None) -> None:
        check_owners(program, coords, out)

    mine, baseline = in_turn(
        [
            lambda: timed(lambda: ours.owners(handle, coords, out), check, 1.0),
            lambda: timed(lambda: numpy_arithmetic.owners(program.axes[0], coords, out), check, 1.0),
        ],
        repeats,
    )
    extra: dict[str, object] = {
        "elements": coords.size,
        "places": PLACES,
        "ratio": median_ratio(mine, baseline),
        "reference_figures": GOAL,
    }
    baselines = [Baseline(numpy_arithmetic.NAME, Spread(baseline))]
    return Record(NAME, f"owners_{program.name}", Spread(mine), "s", environment, baselines, extra)


def page_record(program: Program, repeats: int, environment: Environment) -> Record:
    """Measure pages and misplaced bytes together, as both are needed before memory is mapped."""
    handle = ours.handle_of(program)
    counts = numpy_arithmetic.bytes_by_page(program)
    owners = counts.argmax(axis=1)
    misplaced = int(counts.sum() - counts.max(axis=1).sum())
    runs = 1 + np.count_nonzero(np.diff(owners))

    def check(answer: tuple[Numbers, int]) -> None:
        require(np.array_equal(answer[0], owners), f"pages of {program.name}")
        require(answer[1] == misplaced, f"misplaced bytes of {program.name}")

    def check_runs(answer: tuple[Numbers, int]) -> None:
        found = answer[0]
        require(len(found) == runs, f"runs of {program.name}")
        check((np.repeat(found[:, 0], found[:, 2]), answer[1]))

    def baseline() -> tuple[Numbers, int]:
        table = numpy_arithmetic.bytes_by_page(program)
        return table.argmax(axis=1), int(table.sum() - table.max(axis=1).sum())

    mine, other = in_turn(
        [
            lambda: timed(lambda: (ours.pages(handle), ours.misplaced(handle)), check_runs, 1e3),
            lambda: timed(baseline, check, 1e3),
        ],
        repeats,
    )
    extra: dict[str, object] = {
        "pages": owners.size,
        "runs": int(runs),
        "misplaced_bytes": misplaced,
        "places": PLACES,
        "ratio": median_ratio(mine, other),
    }
    baselines = [Baseline(numpy_arithmetic.NAME, Spread(other))]
    return Record(NAME, f"pages_{program.name}", Spread(mine), "ms", environment, baselines, extra)


def measure_all(machine: str | None, elements: int, repeats: int) -> list[Record]:
    """Measure every case.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment; only named in the records.
    elements : int
        Elements of the array whose owners are asked for.
    repeats : int
        Rounds of each case.

    Raises
    ------
    UsageError
        If the machine cannot be used.
    WrongResult
        If a system gave a wrong answer.
    """
    use_machine(machine)
    environment = current_environment()
    coords = np.arange(elements, dtype=np.int64)
    out = np.full(elements, -1, dtype=np.int64)
    records = [
        owner_record(program, coords, out, repeats, environment) for program in owner_programs(elements)
    ]
    return records + [page_record(program, repeats, environment) for program in page_programs()]
