"""Small independent kernels on one stream, on streams of the whole device, and on partitions of 8 SMs.

8 and 15 kernels of 8 blocks of 1.0 ms each; the records hold the time from the first submission to the end of all,
beside streams and green contexts made by hand with cuda.core, measured in turn. On a simulated machine the value is
CPU time of this computer, and ``simulated_ms`` the virtual time.

Not measured: making partitions (see ``partitions``), the first launch, copies.
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
        "--repeats", type=positive, default=7, metavar="N", help="rounds; the median counts (7)"
    )
    parser.add_argument("--machine", metavar="WHICH", help="cuda, or a simulated machine such as sim:h200x1")


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baseline."""
    try:
        from benchmarks.concurrent import report
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stf_places":
            raise
        raise UsageError("stf_places is not installed here: `pip install -e .` in the checkout") from error
    return report.measure_all(options.machine, options.repeats)
