"""What it costs to make 8 partitions of 8 SMs, the first time and again after they are gone.

``first`` opens the machine anew for each repeat; ``again`` asks once more when the places are gone. Beside the raw
driver's calls for the same contexts and cuda.core's, measured in turn. On a simulated machine the values are CPU
times of this computer.

Not measured: opening the machine, streams, the first work on a partition, destruction.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_machine, add_repeats, measuring_part
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    add_repeats(parser, 15)
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure both cases and their baselines."""
    records: list[Record] = measuring_part("partitions").measure_all(options.machine, options.repeats)
    return records
