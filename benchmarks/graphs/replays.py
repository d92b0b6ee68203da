"""A task graph recorded and launched, timed in the same way for every system that has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["Replayed", "replayed"]


@dataclass
class Replayed:
    """Hold microseconds: of the recording, and of each launch until it was submitted and until it was done."""

    record_us: float
    submit_us: list[float] = field(default_factory=list)
    done_us: list[float] = field(default_factory=list)


def replayed(
    graph: Any, submit: Callable[[], object], launches: int, wait: Callable[[Any], object]
) -> Replayed:
    """Record a task graph, launch it and finalize it.

    Parameters
    ----------
    graph : TaskGraph
        Of whichever system.
    submit : callable
        Submits the tasks; called while the graph records.
    launches : int
        Launches that are timed, behind one that brings the arrays.
    wait : callable
        Waits for a stream.
    """
    with collector_off():
        begin = wall_us()
        with graph:
            submit()
        times = Replayed(wall_us() - begin)
        for number in range(launches + 1):
            begin = wall_us()
            graph.launch()
            submitted = wall_us()
            wait(graph.stream)
            done = wall_us()
            if number > 0:
                times.submit_us.append(submitted - begin)
                times.done_us.append(done - begin)
    graph.finalize()
    return times
