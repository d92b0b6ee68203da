"""One loop, driven by the device and by the host: a kernel that counts the rounds, until there were enough."""

from __future__ import annotations

from typing import Any

import numpy as np

import stf_places as stf
from benchmarks.graphs.ours import Wait
from benchmarks.graphs.programs import WrongResult, count
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["DeviceLoop", "HostLoop", "Loop", "LoopOnHost", "RepeatedLaunches", "RepeatedLoop"]


class Loop:
    """A context with a number of rounds, and a graph of it.

    Parameters
    ----------
    kernel : cuda.core.Kernel or None
        Counts a round; None on a simulated machine.
    rounds : int
        How often the loop goes round.
    wait : callable
        Waits for a stream.
    """

    def __init__(self, kernel: Any | None, rounds: int, wait: Wait) -> None:
        self._kernel = kernel
        self._wait = wait
        self._place = stf.exec_place.device(0)
        self.rounds = rounds
        self.loop: Any = None
        self.ctx = stf.stackable_context()
        self.counted = self.ctx.logical_data_zeros(1, np.int32)
        self.ctx.push()
        try:
            self._record()
        except BaseException:
            self.ctx.discard()
            self.ctx.finalize()
            raise
        self.graph = self.ctx.pop_prologue_shared()

    def measure(self) -> float:
        """Go round; return the microseconds of an iteration.

        Raises
        ------
        WrongResult
            If there were more rounds, or fewer.
        """
        with collector_off():
            duration = self._go_round()
        found = self._rounds_so_far()
        if found != self.rounds:
            raise WrongResult(f"{type(self).__name__}: {found} rounds, and {self.rounds} were asked for")
        return duration / self.rounds

    def close(self) -> None:
        """End the context."""
        self.graph.reset()
        self.ctx.finalize()

    def _rounds_so_far(self) -> int:
        """Wait for the number of rounds and return it."""
        found = self.ctx.wait(self.counted)
        assert found is not None  # which only tokens give
        return int(found[0])

    def _record(self) -> None:
        """Record the graph."""
        raise NotImplementedError

    def _go_round(self) -> float:
        """Return the microseconds of all rounds."""
        begin = wall_us()
        self.graph.launch()
        self._wait(self.graph.stream)
        return wall_us() - begin

    def _task(self, keep: int) -> None:
        """Submit the task that counts a round, or that begins with 0."""
        dependency = self.counted.rw() if keep else self.counted.write()
        if self._kernel is None:
            with self.ctx.task(self._place, dependency) as t:
                t.run(count, t.get_arg_cai(0), keep)
        else:
            with self.ctx.cuda_kernel(self._place, dependency) as t:
                t.launch(self._kernel, 1, 1, [self.counted, np.int32(keep)])


class DeviceLoop(Loop):
    """A while loop that the device drives."""

    def _record(self) -> None:
        self._task(0)
        with self.ctx.while_loop() as self.loop:
            self._body()
            self.loop.continue_while(self.counted < self.rounds)

    def _body(self) -> None:
        self._task(1)


class LoopOnHost(DeviceLoop):
    """A while loop that the library drives on the host, since its body has a task without work on another place."""

    def _body(self) -> None:
        (other,) = stf.green_places(8, 1)
        self._task(1)
        with self.ctx.task(other, self.ctx.token().rw()):
            pass


class RepeatedLoop(Loop):
    """A loop of a fixed number of rounds."""

    def _record(self) -> None:
        self._task(0)
        with self.ctx.repeat(self.rounds) as self.loop:
            self._task(1)


class RepeatedLaunches(Loop):
    """The loop's body as a graph, launched once a round."""

    def _record(self) -> None:
        self._task(1)

    def _begin(self) -> None:
        self._task(0)
        self.ctx.wait(self.counted)

    def _go_round(self) -> float:
        self._begin()
        begin = wall_us()
        for _ in range(self.rounds):
            self.graph.launch()
        self._wait(self.graph.stream)
        return wall_us() - begin


class HostLoop(RepeatedLaunches):
    """The loop's body as a graph, launched once a round, and the value fetched each time."""

    def _go_round(self) -> float:
        self._begin()
        begin = wall_us()
        for _ in range(self.rounds):  # as many at most
            self.graph.launch()
            if self._rounds_so_far() >= self.rounds:
                break
        return wall_us() - begin
