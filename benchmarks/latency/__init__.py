"""How long a small urgent kernel takes behind a bulk kernel: plain streams, priority, its own partition.

A record's value is the p50 from submission until the thread knows that the urgent kernel is done, one p50 a repeat;
p99 and the bulk kernel alone stand beside it. By hand with cuda.core in turn. On a simulated machine the value is CPU
time of this computer; fields that begin with ``simulated`` are virtual time.

Not measured: several urgent kernels at once, bulk work that moves memory.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_machine, add_repeats, measuring_part, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    parser.add_argument(
        "--probes", type=positive, default=50, metavar="N", help="urgent kernels in a repeat (50)"
    )
    add_repeats(parser)
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every way and its baseline."""
    records: list[Record] = measuring_part("latency").measure_all(
        options.machine, options.probes, options.repeats
    )
    return records
