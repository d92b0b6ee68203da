"""What an SM partition isolates and what it shares: a victim on 16 SMs beside other work of the same GPU.

One record a pair of victim and neighbour, the victim's slowdown against running alone:

- victims: arithmetic, copying 256 MiB of memory, copying 4 MiB again and again (which stays in the L2 cache),
  a chain of tiny kernels;
- neighbours on the other SMs: arithmetic, copying memory, copying within the L2 cache; copies between host and
  device both ways; and arithmetic on a stream of the whole device, whose kernels use the partition's SMs too.

Needs a GPU: the simulated machine has no caches, and memory that each place has its own share of.
"""

from __future__ import annotations

import argparse

from benchmarks.options import measuring_part, ordinal, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    parser.add_argument(
        "--repeats", type=positive, default=7, metavar="N", help="timed runs of a pair; the median counts (7)"
    )
    parser.add_argument("--device", type=ordinal, default=0, metavar="N", help="the GPU (0)")
    parser.add_argument("--machine", metavar="WHICH", help="cuda")


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every pair."""
    records: list[Record] = measuring_part("isolation", "pairs").measure_all(
        options.machine or "cuda", options.device, options.repeats
    )
    return records
