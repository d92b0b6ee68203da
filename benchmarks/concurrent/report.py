"""Puts the cases, their checks and their baselines together."""

from __future__ import annotations

import os

from benchmarks.concurrent import cuda_core
from benchmarks.concurrent.ours import Ours
from benchmarks.concurrent.programs import BLOCK_US, BLOCKS, CASES, Case
from benchmarks.environment import Environment, current_environment
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import MISSING, kernel_here, partitions_refused, prepared_machine
from benchmarks.records import Baseline, Missing, Record, Spread
from benchmarks.spin_kernels import CudaKernel, SpinTasks

__all__ = ["measure_all"]

NAME = "concurrent"
#: Streams beyond the GPU's hardware queues share them, and then wait for each other; the driver's own number is 8.
QUEUES_VARIABLE, QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"

# Not measured in the run, hence no baselines.
REFERENCE_SOURCE = "H200, driver 580.159, CUDA 13.0, hand-written, measured 2026-11-29"
REFERENCES = {"8_kernels_1_stream": 8.11, "8_kernels_8_streams": 1.09, "8_kernels_8_partitions": 1.10}


def measure_case(case: Case, kernel: CudaKernel | None, where: Environment, repeats: int) -> Record:
    """Measure one case on stf_places and by hand, in turn."""
    ours = Ours(SpinTasks(kernel), case)
    extra: dict[str, object] = {
        "kernels": case.kernels,
        "kernel": {"blocks": BLOCKS, "block_us": BLOCK_US},
        QUEUES_VARIABLE: os.environ.get(QUEUES_VARIABLE),
    }
    if case.name in REFERENCES:
        reference = {"hand_written": REFERENCES[case.name], "unit": "ms", "source": REFERENCE_SOURCE}
        extra["reference_figures"] = reference
    if kernel is None:
        (values,) = in_turn([ours.measure_ms], repeats)
        extra["simulated_ms"] = ours.simulated_us / 1e3
        missing = Missing(cuda_core.NAME, MISSING)
        return Record(NAME, case.name, Spread(values), "ms", where, [missing], extra)
    by_hand = cuda_core.ByHand(kernel, case)
    try:
        values, others = in_turn([ours.measure_ms, by_hand.measure_ms], repeats)
    finally:
        by_hand.close()
    extra["ratio_to_baseline"] = median_ratio(values, others)
    baseline = Baseline(cuda_core.NAME, Spread(others))
    return Record(NAME, case.name, Spread(values), "ms", where, [baseline], extra)


def measure_all(machine: str | None, repeats: int) -> list[Record]:
    """Measure every case.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment.
    repeats : int
        Rounds of each case.

    Raises
    ------
    UsageError
        If the machine cannot be used, or not for this workload.
    WrongResult
        If a block ran too often or too rarely.
    """
    os.environ.setdefault(QUEUES_VARIABLE, QUEUES)
    with prepared_machine(machine), partitions_refused():
        kernel, where = kernel_here(), current_environment()
        return [measure_case(case, kernel, where, repeats) for case in CASES]
