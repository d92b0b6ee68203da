"""The flow on stf_places: recorded in a graph context and in a scope, and launched again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.graphs.programs import (
    WARM_UP,
    Flow,
    WrongResult,
    expected,
    first_values,
    require_equal,
)
from benchmarks.graphs.replays import replayed
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["Launches", "Recorded", "Replay", "Wait", "record_context", "record_scope", "synchronize"]

NAME = "stf_places"
COUNTS = ("tasks", "copies", "allocations", "graphs_launched", "graphs_instantiated")

Wait = Callable[[int], None]


def synchronize(stream: int) -> None:
    """Wait for a stream, where the C++ part is not there."""
    current_driver().synchronize_stream(stream)


@dataclass(frozen=True)
class Recorded:
    """Hold what a recording took: microseconds a task, milliseconds until it was launched and until it was done."""

    us_per_task: float
    close_ms: float
    done_ms: float
    counts: dict[str, int]


def counts_of(ctx: stf.context) -> dict[str, int]:
    """Return what a context has counted so far."""
    statistics = ctx.stats
    return {name: int(getattr(statistics, name)) for name in COUNTS}


def require_tasks(counts: dict[str, int], tasks: int) -> None:
    """Refuse a recording in which tasks are missing, or that runs as several graphs."""
    if counts["tasks"] < tasks or counts["graphs_launched"] != 1:
        raise WrongResult(
            f"{NAME}: {tasks} tasks in one graph were asked for, and this was counted: {counts}"
        )


def record_context(flow: Flow, tasks: int) -> Recorded:
    """Record a flow in a graph context of its own and run it.

    Raises
    ------
    WrongResult
        If tasks are missing, or values differ from NumPy's.
    """
    values = first_values()
    with collector_off(), stf.context(use_graph=True) as ctx:
        data = [ctx.logical_data(row) for row in values]
        flow.submit(ctx, flow.plan(data, WARM_UP))
        plan = flow.plan(data, tasks)
        begin = wall_us()
        flow.submit(ctx, plan)
        recorded = wall_us()
        stream = ctx.fence()
        closed = wall_us()
        current_driver().synchronize_stream(stream)
        done = wall_us()
        counts = counts_of(ctx)
    require_tasks(counts, WARM_UP + tasks)
    require_equal(NAME, values, expected(WARM_UP + tasks))
    return Recorded((recorded - begin) / tasks, (closed - recorded) / 1e3, (done - recorded) / 1e3, counts)


def record_scope(flow: Flow, tasks: int) -> Recorded:
    """Record a flow in a graph scope of a stackable context and run it; raises as `record_context`."""
    values = first_values()
    with collector_off(), stf.stackable_context() as ctx:
        data = [ctx.logical_data(row) for row in values]
        with ctx.graph_scope():
            flow.submit(ctx, flow.plan(data, WARM_UP))
            plan = flow.plan(data, tasks)
            begin = wall_us()
            flow.submit(ctx, plan)
            recorded = wall_us()
        closed = wall_us()
        current_driver().synchronize_stream(ctx.fence())
        done = wall_us()
        counts = counts_of(ctx)
    require_tasks(counts, WARM_UP + tasks)
    require_equal(NAME, values, expected(WARM_UP + tasks))
    return Recorded((recorded - begin) / tasks, (closed - recorded) / 1e3, (done - recorded) / 1e3, counts)


class Launches:
    """Record a flow once, its arrays on the device already, and launch it again and again.

    Parameters
    ----------
    flow : Flow
        What is recorded.
    tasks : int
        Tasks of the graph.
    wait : callable
        Waits for a stream.
    """

    def __init__(self, flow: Flow, tasks: int, wait: Wait) -> None:
        self._tasks = tasks
        self._wait = wait
        self._runs = 0
        self.submit_us: list[float] = []
        self._values = first_values()
        self._ctx = ctx = stf.stackable_context()
        data = [ctx.logical_data(row) for row in self._values]
        flow.submit(ctx, flow.plan(data, WARM_UP))
        ctx.push()
        flow.submit(ctx, flow.plan(data, tasks))
        self._graph = ctx.pop_prologue_shared()

    def launch(self) -> float:
        """Launch; return the microseconds until it is done. `submit_us` gets those of the call.

        One launch goes before it, so that what is measured is one of many and not the first after a collection.
        """
        graph = self._graph
        with collector_off():
            graph.launch()
            self._wait(graph.stream)
            begin = wall_us()
            graph.launch()
            submitted = wall_us()
            self._wait(graph.stream)
            done = wall_us()
        self._runs += 2
        self.submit_us.append(submitted - begin)
        return done - begin

    def nodes(self) -> tuple[int, int]:
        """Return the numbers of nodes and edges."""
        from stf_places._native import raw_graphs

        nodes, edges = raw_graphs.graph_nodes(current_driver(), self._graph.graph)
        return len(nodes), len(edges)

    def close(self) -> None:
        """End the context and check its values.

        Raises
        ------
        WrongResult
            If they differ from NumPy's.
        """
        self._graph.reset()
        self._ctx.finalize()
        require_equal(NAME, self._values, expected(WARM_UP, *[self._tasks] * self._runs))


class Replay:
    """Record a task graph and launch it; `launch_us` and `done_us` get the microseconds of each launch."""

    def __init__(self, flow: Flow, tasks: int, launches: int, wait: Wait) -> None:
        self._flow = flow
        self._tasks = tasks
        self._launches = launches
        self._wait = wait
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
        graph = stf.task_graph()
        ctx = graph.context
        data = [ctx.logical_data(row) for row in values]
        plan = self._flow.plan(data, self._tasks)
        times = replayed(graph, lambda: self._flow.submit(ctx, plan), self._launches, self._wait)
        require_equal(NAME, values, expected(*[self._tasks] * (self._launches + 1)))
        self.launch_us += times.submit_us
        self.done_us += times.done_us
        return times.record_us / self._tasks

    def close(self) -> None:
        """Do nothing: each recording ended its context."""
