"""Puts the ways, their checks and their baselines together."""

from __future__ import annotations

from benchmarks.environment import Environment, current_environment
from benchmarks.latency import cuda_core, programs
from benchmarks.latency.ours import Ours
from benchmarks.latency.programs import WAYS, Samples, percentile
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import MISSING, kernel_here, partitions_refused, prepared_machine
from benchmarks.records import Baseline, Missing, Record, Spread
from benchmarks.spin_kernels import CudaKernel, SpinTasks

__all__ = ["measure_all"]

NAME = "latency"

# Not measured in the run, hence no baselines.
REFERENCE_SOURCE = "H200, driver 580.159, CUDA 13.0, hand-written, measured 2026-11-29"
REFERENCES = {"plain_streams": 1161, "highest_priority": 140, "own_partition": 45}
KERNELS: dict[str, object] = {
    "urgent": {"blocks": 1, "block_us": programs.URGENT_US},
    "bulk": {"waves_on_the_whole_device": programs.BULK_WAVES, "block_us": programs.BULK_BLOCK_US},
}


def measure_way(
    way: str, kernel: CudaKernel | None, where: Environment, probes: int, repeats: int
) -> tuple[Record, Samples]:
    """Measure one way on stf_places and by hand, in turn; return the samples of the machine's own clock, too."""
    ours = Ours(SpinTasks(kernel), way)
    extra: dict[str, object] = {
        "probes": probes,
        "kernels": KERNELS,
        "sm_counts": {"urgent": ours.sm_counts[0], "bulk": ours.sm_counts[1]},
        "reference_figures": {"hand_written": REFERENCES[way], "unit": "us", "source": REFERENCE_SOURCE},
    }
    if kernel is None:
        (values,) = in_turn([lambda: ours.measure_us(probes)], repeats)
        extra |= ours.samples.to_json("cpu") | ours.simulated.to_json("simulated")
        missing = Missing(cuda_core.NAME, MISSING)
        return Record(NAME, way, Spread(values), "us", where, [missing], extra), ours.simulated
    by_hand = cuda_core.ByHand(kernel, way, where.sm_count)
    try:
        measures = [lambda: ours.measure_us(probes), lambda: by_hand.measure_us(probes)]
        values, others = in_turn(measures, repeats)
    finally:
        by_hand.close()
    extra |= ours.samples.to_json("ours") | by_hand.samples.to_json("by_hand")
    extra["ratio_to_baseline"] = median_ratio(values, others)
    baseline = Baseline(cuda_core.NAME, Spread(others))
    return Record(NAME, way, Spread(values), "us", where, [baseline], extra), ours.samples


def compare(samples: dict[str, Samples]) -> dict[str, object]:
    """Return what the partition gains and costs, by the machine's own clock."""
    plain, partition = samples["plain_streams"], samples["own_partition"]
    return {
        "plain_p50_over_partition_p50": percentile(plain.urgent, 50) / percentile(partition.urgent, 50),
        "bulk_slowdown_on_the_rest": percentile(partition.bulk, 50) / percentile(plain.bulk, 50),
        "goal_plain_p50_over_partition_p50": 20,
    }


def measure_all(machine: str | None, probes: int, repeats: int) -> list[Record]:
    """Measure every way.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment.
    probes : int
        Urgent kernels in a repeat.
    repeats : int
        Rounds of each way.

    Raises
    ------
    UsageError
        If the machine cannot be used, or not for this workload.
    WrongResult
        If a block ran too often or too rarely.
    """
    records: list[Record] = []
    samples: dict[str, Samples] = {}
    with prepared_machine(machine), partitions_refused():
        kernel, where = kernel_here(), current_environment()
        for way in WAYS:
            record, samples[way] = measure_way(way, kernel, where, probes, repeats)
            records.append(record)
    records[-1].extra.update(compare(samples))
    return records
