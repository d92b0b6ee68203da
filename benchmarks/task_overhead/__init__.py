"""What one task costs the submitting thread, when its body is empty.

Records, each beside the raw driver calls, an empty ``with`` in Python, and the peer:

- ``chain``: one read-write dependency, always on the same data.
- ``two_dependencies``: reads one array, writes another, asks for the stream and both addresses.
- ``tokens``: 64 tokens, chains mixed with fan-out from one token to many tasks.
- ``simulated_throughput``: tasks a second of a simulated machine, from the context's making to its end.

Not measured: kernels, copies, waiting for the GPU, other threads.
"""

from __future__ import annotations

import argparse

from benchmarks.options import measuring_part, ordinal, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    parser.add_argument(
        "--tasks", type=positive, default=20_000, metavar="N", help="tasks in a timed part (20000)"
    )
    parser.add_argument(
        "--repeats", type=positive, default=7, metavar="N", help="timed parts; the median counts (7)"
    )
    parser.add_argument("--device", type=ordinal, default=0, metavar="N", help="the current device (0)")
    parser.add_argument("--machine", metavar="WHICH", help="cuda, or a simulated machine such as sim:h200x1")


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baselines."""
    records: list[Record] = measuring_part("task_overhead").measure_all(
        options.machine, options.device, options.tasks, options.repeats
    )
    return records
