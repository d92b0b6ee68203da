"""The same graph by the driver's own calls, timed in C++ by raw_driver.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stf_places as stf
from benchmarks.compiled_cpp import Unavailable, load_library
from benchmarks.environment import current_driver
from benchmarks.graphs.programs import WARM_UP, expected, first_values, require_equal

__all__ = ["NAME", "RawDriver", "RawGraph", "RawReplay", "RawTimes", "Unavailable"]

SOURCE = Path(__file__).with_name("raw_driver.cpp")
NAME = "raw driver, C++"


@dataclass(frozen=True)
class RawTimes:
    """Hold what a recording took: microseconds a task, and milliseconds of the rest."""

    us_per_task: float
    end_ms: float
    instantiate_ms: float
    launch_ms: float


class RawDriver:
    """The C++ part, and the kernel that its graphs launch.

    Raises
    ------
    Unavailable
        If there is no compiler, or it fails.
    """

    def __init__(self, kernel: Any) -> None:
        library = load_library(SOURCE)
        handle, address, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
        handles, times = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_double)
        self._calls = library
        library.raw_graphs_record.argtypes = [
            handle,
            handles,
            number,
            address,
            number,
            number,
            handles,
            handles,
            times,
        ]
        library.raw_graphs_launch.argtypes = [handle, handle, number, times]
        library.raw_graphs_close.argtypes = [handle, handle]
        library.raw_graphs_wait.argtypes = [handle]
        library.raw_graphs_launch_kernel.argtypes = [handle, handle, address, address]
        self.kernel = int(kernel.handle)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the C++ part.

        Raises
        ------
        Unavailable
            If an entry point of the driver is missing, or one fails.
        """
        status = getattr(self._calls, f"raw_graphs_{name}")(*arguments)
        if status < 0:
            raise Unavailable("libcuda.so.1 or one of its entry points is missing")
        if status != 0:
            raise Unavailable(f"a raw driver call of {name} failed with status {status}")

    def try_out(self, partitions: Sequence[stf.exec_place] = ()) -> None:
        """Record a short graph, run it and check it.

        Raises
        ------
        Unavailable
            If the driver refuses.
        """
        graph = RawGraph(self, WARM_UP, partitions)
        try:
            graph.record()
        finally:
            graph.close()

    def wait(self, stream: int) -> None:
        """Wait for a stream, asking again and again, as all systems here do."""
        self.call("wait", stream)

    def launch_kernel(self, stream: int, target: int, source: int) -> None:
        """Launch the kernel of a task."""
        self.call("launch_kernel", self.kernel, stream, target, source)


class RawGraph:
    """Record, launch and check the flow on arrays and streams of its own.

    Parameters
    ----------
    raw : RawDriver
        The C++ part.
    tasks : int
        Tasks of the graph.
    partitions : sequence of exec_place, optional
        A stream on each; without them one stream of the first device has all tasks.
    implied_edges : bool
        Whether a task also follows the one two levels before it that wrote its array, as others imply.
    """

    def __init__(
        self,
        raw: RawDriver,
        tasks: int,
        partitions: Sequence[stf.exec_place] = (),
        implied_edges: bool = False,
    ) -> None:
        self._raw = raw
        self._implied_edges = implied_edges
        self._tasks = tasks
        self._driver = current_driver()
        self._partitions = list(partitions)  # kept as long as their streams
        contexts = [self._driver.primary_context(0)]
        contexts += [each.backing_context.handle for each in self._partitions]
        self._streams = [self._driver.create_stream(context) for context in contexts]
        self._memory = self._driver.allocate_device(0, first_values().nbytes, self._streams[0])
        self._graph, self._exec = ctypes.c_void_p(), ctypes.c_void_p()
        self._runs = 0
        self.submit_us: list[float] = []

    def record(self) -> RawTimes:
        """Record and instantiate once, launch, check the values, and forget it; return what it took."""
        times = self._record()
        launch_us, _ = self._launch(1)
        self.check()
        self._forget()
        tasks = self._tasks
        return RawTimes(times[0] / tasks, times[1] / 1e3, times[2] / 1e3, launch_us / 1e3)

    def make_ready(self) -> tuple[float, float, float]:
        """Record and instantiate once; return the microseconds of recording, of its end and of instantiating."""
        return self._record()

    def launch(self) -> float:
        """Launch twice; return the microseconds until the second is done. `submit_us` gets those of its call."""
        self._launch(1)
        submit, done = self._launch(1)
        self.submit_us.append(submit)
        return done

    def launch_many(self, launches: int) -> float:
        """Launch many times; return the microseconds of one until all are done."""
        return self._launch(launches)[1] / launches

    def check(self) -> None:
        """Compare the arrays with NumPy's.

        Raises
        ------
        WrongResult
            If they differ.
        """
        found = np.empty_like(first_values())
        self._driver.copy(found.ctypes.data, "host", self._memory, 0, found.nbytes, self._streams[0])
        self._driver.synchronize_stream(self._streams[0])
        require_equal(NAME, found, expected(*[self._tasks] * self._runs))

    def nodes(self) -> tuple[int, int]:
        """Return the numbers of nodes and edges."""
        from stf_places._native import raw_graphs

        nodes, edges = raw_graphs.graph_nodes(self._driver, self._graph.value or 0)
        return len(nodes), len(edges)

    def close(self) -> None:
        """Give everything back."""
        self._driver.synchronize_stream(self._streams[0])
        self._forget()
        self._driver.free_device(0, self._memory, self._streams[0])
        for stream in self._streams:
            self._driver.synchronize_stream(stream)
            self._driver.destroy_stream(stream)

    def _record(self) -> tuple[float, float, float]:
        self._forget()
        values = first_values()
        self._driver.copy(self._memory, 0, values.ctypes.data, "host", values.nbytes, self._streams[0])
        self._driver.synchronize_stream(self._streams[0])
        self._runs = 0
        streams = (ctypes.c_void_p * len(self._streams))(*self._streams)
        times = (ctypes.c_double * 3)()
        self._raw.call(
            "record",
            self._raw.kernel,
            streams,
            len(self._streams),
            self._memory,
            self._tasks,
            self._implied_edges,
            self._graph,
            self._exec,
            times,
        )
        return times[0], times[1], times[2]

    def _launch(self, launches: int) -> tuple[float, float]:
        times = (ctypes.c_double * 2)()
        self._raw.call("launch", self._exec, self._streams[0], launches, times)
        self._runs += launches
        return times[0], times[1]

    def _forget(self) -> None:
        graph, self._graph = self._graph, ctypes.c_void_p()
        made, self._exec = self._exec, ctypes.c_void_p()
        self._raw.call("close", graph, made)


class RawReplay:
    """Record the graph and launch it; `launch_us` and `done_us` get the microseconds of each launch."""

    def __init__(self, raw: RawDriver, tasks: int, launches: int) -> None:
        self._graph = RawGraph(raw, tasks)
        self._tasks = tasks
        self._launches = launches
        self.launch_us = self._graph.submit_us
        self.done_us: list[float] = []

    def record(self) -> float:
        """Do everything once; return the microseconds of recording and instantiating for each task."""
        recorded = sum(self._graph.make_ready())
        self._graph.launch()
        self.launch_us.pop()  # the first warms up, as with the others
        for _ in range(self._launches):
            self.done_us.append(self._graph.launch())
        self._graph.check()
        return recorded / self._tasks

    def close(self) -> None:
        """Give everything back."""
        self._graph.close()
