"""Puts the cases, their checks and their baselines together."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import stf_places as stf
from benchmarks.environment import Environment, current_driver, current_environment
from benchmarks.heat import cuda_core, cuda_stf, warp_plain
from benchmarks.heat.copies import Copies
from benchmarks.heat.kernels import start_warp
from benchmarks.heat.ours import Ours, rows_over
from benchmarks.heat.programs import BYTES_A_CELL, WARM_UP, Case, cases
from benchmarks.heat.warp_plain import Plain
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import MISSING, prepared_machine
from benchmarks.records import Baseline, Missing, Record, Spread
from benchmarks.runner import UsageError

__all__ = ["measure_all"]

NAME = "heat"
#: Numbers of places, as far as the machine has them.
COUNTS = (1, 2, 4, 8)
#: Numbers of devices whose absence is named.
EXPECTED_DEVICES = (1, 2)
SIZES = {"devices": 32768, "partitions": 16384}
SIMULATED_SIZE = 1024
COPY_BYTES, SIMULATED_COPY_BYTES = 1 << 30, 64 << 20
GOALS: dict[str, dict[str, object]] = {
    "strong_1_device": {"goal": "at least 0.90 of plain Warp", "source": "the issue's goal"},
    "strong_2_devices": {"goal": "at least 1.9 times one device", "source": "the issue's goal"},
}


@dataclass
class Setting:
    """Hold what all cases of a run share."""

    where: Environment
    steps: int
    repeats: int
    copy_gb_s: Spread
    not_measured: list[dict[str, str]] = field(default_factory=list)


def baselines_of(
    setting: Setting, case: Case, plain: Plain, stack: ExitStack
) -> Iterator[tuple[str, Callable[[], float] | str]]:
    """Yield the name of each baseline of a case, and what measures it or why nothing does."""
    simulated = setting.where.simulated
    yield warp_plain.NAME, MISSING if simulated else plain.measure_ms
    if case.kind == "partitions":
        return
    if simulated:
        yield cuda_core.NAME, MISSING
        yield cuda_stf.NAME, MISSING
        return
    try:
        by_hand = cuda_core.ByHand(case, setting.steps, plain)
        stack.callback(by_hand.close)
        yield cuda_core.NAME, by_hand.measure_ms
    except ImportError as error:
        yield cuda_core.NAME, f"needs cuda.core and cuda.bindings: {error}"
    except cuda_core.Unavailable as error:
        yield cuda_core.NAME, str(error)
    peer = cuda_stf.load()
    if peer is None:
        yield cuda_stf.NAME, "not importable here"
    else:
        yield cuda_stf.NAME, cuda_stf.Peer(peer, case, setting.steps, plain).measure_ms


def measure_case(setting: Setting, case: Case, places: list[stf.exec_place]) -> Record:
    """Measure a case on all systems, in turn."""
    with ExitStack() as stack:
        plain = Plain(case, setting.steps)
        plain.measure_ms()  # what the others are compared with
        ours = Ours(case, rows_over(places), setting.steps, plain)
        others = list(baselines_of(setting, case, plain, stack))
        measures = [each for _, each in others if not isinstance(each, str)]
        values, *found = in_turn([ours.measure_ms, *measures], setting.repeats)
    spreads = iter(found)
    baselines: list[Baseline | Missing] = [
        Missing(name, each) if isinstance(each, str) else Baseline(name, Spread(next(spreads)))
        for name, each in others
    ]
    extra: dict[str, object] = {
        "scaling": case.scaling,
        "places": case.places,
        "kind": case.kind,
        "sms_of_a_place": places[0].sm_count,
        "rows": case.rows,
        "columns": case.columns,
        "steps": setting.steps,
        "checked": f"every cell after {WARM_UP + setting.steps} steps, in each repeat",
    }
    extra |= bandwidth(setting, case, values, ours.simulated_ms[-setting.repeats :])
    extra["speed_against"] = {
        each.name: median_ratio(each.spread.values, values)
        for each in baselines
        if isinstance(each, Baseline)
    }
    if case.name in GOALS:
        extra["reference_figures"] = GOALS[case.name]
    return Record(NAME, case.name, Spread(values), "ms/step", setting.where, baselines, extra)


def bandwidth(
    setting: Setting, case: Case, values: tuple[float, ...], simulated_ms: list[float]
) -> dict[str, object]:
    """Return what a step moves in a second at least, and how that compares with a copy inside one device."""
    times = simulated_ms if setting.where.simulated else values
    gb_s = case.cells * BYTES_A_CELL / median(times) / 1e6
    devices = case.places if case.kind == "devices" else 1
    prefix = "simulated_" if setting.where.simulated else ""
    extra: dict[str, object] = {"simulated_ms_per_step": median(times)} if prefix else {}
    return extra | {
        f"{prefix}gb_s": gb_s,
        f"{prefix}percent_of_copy_bandwidth": 100 * gb_s / (devices * setting.copy_gb_s.median),
        f"{prefix}copy_bandwidth": {
            "value": setting.copy_gb_s.median,
            "unit": "GB/s read and written, one device",
            "spread": setting.copy_gb_s.to_json(),
        },
    }


def add_speed_ups(records: list[Record], prefix: str) -> None:
    """Compare each case with the one of its scaling on one place: strong its time, weak its time a row."""
    ones: dict[object, Record] = {}
    for record in records:
        extra = record.extra
        one = ones.setdefault((extra["scaling"], extra["kind"]), record)
        if one.extra["places"] != 1:
            continue
        ratio = time_of(one, prefix) / time_of(record, prefix)
        if extra["scaling"] == "weak":
            ratio *= float(str(extra["places"]))
        extra[f"{prefix}speed_up"] = ratio


def time_of(record: Record, prefix: str) -> float:
    """Return the time of a step by the clock that counts on this machine."""
    return float(str(record.extra["simulated_ms_per_step"])) if prefix else record.spread.median


def device_places(setting: Setting) -> list[list[stf.exec_place]]:
    """Return the devices of each case."""
    there = setting.where.device_count
    for count in EXPECTED_DEVICES:
        if count > there:
            add_missing(setting, "devices", count, f"this machine has {there} device(s)")
    return [[stf.exec_place.device(i) for i in range(count)] for count in COUNTS if count <= there]


def partition_places(setting: Setting, sms: int) -> list[list[stf.exec_place]]:
    """Return the partitions of each case, out of one split of the first device."""
    try:
        places = list(stf.green_places(sms))[: max(COUNTS)]
    except (stf.PartitionError, stf.NotSupported) as error:
        add_missing(setting, "partitions", 1, str(error))
        return []
    for count in COUNTS:
        if count > len(places):
            add_missing(setting, "partitions", count, f"{len(places)} partition(s) of {sms} SMs fit")
    return [places[:count] for count in COUNTS if count <= len(places)]


def add_missing(setting: Setting, kind: Literal["devices", "partitions"], count: int, reason: str) -> None:
    """Name the cases that this machine cannot have."""
    for scaling in ("strong", "weak"):
        setting.not_measured.append({"case": Case(scaling, kind, count, 1, 1).name, "reason": reason})


def measured_kind(
    setting: Setting, kind: Literal["devices", "partitions"], groups: list[list[stf.exec_place]], size: int
) -> Iterator[Record]:
    """Measure the cases of one kind of places."""
    by_count = {len(group): group for group in groups}
    if by_count:
        for case in cases(kind, list(by_count), size):
            yield measure_case(setting, case, by_count[case.places])


def measured_copies(repeats: int) -> Spread:
    """Measure the bandwidth of copies inside the first device."""
    wanted = SIMULATED_COPY_BYTES if current_driver().simulated else COPY_BYTES
    free, _ = current_driver().memory_info(0)
    copies = Copies(min(wanted, free // 4 // 16 * 16))
    try:
        return Spread(in_turn([copies.measure_gb_s], repeats)[0])
    finally:
        copies.close()


def measure_all(options: argparse.Namespace) -> list[Record]:
    """Measure every case.

    Parameters
    ----------
    options : Namespace
        What the command line gave.

    Raises
    ------
    UsageError
        If the machine cannot be used.
    WrongResult
        If a cell of a result is wrong.
    """
    with prepared_machine(options.machine):
        before = current_driver().current_context()
        start_warp()  # looks at every device and changes the current context
        current_driver().set_current_context(before)
        where = current_environment()
        setting = Setting(where, options.steps, options.repeats, measured_copies(options.repeats))
        sizes: dict[str, Any] = {"devices": options.size, "partitions": options.partition_size}
        sizes = {
            kind: size or (SIMULATED_SIZE if where.simulated else SIZES[kind]) for kind, size in sizes.items()
        }
        records: list[Record] = []
        if options.only != "partitions":
            records += measured_kind(setting, "devices", device_places(setting), sizes["devices"])
        if options.only != "devices":
            groups = partition_places(setting, options.sms)
            records += measured_kind(setting, "partitions", groups, sizes["partitions"])
    if not records:
        raise UsageError(f"no case can be measured: {setting.not_measured[0]['reason']}")
    add_speed_ups(records, "simulated_" if where.simulated else "")
    if setting.not_measured:
        records[0].extra["cases_not_measured"] = setting.not_measured
    return records
