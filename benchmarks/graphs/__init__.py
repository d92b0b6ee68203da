"""What a graph of kernels costs: to record it, to launch it again, and to go round in it.

Cases, each beside the raw driver's calls for the same nodes where that makes sense:

- ``record_graph_*``, ``record_scope_*``: microseconds a task of the recording thread, in a graph context and in a graph
  scope of a stackable context, on one place and over 8 partitions of 8 SMs.
- ``launch_submit_*``, ``launch_done_*``: a launch of a graph that was recorded once, against a raw CUDA graph.
- ``loop_while``, ``loop_repeat``: microseconds an iteration of a loop that the device drives, against the host.
- ``replay_*``: a task graph of 100 tasks, recorded and launched, beside the peer.

Not measured: copies, several devices, updates of an executable, other kinds of nodes.
"""

from __future__ import annotations

import argparse

from benchmarks.options import add_machine, measuring_part, positive
from benchmarks.records import Record

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this workload."""
    parser.add_argument("--only", choices=("record", "launch", "loop", "replay"), help="this part alone")
    parser.add_argument("--quick", action="store_true", help="short graphs, few rounds: does it run at all")
    parser.add_argument("--repeats", type=positive, metavar="N", help="recordings and loops of a case (5)")
    parser.add_argument("--launches", type=positive, metavar="N", help="launches of a case (200)")
    add_machine(parser)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure every case and its baselines."""
    records: list[Record] = measuring_part("graphs").measure_all(
        options.machine, options.only, options.quick, options.repeats, options.launches
    )
    return records
