"""What it costs to make 8 partitions of 8 SMs, the first time and again after they are gone.

``first`` opens the machine anew for each repeat; ``again`` asks once more when the places are gone. Beside the raw
driver's calls for the same contexts and cuda.core's, measured in turn. On a simulated machine the values are CPU
times of this computer.

Not measured: opening the machine, streams, the first work on a partition, destruction.
"""

from __future__ import annotations

import argparse

from benchmarks.records import Record
from benchmarks.runner import UsageError
from benchmarks.task_overhead import positive

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    parser.add_argument(
        "--repeats", type=positive, default=15, metavar="N", help="rounds; the median counts (15)"
    )
    parser.add_argument("--machine", metavar="WHICH", help="cuda, or a simulated machine such as sim:h200x1")


def run(options: argparse.Namespace) -> list[Record]:
    """Measure both cases and their baselines."""
    try:
        from benchmarks.partitions import report
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stf_places":
            raise
        raise UsageError("stf_places is not installed here: `pip install -e .` in the checkout") from error
    return report.measure_all(options.machine, options.repeats)
