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

from benchmarks.options import ordinal, positive
from benchmarks.records import Record
from benchmarks.runner import UsageError

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
    from benchmarks.isolation.pairs import measure_all
    from stf_places import errors, use_machine

    try:
        with use_machine(options.machine or "cuda") as machine:
            if machine.simulated:
                raise UsageError(
                    f"isolation needs a GPU: {machine.name} models neither caches nor contention"
                )
            return measure_all(options.device, options.repeats)
    except (errors.NotSupported, errors.InvalidDevice) as error:
        raise UsageError(f"isolation needs a GPU: {error}") from error
