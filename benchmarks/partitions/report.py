"""Puts the two cases and their baselines together."""

from __future__ import annotations

from benchmarks.environment import current_driver, current_environment
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import MISSING, partitions_refused, prepared_machine
from benchmarks.partitions import cuda_core, raw_driver
from benchmarks.partitions.ours import Ours
from benchmarks.records import Baseline, Missing, Record, Spread

__all__ = ["measure_all"]

NAME = "partitions"
SM_COUNT, COUNT = 8, 8

# Not measured in the run, hence no baselines.
REFERENCES: dict[str, dict[str, object]] = {
    "first": {
        "goal": "at most 1.10 times the raw driver",
        "peer": "8.4 ms for green_places(16), 8 places",
        "source": "the design's goal; cuda.stf of August 2026 on an H200, measured 2026-11-29",
    },
    "again": {"goal": 0.1, "unit": "ms", "source": "the design's goal"},
}


def names() -> tuple[str, str]:
    """Return the baselines' names."""
    return raw_driver.NAME, cuda_core.NAME


def measured(ours: Ours, repeats: int) -> tuple[tuple[float, ...], list[Baseline | Missing], float | None]:
    """Measure all systems in turn; return our values, the baselines and our ratio to the raw driver."""
    reason = MISSING
    if not current_driver().simulated:
        try:
            raw, core = raw_driver.RawDriver(SM_COUNT, COUNT), cuda_core.CudaCore(SM_COUNT, COUNT)
            reason = ""
        except ImportError as error:
            reason = f"needs cuda.core and cuda.bindings: {error}"
    if reason:
        (values,) = in_turn([ours.first_ms], repeats)
        return values, [Missing(name, reason) for name in names()], None
    values, by_driver, by_core = in_turn([ours.first_ms, raw.measure_ms, core.measure_ms], repeats)
    baselines: list[Baseline | Missing] = [
        Baseline(name, Spread(spread)) for name, spread in zip(names(), (by_driver, by_core), strict=True)
    ]
    return values, baselines, median_ratio(values, by_driver)


def measure_all(machine: str | None, repeats: int) -> list[Record]:
    """Measure the first call and the one after its places are gone.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment.
    repeats : int
        Rounds.

    Raises
    ------
    UsageError
        If the machine cannot be used, or not for this workload.
    WrongResult
        If the partitions are not what was asked for.
    """
    with prepared_machine(machine), partitions_refused():
        where = current_environment()
        name = machine or (f"sim:{where.machine}" if where.simulated else "cuda")
        ours = Ours(name, SM_COUNT, COUNT)
        first, baselines, ratio = measured(ours, repeats)
    again = tuple(ours.again_ms[-repeats:])
    request: dict[str, object] = {"partitions": COUNT, "sms_each": SM_COUNT}
    extras = {case: {**request, "reference_figures": figures} for case, figures in REFERENCES.items()}
    if ratio is not None:
        extras["first"]["ratio_to_raw_driver"] = ratio
    return [
        Record(NAME, case, Spread(values), "ms", where, baselines, extras[case])
        for case, values in (("first", first), ("again", again))
    ]
