"""The same loops over objects that do nothing: what Python itself takes of each case."""

from __future__ import annotations

import time
from types import TracebackType

from benchmarks.task_overhead.programs import Program
from benchmarks.timing import collector_off

__all__ = ["NAME", "measure"]

NAME = "bare Python objects, nothing done"


class EmptyTask:
    """A task that does nothing."""

    __slots__ = ()

    def __enter__(self) -> EmptyTask:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def stream_ptr(self) -> int:
        return 0

    def get_arg(self, index: int) -> int:
        return index


TASK = EmptyTask()


class EmptyData:
    """Data that are their own dependency."""

    __slots__ = ()

    def read(self) -> EmptyData:
        return self

    def rw(self) -> EmptyData:
        return self


class EmptyContext:
    """A context whose tasks do nothing."""

    __slots__ = ()

    def task(self, *dependencies: EmptyData) -> EmptyTask:
        return TASK


def measure(program: Program, tasks: int) -> float:
    """Return the microseconds a task of a flow over such objects."""
    data = [EmptyData() for _ in range(program.buffers + program.tokens)]
    context = EmptyContext()
    with collector_off():
        start = time.perf_counter()
        program.submit(context, data, tasks)
        return (time.perf_counter() - start) * 1e6 / tasks
