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

from benchmarks.records import Record
from benchmarks.runner import UsageError

__all__ = ["add_arguments", "run"]


def positive(text: str) -> int:
    """Return a count from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"a count of at least 1 is needed: got {text}")
    return value


def ordinal(text: str) -> int:
    """Return a device's number from the command line."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"devices count from 0: got {text}")
    return value


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
    try:
        from benchmarks.task_overhead import report
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stf_places":
            raise
        raise UsageError("stf_places is not installed here: `pip install -e .` in the checkout") from error
    return report.measure_all(options.machine, options.device, options.tasks, options.repeats)
