"""Puts the cases and their baselines together."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from functools import partial
from statistics import median

import stf_places as stf
from benchmarks.composite.copies import CASES, Case, Copies, Rates
from benchmarks.composite.ours import Ours, spread_over
from benchmarks.composite.raw_driver import HOST, RawCopies, RawDriver, link_name
from benchmarks.composite.raw_driver import NAME as RAW
from benchmarks.environment import Environment, current_driver, current_environment
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import prepared_machine
from benchmarks.records import Baseline, Record, Spread
from benchmarks.runner import UsageError
from stf_places._native import pages

__all__ = ["measure_all"]

NAME = "composite"
#: MiB that are copied: of the goal, and what a simulated machine copies within a moment.
COPY_MIB, SIMULATED_COPY_MIB = 4096, 64
# Not measured in the run, hence no baselines.
SOURCE = "cuda.stf of August 2026 and the driver's calls on two H200s, 4 GiB, measured 2026-11-29; the design's goals"
COPY_SOURCE = "one copy of 1 GiB by the driver on two H200s, measured 2026-11-29; the design's goals"
# A goal of copies is a part of the slower of the pieces' own links.
REFERENCES: dict[str, dict[str, object]] = {
    "first": {"peer": 61, "driver": 18, "goal": 20, "unit": "ms", "source": SOURCE},
    "again": {"goal": 0.1, "unit": "ms", "source": SOURCE},
    "host_to_composite": {"driver": 55, "goal_ratio": 1, "unit": "GB/s", "source": COPY_SOURCE},
    "composite_to_host": {"goal_ratio": 1, "unit": "GB/s", "source": COPY_SOURCE},
    "composite_to_device": {"driver": 94, "goal_ratio": 1, "unit": "GB/s", "source": COPY_SOURCE},
}


def pieces_of(nbytes: int, devices: int, option: str) -> list[tuple[int, int]]:
    """Return device and bytes of each piece of memory, as the layout says.

    Raises
    ------
    UsageError
        If the machine cannot spread an array so.
    """
    there = current_driver().device_count()
    if not 2 <= devices <= there:
        raise UsageError(
            f"--devices {devices}: an array is spread over 2 or more of this machine's {there} device(s)"
        )
    page = max(pages.page_granularity(current_driver(), device) for device in range(devices))
    if nbytes < 2 * devices * page:
        raise UsageError(
            f"{option} {nbytes >> 20}: {devices} devices have two pages of {page >> 20} MiB each at least"
        )
    try:
        grid = spread_over(devices)
    except stf.PartitionError as error:
        raise UsageError(str(error)) from error
    layout = stf.partition(stf.blocked("x")).bind(nbytes, grid)
    return [(run.place, run.count * page) for run in layout.pages(1, page)]


def measure_all(options: argparse.Namespace) -> list[Record]:
    """Measure first and second writes, then copies.

    Raises
    ------
    UsageError
        If the machine cannot be used, or not for this workload.
    WrongResult
        If memory is not where it should be, or a copy brought something else.
    """
    with prepared_machine(options.machine):
        where = current_environment()
        records = []
        if options.only != "copies":
            records += measure_writes(options, where)
        if options.only != "writes":
            records += measure_copies(options, where)
    return records


def measure_writes(options: argparse.Namespace, where: Environment) -> list[Record]:
    """Measure the first write and the one after its data is gone."""
    nbytes, repeats = options.mib << 20, options.repeats
    name = options.machine or (f"sim:{where.machine}" if where.simulated else "cuda")
    pieces = pieces_of(nbytes, options.devices, "--mib")
    ours, raw = Ours(name, nbytes, options.devices), RawDriver(pieces)
    try:
        first, by_driver = in_turn([ours.first_ms, raw.measure_ms], repeats)
    except stf.OutOfMemory as error:
        raise UsageError(f"--mib {options.mib}: {error}") from error
    again = tuple(ours.again_ms[-repeats:])
    parts = [median(column) for column in zip(*raw.parts_ms[-repeats:], strict=True)]
    common: dict[str, object] = {
        "nbytes": nbytes,
        "devices": options.devices,
        "pieces": len(pieces),
        "raw_driver_ms": dict(zip(("reserve", "map", "grant"), parts, strict=True)),
    }
    records = []
    for number, (case, values) in enumerate((("first", first), ("again", again))):
        extra = {**common, "reference_figures": REFERENCES[case]}
        extra["ratio_to_raw_driver"] = median_ratio(values, by_driver)
        if where.simulated:
            extra["simulated_ms"] = median(times[number] for times in ours.simulated_ms[-repeats:])
        # The driver's calls keep nothing: again costs what the first time did.
        records.append(
            Record(NAME, case, Spread(values), "ms", where, [Baseline(RAW, Spread(by_driver))], extra)
        )
    return records


def links_of(case: Case, devices: int) -> list[tuple[int, int]]:
    """Return the links that the pieces of a copy go over; a piece that is on its device has none."""
    if case.source == "host":
        return [(HOST, device) for device in range(devices)]
    if case.target == "host":
        return [(device, HOST) for device in range(devices)]
    return [(device, 0) for device in range(1, devices)]


class Rounds:
    """Measure everything in turn and keep all rates, by name."""

    def __init__(self) -> None:
        self._measures: dict[str, Callable[[], Rates]] = {}
        self._found: dict[str, list[Rates]] = {}

    def add(self, name: str, measure: Callable[[], Rates]) -> None:
        """Add something to measure."""
        self._measures[name] = measure

    def run(self, repeats: int) -> None:
        """Measure so many rounds, and one before them."""
        self._found = {name: [] for name in self._measures}
        in_turn([partial(self._measure, name) for name in self._measures], repeats)
        self._found = {name: rates[-repeats:] for name, rates in self._found.items()}

    def _measure(self, name: str) -> float:
        self._found[name].append(self._measures[name]())
        return self._found[name][-1].wall

    def wall(self, name: str) -> tuple[float, ...]:
        """Return the gigabytes a second of each round."""
        return tuple(rates.wall for rates in self._found[name])

    def simulated(self, name: str) -> float:
        """Return the median by the simulated clock."""
        return median(rates.simulated for rates in self._found[name])


def measure_copies(options: argparse.Namespace, where: Environment) -> list[Record]:
    """Measure copies from and to a composite place beside those over its pieces' links."""
    mib = options.copy_mib or (SIMULATED_COPY_MIB if where.simulated else COPY_MIB)
    nbytes, devices = mib << 20, options.devices
    pieces = pieces_of(nbytes, devices, "--copy-mib")
    rounds = Rounds()
    try:
        with closing(Copies(nbytes, devices)) as ours, closing(RawCopies(nbytes, devices)) as raw:
            for case in CASES:
                rounds.add(case.name, partial(ours.measure, case))
            for link in sorted({link for case in CASES for link in links_of(case, devices)}):
                rounds.add(link_name(*link), partial(raw.measure, *link))
            rounds.run(options.repeats)
            ours.check()
    except stf.OutOfMemory as error:
        raise UsageError(f"--copy-mib {mib}: {error}") from error
    common = {"nbytes": nbytes, "devices": devices, "pieces": len(pieces)}
    return [copy_record(case, devices, rounds, where, common) for case in CASES]


def copy_record(
    case: Case, devices: int, rounds: Rounds, where: Environment, common: dict[str, int]
) -> Record:
    """Return the record of a copy."""
    names = [link_name(*link) for link in links_of(case, devices)]
    slower = tuple(min(rates) for rates in zip(*map(rounds.wall, names), strict=True))
    values = rounds.wall(case.name)
    extra: dict[str, object] = {**common, "reference_figures": REFERENCES[case.name]}
    extra["ratio_to_slower_link"] = median_ratio(values, slower)
    if where.simulated:
        extra["simulated_gb_s"] = rounds.simulated(case.name)
        extra["simulated_slower_link_gb_s"] = min(map(rounds.simulated, names))
    baselines = [Baseline(name, Spread(rounds.wall(name))) for name in names]
    return Record(NAME, case.name, Spread(values), "GB/s", where, baselines, extra)
