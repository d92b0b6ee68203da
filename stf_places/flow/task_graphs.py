"""Graphs of tasks that are recorded once and launched many times."""

from types import TracebackType
from typing import Any, Literal

from stf_places._native.scopes import (
    LaunchableGraph,
    Level,
    begin_task_graph,
    end_task_graph,
    stackable_context,
    start_task_graph,
)
from stf_places.errors import TaskStateError

__all__ = ["TaskGraph", "task_graph"]


class TaskGraph:
    """Record a flow of tasks once and launch it many times; made by `task_graph`.

    Attributes
    ----------
    context : stackable_context
        Where data are made and tasks submitted. Data can be made at any time, tasks within ``with graph:`` alone.

    Examples
    --------
    >>> import numpy as np
    >>> import stf_places as stf
    >>> def add(values):
    ...     values += 1
    >>> x = np.zeros(3)
    >>> with stf.use_machine("sim:h200x2"):
    ...     graph = stf.task_graph()
    ...     data = graph.context.logical_data(x)
    ...     with graph:
    ...         with graph.context.task(stf.exec_place.device(0), data.rw()) as t:
    ...             t.run(add, t.get_arg_cai(0))
    ...     for _ in range(5):
    ...         graph.launch()
    ...     graph.finalize()
    >>> x
    array([5., 5., 5.])
    """

    context: stackable_context

    def __init__(self) -> None:
        self.context = start_task_graph()
        self._recorded: LaunchableGraph | None = None
        self._recording: Level | None = None
        self._state = "empty"

    def __enter__(self) -> "TaskGraph":
        """Begin to record.

        Raises
        ------
        TaskStateError
            If it was recorded before, or is being recorded.
        ContextClosed
            If it was finalized.
        """
        if self._state not in ("empty", "finalized"):
            raise TaskStateError(
                f"a task graph is recorded once, and this one is {self._state}: make another with task_graph()"
            )
        self._recording = begin_task_graph(self.context)
        self._state = "being recorded"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """End the recording. After an exception what was recorded is discarded, and it can be recorded anew."""
        recording, self._recording, self._state = self._recording, None, "empty"
        if recording is not None:
            self._recorded = end_task_graph(recording, kind is None)
        if self._recorded is not None:
            self._state = "recorded"
        return False

    def _graph(self) -> LaunchableGraph:
        if self._recorded is None:
            hint = "use `with graph:` first" if self._state == "empty" else "its recording has to end first"
            if self._state in ("reset", "finalized"):
                hint = "make another with task_graph()"
            raise TaskStateError(f"the task graph is {self._state}, so there is nothing to launch: {hint}")
        return self._recorded

    @property
    def raw(self) -> Any:
        """The launchable graph underneath.

        Raises
        ------
        TaskStateError
            If it is not recorded, or was reset.
        """
        return self._graph()

    @property
    def graph(self) -> int:
        """The raw ``CUgraph``, as `LaunchableGraph.graph`."""
        return self._graph().graph

    @property
    def exec_graph(self) -> int:
        """The raw ``CUgraphExec``, as `LaunchableGraph.exec_graph`."""
        return self._graph().exec_graph

    @property
    def stream(self) -> int:
        """The raw stream that it is launched on, as `LaunchableGraph.stream`."""
        return self._graph().stream

    def launch(self) -> None:
        """Run the graph once more; returns when it is submitted.

        Raises
        ------
        TaskStateError
            If it is not recorded, being recorded, was reset or finalized.
        """
        self._graph().launch()

    def reset(self) -> None:
        """Give the recorded graph up: it cannot be launched any more. Does nothing the second time.

        Raises
        ------
        TaskStateError
            While it is being recorded.
        """
        if self._state == "being recorded":
            raise TaskStateError("the task graph is being recorded: reset() comes after its `with`")
        if self._recorded is not None:
            self._recorded.reset()
            self._recorded = None
            self._state = "reset"

    def finalize(self) -> None:
        """Give the graph up and finalize its context: values are written back. Does nothing the second time.

        Raises
        ------
        TaskStateError
            While it is being recorded.
        """
        self.reset()
        self.context.finalize()
        self._state = "finalized"

    def __repr__(self) -> str:
        """Return its state."""
        return f"<TaskGraph: {self._state}>"


def task_graph() -> TaskGraph:
    """Return a graph of tasks that is recorded once and launched many times.

    Returns
    -------
    TaskGraph
        With a context of its own, to submit tasks to.
    """
    return TaskGraph()
