"""Puts the two cases and their baseline together."""

from __future__ import annotations

from statistics import median

import stf_places as stf
from benchmarks.composite.ours import Ours, spread_over
from benchmarks.composite.raw_driver import NAME as RAW
from benchmarks.composite.raw_driver import RawDriver
from benchmarks.environment import current_driver, current_environment
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import prepared_machine
from benchmarks.records import Baseline, Record, Spread
from benchmarks.runner import UsageError
from stf_places._native import pages

__all__ = ["measure_all"]

NAME = "composite"
# Not measured in the run, hence no baselines.
SOURCE = "cuda.stf of August 2026 and the driver's calls on two H200s, 4 GiB, measured 2026-11-29; the design's goals"
REFERENCES: dict[str, dict[str, object]] = {
    "first": {"peer": 61, "driver": 18, "goal": 20, "unit": "ms", "source": SOURCE},
    "again": {"goal": 0.1, "unit": "ms", "source": SOURCE},
}


def pieces_of(nbytes: int, devices: int) -> list[tuple[int, int]]:
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
            f"--mib {nbytes >> 20}: {devices} devices have two pages of {page >> 20} MiB each at least"
        )
    try:
        grid = spread_over(devices)
    except stf.PartitionError as error:
        raise UsageError(str(error)) from error
    layout = stf.partition(stf.blocked("x")).bind(nbytes, grid)
    return [(run.place, run.count * page) for run in layout.pages(1, page)]


def measure_all(machine: str | None, nbytes: int, devices: int, repeats: int) -> list[Record]:
    """Measure the first write and the one after its data is gone.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment.
    nbytes : int
        Size of the array.
    devices : int
        Devices that it lies on.
    repeats : int
        Rounds.

    Raises
    ------
    UsageError
        If the machine cannot be used, or not for this workload.
    WrongResult
        If memory is not where it should be.
    """
    with prepared_machine(machine):
        where = current_environment()
        name = machine or (f"sim:{where.machine}" if where.simulated else "cuda")
        pieces = pieces_of(nbytes, devices)
        ours, raw = Ours(name, nbytes, devices), RawDriver(pieces)
        try:
            first, by_driver = in_turn([ours.first_ms, raw.measure_ms], repeats)
        except stf.OutOfMemory as error:
            raise UsageError(f"--mib {nbytes >> 20}: {error}") from error
    again = tuple(ours.again_ms[-repeats:])
    parts = [median(column) for column in zip(*raw.parts_ms[-repeats:], strict=True)]
    common: dict[str, object] = {
        "nbytes": nbytes,
        "devices": devices,
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
