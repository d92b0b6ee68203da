"""The task graph of 100 tasks on the peer, ``cuda.stf._experimental``, where it is installed."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.graphs.programs import expected, first_values, require_equal, steps
from benchmarks.graphs.raw_driver import RawDriver
from benchmarks.graphs.replays import replayed

__all__ = ["NAME", "PeerReplay", "load"]

NAME = "cuda.stf._experimental"


def load() -> Any | None:
    """Import the peer; None where it is not installed or does not load."""
    try:
        return importlib.import_module(NAME)
    except (ImportError, OSError, RuntimeError):
        return None


class PeerReplay:
    """Record a task graph and launch it; `launch_us` and `done_us` get the microseconds of each launch.

    Parameters
    ----------
    peer : module
        From `load`.
    raw : RawDriver
        Launches the kernel on a task's stream: the peer's stackable context has tasks alone, no kernels.
    tasks, launches : int
        Tasks of the graph, and its launches.
    """

    def __init__(self, peer: Any, raw: RawDriver, tasks: int, launches: int) -> None:
        self._peer = peer
        self._raw = raw
        self._tasks = tasks
        self._launches = launches
        self.launch_us: list[float] = []
        self.done_us: list[float] = []

    def record(self) -> float:
        """Do everything once in a context of its own; return the microseconds of the recording for each task.

        Raises
        ------
        WrongResult
            If values differ from NumPy's.
        """
        values = first_values()
        graph = self._peer.task_graph()
        data = [graph.context.logical_data(row) for row in values]
        plan = [(data[target], data[source]) for _, target, source in steps(self._tasks)]
        times = replayed(
            graph,
            lambda: self._submit(graph.context, plan),
            self._launches,
            lambda it: self._raw.wait(int(it)),
        )
        require_equal(NAME, values, expected(*[self._tasks] * (self._launches + 1)))
        self.launch_us += times.submit_us
        self.done_us += times.done_us
        return times.record_us / self._tasks

    def close(self) -> None:
        """Do nothing: each recording ended its context."""

    def _submit(self, ctx: Any, plan: list[tuple[Any, Any]]) -> None:
        place = self._peer.exec_place.device(0)
        launch = self._raw.launch_kernel
        for target, source in plan:
            with ctx.task(place, target.rw(), source.read()) as task:
                launch(int(task.stream_ptr()), int(task.get_arg(0)), int(task.get_arg(1)))
