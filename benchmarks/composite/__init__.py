"""What it costs to spread a new array over devices, and how fast it is copied to the host and a device and back.

``first`` and ``again`` are milliseconds of a ``write()`` task with an empty body on new data. ``first`` opens the
machine anew for each repeat; ``again`` makes other data that lies alike, once that of ``first`` is gone. The baseline
is the driver's own calls for the same pieces (reserve, map, grant), in turn, through the seam of this package, which
adds a function call to each. ``host_to_composite``, ``composite_to_host`` and ``composite_to_device`` are gigabytes a
second of the copies that tasks ask for; the baselines are copies of as many bytes over each link that the pieces use,
by the driver's own calls, from and to ordinary memory. Host memory is pinned.

On a simulated machine the values are CPU times of this computer, and fields that begin with ``simulated`` are virtual
time. Not measured: opening the machine and its contexts, the first touch of the memory, giving it back.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_machine, add_repeats, measuring_part, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    add = parser.add_argument
    add("--mib", type=positive, default=4096, metavar="N", help="MiB of the array that is written (4096)")
    add(
        "--copy-mib",
        type=positive,
        metavar="N",
        help="MiB of the array that is copied (4096; simulated: 64)",
    )
    add("--devices", type=positive, default=2, metavar="N", help="devices that they lie on, at least 2 (2)")
    add("--only", choices=["writes", "copies"], help="measure these only")
    add_repeats(parser)
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baselines."""
    records: list[Record] = measuring_part("composite").measure_all(options)
    return records
