"""Contexts with scopes: graphs and loops inside a flow of tasks, and graphs that are recorded once."""

from types import TracebackType
from typing import Literal, SupportsFloat, SupportsIndex, TypeVar, final, overload

from stf_places._native.contexts import context
from stf_places._native.data import logical_data
from stf_places._native.places import async_resources
from stf_places.flow.conditions import cond

_Self = TypeVar("_Self")

class Level:
    def __enter__(self: _Self) -> _Self:
        """Begin the scope.

        Raises
        ------
        TaskStateError
            If it was entered before, or a task is open.
        ContextClosed
            If the context was finalized.
        """
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """End the scope. After an exception, what it recorded is discarded: none of it has run.

        A graph scope inside another one cannot be taken out of it: where its exception is caught there, the outer
        scope is discarded at its end.

        Raises
        ------
        TaskStateError
            If a task or a scope is still open inside.
        """

@final
class graph_scope(Level):
    """Record what is inside as one graph; made by `stackable_context.graph_scope`."""

class Loop(Level):
    @property
    def on_device(self) -> bool:
        """True if the device goes round by itself, False if the host does.

        Raises
        ------
        TaskStateError
            If the loop has not ended.
        """
    @property
    def host_reason(self) -> str | None:
        """Why the host drives the loop; None when the device does.

        Raises
        ------
        TaskStateError
            If the loop has not ended.
        """

@final
class while_loop(Loop):
    """Go round what is inside while a condition holds; made by `stackable_context.while_loop`."""

    @overload
    def continue_while(self, condition: cond, /) -> None: ...
    @overload
    def continue_while(
        self,
        ld: logical_data,
        op: Literal[">", "<", ">=", "<="],
        threshold: SupportsFloat | SupportsIndex,
        /,
    ) -> None:
        """Set when the loop goes round again: once in its body, behind the tasks.

        Parameters
        ----------
        condition : cond
            Such as ``(residual > 1e-6) & (rounds < 100)``. It is asked after each round, so the body runs at least
            once.
        ld, op, threshold
            The single term ``cond(ld, op, threshold)``.

        Raises
        ------
        TaskStateError
            If the loop has its condition already, has ended, or another scope is open inside.
        TypeError, ValueError
            If it is no condition (see `cond`).
        WrongContext
            If it asks data of another context.
        """
    @property
    def cond_handle(self) -> int:
        """The raw ``cudaGraphConditionalHandle``, for a kernel that calls ``cudaGraphSetConditional`` itself.

        Such a kernel is compiled as relocatable device code, linked with cudadevrt and launched by the last task of
        the body, instead of `continue_while`. It sets the value in every round.

        Raises
        ------
        NotSupported
            On a simulated machine; in a loop within a loop; before CUDA 12.4. At the loop's end, if the host has to
            drive it.
        """

@final
class repeat(Loop):
    """Go round what is inside a fixed number of times; made by `stackable_context.repeat`."""

class LaunchableGraph:
    """Launch what was recorded once, many times.

    Returned by `stackable_context.pop_prologue_shared`. Names for the same object share it: `reset` through one of them
    resets it for all.

    Notes
    -----
    A launch is one operation of the context: it comes behind the tasks whose values it uses and before those that use
    what it writes. In between, tasks of the context may use and change the same data.
    """

    def launch(self) -> None:
        """Run the graph once more; returns when it is submitted.

        Raises
        ------
        TaskStateError
            If it was reset, a scope or a task is open, or the context was finalized.
        PoisonedData
            If a task failed while writing what the graph reads.
        ReadOnlyError
            If data that it writes were made read-only since.
        DeviceLost
            If a device failed before.

        Notes
        -----
        Where the host drives a ``while`` loop in it (`while_loop.on_device`), the call waits for that loop.
        """
    def reset(self) -> None:
        """Give the graph up. Launches that are under way complete. Does nothing the second time."""
    @property
    def valid(self) -> bool:
        """True until `reset`, or the end of the context."""
    @property
    def graph(self) -> int:
        """The raw ``CUgraph``; it stays the library's.

        Raises
        ------
        NotSupported
            If the host drives a loop in it, or nothing was recorded.
        TaskStateError
            If it was reset.
        """
    @property
    def exec_graph(self) -> int:
        """The raw ``CUgraphExec``, under the same conditions.

        Raises
        ------
        NotSupported
            If the host drives a loop in it, or nothing was recorded.
        TaskStateError
            If it was reset.
        """
    @property
    def stream(self) -> int:
        """The raw stream of its last launch, or one that it may be launched on.

        Raises
        ------
        TaskStateError
            If it was reset.
        """

    def describe(
        self,
    ) -> tuple[
        list[tuple[int, int, str, str]], list[tuple[int, int, int, str, str, str]], list[tuple[int, int]]
    ]:
        """Return what was recorded, for `stf_places.viz`: groups, nodes and edges.

        Returns
        -------
        groups : list of (parent, part, kind, label)
            Graphs and bodies of loops; `parent` is a group or -1, parts of one loop or graph run one after the other.
        nodes : list of (id, group, body, kind, label, place)
            `kind` is ``"task"``, ``"copy"``, ``"host"``, ``"loop"`` or ``"empty"``; `body` is the group of a loop's body or
            -1.
        edges : list of (id, id)
            What comes before what.

        Raises
        ------
        TaskStateError
            If it was reset.
        """

@final
class launchable_graph_scope(LaunchableGraph):
    """Record a graph and launch it inside its scope; made by `stackable_context.launchable_graph_scope`."""

    def __enter__(self: _Self) -> _Self:
        """Begin to record.

        Raises
        ------
        NotSupported
            Inside another scope.
        TaskStateError
            If it was entered before, or a task is open.
        """
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Give the graph up, as `reset` does."""

class stackable_context(context):
    """Own a flow of tasks in which scopes nest: graphs, loops, and graphs that are launched many times.

    Parameters
    ----------
    handle : async_resources, optional
        Streams and executables to share with other contexts.

    Raises
    ------
    TypeError
        If `handle` is something else.

    Notes
    -----
    At the root, tasks run on streams. Within a scope they are recorded, and run as one operation when the outermost
    scope ends: what they touch decides what it waits for and what waits for it. Data of the context are used in scopes
    like anywhere else. Data made in a scope belong to the context too, unless made with ``no_export=True``: these live
    in the recording that made them. Nothing in a scope can be waited for: `wait`, `fence` and the body of a task on
    the host belong outside; `host_launch` is recorded. On a simulated machine the work of a recorded task is what
    `task.run` and the launches of `stf_places.interop` record.

    A scope inside another is a part of its graph. A loop becomes one node of it where the device can drive it: with
    CUDA 12.4 or later, when all its work is on one place, without copies between devices or with the host and without
    `host_launch`. Elsewhere the host goes round, with the body as a graph of its own; `while_loop.on_device` tells.

    Sources: CUDA Programming Guide, "CUDA Graphs" and "Conditional Graph Nodes".

    Examples
    --------
    >>> import numpy as np
    >>> import stf_places as stf
    >>> def halve(values, rounds):
    ...     values *= 0.5
    ...     rounds += 1
    >>> place = stf.exec_place.device(0)
    >>> with stf.use_machine("sim:h200x2"), stf.stackable_context() as ctx:
    ...     x = ctx.logical_data_full(1, 1.0)
    ...     rounds = ctx.logical_data_zeros(1, np.int32)
    ...     with ctx.while_loop() as loop:
    ...         with ctx.task(place, x.rw(), rounds.rw()) as t:
    ...             t.run(halve, *t.args_cai())
    ...         loop.continue_while((x > 0.001) & (rounds < 100))
    ...     print(ctx.wait(x), ctx.wait(rounds), loop.on_device)
    [0.00097656] [10] True
    """

    def __init__(self, *, handle: async_resources | None = None) -> None: ...
    def graph_scope(self) -> graph_scope:
        """Return a scope, for ``with``, whose tasks run as one graph at its end.

        Inside another scope they become a part of that one.

        Raises
        ------
        ContextClosed
            If the context was finalized.
        """
    def while_loop(self) -> while_loop:
        """Return a scope, for ``with``, that goes round while a condition holds, at least once.

        Raises
        ------
        ContextClosed
            If the context was finalized.

        Notes
        -----
        Leaving it raises TaskStateError when `while_loop.continue_while` was not called.
        """
    def repeat(self, count: SupportsIndex) -> repeat:
        """Return a scope, for ``with``, that goes round a number of times.

        Parameters
        ----------
        count : int
            Rounds, 0 or more.

        Raises
        ------
        ValueError, TypeError
            If it is no such number.
        ContextClosed
            If the context was finalized.
        """
    def launchable_graph_scope(self) -> launchable_graph_scope:
        """Return a scope, for ``with``, that records a graph and launches it when told to.

        The first `LaunchableGraph.launch` (or look at its handles) ends the recording. A graph that is never launched
        does not run.

        Raises
        ------
        ContextClosed
            If the context was finalized.

        Examples
        --------
        >>> import numpy as np
        >>> import stf_places as stf
        >>> def add(values):
        ...     values += 1
        >>> with stf.use_machine("sim:h200x2"), stf.stackable_context() as ctx:
        ...     x = ctx.logical_data_zeros(3)
        ...     with ctx.launchable_graph_scope() as graph:
        ...         with ctx.task(stf.exec_place.device(0), x.rw()) as t:
        ...             t.run(add, t.get_arg_cai(0))
        ...         for _ in range(5):
        ...             graph.launch()
        ...     print(ctx.wait(x))
        [5. 5. 5.]
        """
    def push(self) -> None:
        """Begin a scope that `pop` or `pop_prologue_shared` ends.

        Raises
        ------
        TaskStateError
            If a task is open.
        ContextClosed
            If the context was finalized.
        """
    def pop(self) -> None:
        """End what `push` began, as a graph scope.

        Raises
        ------
        TaskStateError
            If the innermost scope was not begun by `push`, or a task is open.
        """
    def discard(self) -> None:
        """End what `push` began, and forget what it recorded: none of it has run.

        Raises
        ------
        TaskStateError
            If the innermost scope was not begun by `push`.
        """
    def pop_prologue_shared(self) -> LaunchableGraph:
        """End what `push` began, and return it as a graph to launch; nothing runs before that.

        Raises
        ------
        TaskStateError
            If the innermost scope was not begun by `push`, or a task is open.
        NotSupported
            If `push` was called inside another scope.
        """
    def finalize(self) -> None:
        """Write values back, wait and release.

        Raises
        ------
        TaskStateError
            If a scope is open, or a graph of `pop_prologue_shared` was not reset.
        """

def start_task_graph() -> stackable_context:
    """Return a context whose tasks belong into scopes."""

def begin_task_graph(owner: context) -> Level:
    """Begin to record a task graph."""

def end_task_graph(level: Level, whole: bool) -> LaunchableGraph | None:
    """End the recording of a task graph, or discard it with all that is open inside."""
