"""What it costs to ask a layout: owners of elements, pages of a large array, their misplaced bytes.

Owners are those of a 1-D array, each element's coordinate given, written into a given array, on one thread; pages of
2 MiB and misplaced bytes are those of a 32 GiB array of 8-byte elements over 8 places. The baseline is the same with
NumPy, in turn. No machine is needed: all values are CPU time of this computer.

Not measured: making the coordinates, making the layout, mapping memory.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_repeats, measuring_part, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    parser.add_argument(
        "--elements", type=positive, default=100_000_000, metavar="N", help="elements with an owner (1e8)"
    )
    add_repeats(parser)
    parser.add_argument("--machine", metavar="WHICH", help="named in the records; a simulated one will do")


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baseline."""
    records: list[Record] = measuring_part("layouts").measure_all(
        options.machine, options.elements, options.repeats
    )
    return records
