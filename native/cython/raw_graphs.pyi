"""The part of the driver seam that records and launches graphs, as functions of a `DriverHandle`.

The core calls the C++ seam itself. These functions are for tests that run one body on every driver.

A stream that takes part in a capture records what is enqueued on it (`DriverHandle.copy`, `DriverHandle.fill`,
`DriverHandle.host_work`, `record_host_function`). Nothing can be asked of it, waited for or allocated on it
meanwhile. No function holds the GIL during a driver call. A failed call raises what
`stf_places._native.errors` says for its code; a handle that does not exist is a `DriverError`.
"""

from collections.abc import Callable, Iterable, Sequence

from stf_places._native.drivers import DriverHandle

def create_graph(handle: DriverHandle) -> int:
    """Make an empty graph.

    Raises
    ------
    NotSupported
        If the driver cannot capture into a graph, naming CUDA 12.3.
    """

def destroy_graph(handle: DriverHandle, graph: int) -> None:
    """Give a graph back; its executables stay usable.

    Raises
    ------
    DriverError
        If it is still being recorded.
    """

def begin_capture(handle: DriverHandle, graph: int, origin: int) -> None:
    """Open a capture into a graph; the next node on the stream `origin` depends on nothing.

    Raises
    ------
    DriverError
        If the stream records already, or the graph is being recorded.
    """

def join_capture(handle: DriverHandle, origin: int, stream: int) -> None:
    """Let a stream take part in the capture of `origin`; the next node on it depends on nothing.

    Raises
    ------
    DriverError
        If `origin` records nothing, or the stream records already.
    """

def set_capture_dependencies(handle: DriverHandle, stream: int, nodes: Iterable[int]) -> None:
    """Say what the next node on a stream depends on.

    Raises
    ------
    DriverError
        If the stream records nothing, or a node is not one of its graph.
    """

def capture_dependencies(handle: DriverHandle, stream: int) -> list[int]:
    """Return what the next node on a stream depends on: what was set, or the last node on it.

    Raises
    ------
    DriverError
        If the stream records nothing.
    """

def add_empty_node(handle: DriverHandle, graph: int, after: Iterable[int]) -> int:
    """Add a node that does nothing behind others, and return it.

    Raises
    ------
    DriverError
        If a node is not one of this graph.
    """

def end_capture(handle: DriverHandle, origin: int, joined: Iterable[int]) -> None:
    """End a capture for its origin and the streams that joined it, also where it fails.

    Raises
    ------
    DriverError
        If the stream records nothing, or the streams are not those that took part.
    """

def add_graph_node(handle: DriverHandle, graph: int, after: Iterable[int], child: int) -> int:
    """Add all of another graph as one node behind others, and return it; the other graph stays its owner's.

    Raises
    ------
    DriverError
        If a node is not one of this graph, or the other graph is being recorded, has loops, or (where this one is
        the body of a loop) has nodes that a body cannot hold.
    """

def create_condition(handle: DriverHandle, graph: int, context: int) -> int:
    """Make the condition of a loop that will be a node of a graph; it is true at each launch until it is set.

    Raises
    ------
    NotSupported
        If the driver has no loops in graphs, naming CUDA 12.4.
    """

def add_loop_node(
    handle: DriverHandle, graph: int, after: Iterable[int], condition: int, context: int
) -> tuple[int, int]:
    """Add a loop behind others.

    Returns
    -------
    node : int
    body : int
        The graph that is run as long as the condition is true, asked before each round. Nodes are added to it; it
        belongs to the graph of the loop.

    Raises
    ------
    DriverError
        If a node is not one of this graph, or the condition is of another graph, context or loop.
    NotSupported
        If the driver has no loops in graphs, naming CUDA 12.4.
    """

def add_condition_node(
    handle: DriverHandle,
    graph: int,
    after: Iterable[int],
    condition: int,
    context: int,
    terms: Sequence[tuple[int, str, str, float, bool]] = (),
    *,
    any_of: bool = False,
    counter: int = 0,
    count: int = 0,
    kernel: int = 0,
) -> int:
    """Add a node that sets a condition, behind others.

    Parameters
    ----------
    terms : sequence of (address, type, comparison, threshold, negated)
        At most 8, all of which have to hold. Types are float32, float64, int32 and int64, comparisons ``<``, ``<=``,
        ``>`` and ``>=``. Without terms and counter the condition is set to true.
    any_of : bool
        Whether one of the terms is enough.
    counter, count : int
        Instead of terms: the address of a number of 64 bits that is 0 before the loop, and how many rounds there are.
    kernel : int
        The ``CUkernel`` that sets conditions; a simulated machine needs none.

    Raises
    ------
    DriverError
        If a node is not one of this graph, the condition is not of this graph or of the loop whose body it is, or
        there are too many terms, or terms and a counter.
    """

def graph_nodes(handle: DriverHandle, graph: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the nodes of a graph as they were added, and its edges from one node to a later one."""

def instantiate_graph(handle: DriverHandle, graph: int) -> int:
    """Make an executable of a graph.

    Raises
    ------
    DriverError
        If the graph is still being recorded, or its capture failed.
    """

def update_graph_exec(handle: DriverHandle, exec_: int, graph: int) -> bool:
    """Make an executable do what a graph with the same nodes and edges does.

    Returns
    -------
    bool
        False where that cannot be done; the executable is as before then.

    Raises
    ------
    DriverError
        If the graph is still being recorded, or its capture failed.
    """

def launch_graph(handle: DriverHandle, exec_: int, stream: int) -> None:
    """Run all nodes of an executable behind what precedes on a stream, and before what follows.

    Launches of one executable run one after the other.

    Raises
    ------
    DriverError
        If the stream records a graph; on a simulated machine also if memory of a node was freed, naming it.
    """

def destroy_graph_exec(handle: DriverHandle, exec_: int) -> None:
    """Give an executable back, whose launches have been waited for.

    Raises
    ------
    DriverError
        On a simulated machine, if a launch is still at work.
    """

def record_host_function(handle: DriverHandle, stream: int, function: Callable[[], object]) -> None:
    """Enqueue a function that may run any number of times, at each launch of what records it.

    Unlike with `DriverHandle.host_function`, no reference is held: the caller keeps the function as long as the
    graph and its executables.
    """

def live_graphs(handle: DriverHandle) -> int:
    """Return how many graphs and executables there are; simulated machines only.

    Raises
    ------
    NotSupported
        On a real driver.
    """
