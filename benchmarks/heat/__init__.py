"""How the heat equation scales over devices and over partitions of their SMs, against programs written by hand.

A step reads five cells and writes one, of float32: 8 bytes of memory a cell are needed. Strong scaling keeps the array,
weak scaling the rows of a place. A record's value is the milliseconds of a step of ours, by this computer's clock from
the first step's submission until all are done; beside it plain Warp with the same kernel on one whole device, streams
and halo copies by hand with cuda.core, and the peer. The result of every measurement is compared, cell by cell, with
that of plain Warp, and that one with NumPy in places.

On a simulated machine the value is CPU time of this computer; fields that begin with ``simulated`` are virtual time.
Not measured: making the context and its data, copies between host and devices, checks.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from benchmarks.options import add_machine, add_repeats, measuring_part, positive
from benchmarks.records import Record
from benchmarks.runner import UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    add = parser.add_argument
    add("--size", type=positive, metavar="N", help="array of N x N over devices (32768; simulated: 1024)")
    add("--partition-size", type=positive, metavar="N", help="and over partitions (16384; simulated: 1024)")
    add("--only", choices=["devices", "partitions"], help="measure one kind of places only")
    add("--sms", type=positive, default=16, metavar="N", help="SMs of a partition (16)")
    add("--steps", type=positive, default=30, metavar="N", help="steps in a timed part (30)")
    add("--plot", type=Path, metavar="FILE", help="draw the speed-ups there (.png, .svg); needs matplotlib")
    add_repeats(parser)
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baselines."""
    if importlib.util.find_spec("warp") is None:
        raise UsageError("this workload needs Warp: `pip install warp-lang`")
    if options.plot is not None:
        if importlib.util.find_spec("matplotlib") is None:
            raise UsageError("--plot needs matplotlib: `pip install matplotlib`")
        if not options.plot.absolute().parent.is_dir():
            raise UsageError(f"--plot: no such folder: {options.plot.parent}")
    records: list[Record] = measuring_part("heat").measure_all(options)
    if options.plot is not None:
        measuring_part("heat", "plot").save(records, options.plot)
    return records
