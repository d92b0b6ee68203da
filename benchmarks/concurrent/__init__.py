"""Small independent kernels on one stream, on streams of the whole device, and on partitions of 8 SMs.

8 and 15 kernels of 8 blocks of 1.0 ms each; the records hold the time from the first submission to the end of all,
beside streams and green contexts made by hand with cuda.core, measured in turn. On a simulated machine the value is
CPU time of this computer, and ``simulated_ms`` the virtual time.

Not measured: making partitions (see ``partitions``), the first launch, copies.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_machine, add_repeats, measuring_part
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    add_repeats(parser)
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baseline."""
    records: list[Record] = measuring_part("concurrent").measure_all(options.machine, options.repeats)
    return records
