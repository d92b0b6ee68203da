"""What it costs to spread a new array over devices: a ``write()`` task with an empty body, the first time and again.

``first`` opens the machine anew for each repeat; ``again`` makes other data that lies alike, once that of ``first`` is
gone. The baseline is the driver's own calls for the same pieces (reserve, map, grant), in turn, through the seam of
this package, which adds a function call to each. On a simulated machine the values are CPU times of this computer, and
fields that begin with ``simulated`` are virtual time.

Not measured: opening the machine and its contexts, the first touch of the memory, giving it back.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_machine, add_repeats, measuring_part, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    add = parser.add_argument
    add("--mib", type=positive, default=4096, metavar="N", help="MiB of the array (4096)")
    add("--devices", type=positive, default=2, metavar="N", help="devices that it lies on, at least 2 (2)")
    add_repeats(parser)
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure both cases and their baseline."""
    records: list[Record] = measuring_part("composite").measure_all(
        options.machine, options.mib << 20, options.devices, options.repeats
    )
    return records
