"""The same task flows on the peer, ``cuda.stf._experimental``, where it is installed."""

from __future__ import annotations

import importlib
import time
from typing import Any

from benchmarks.task_overhead.ours import WARM_UP, WrongResult, arrays, require_unchanged
from benchmarks.task_overhead.programs import Program
from benchmarks.timing import collector_off

__all__ = ["NAME", "load", "measure"]

NAME = "cuda.stf._experimental"


def load() -> Any | None:
    """Import the peer; None where it is not installed or does not load."""
    try:
        return importlib.import_module(NAME)
    except (ImportError, OSError, RuntimeError):
        return None


def measure(peer: Any, program: Program, tasks: int) -> float:
    """Submit a flow once, in a context of its own.

    Parameters
    ----------
    peer : module
        From `load`.
    program : Program
        The flow.
    tasks : int
        Tasks in the timed part.

    Returns
    -------
    float
        Microseconds a task.

    Raises
    ------
    WrongResult
        If a value at the end is wrong.
    """
    buffers = arrays(program.buffers)
    with peer.context() as context:
        data = [context.logical_data(buffer) for buffer in buffers]
        data += [context.token() for _ in range(program.tokens)]
        program.submit(context, data, WARM_UP)
        with collector_off():
            start = time.perf_counter()
            program.submit(context, data, tasks)
            seconds = time.perf_counter() - start
    try:
        require_unchanged(buffers)
    except WrongResult as error:
        raise WrongResult(f"{NAME}: {error}") from error
    return seconds * 1e6 / tasks
