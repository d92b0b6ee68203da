"""Timelines of traced contexts: how long a place was busy, and a file that Perfetto and Chrome open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, Protocol

__all__ = ["TraceEntry", "busy_us", "save_perfetto"]


class TraceEntry(Protocol):
    """What `context.trace` holds: one task or one copy, with its times in microseconds."""

    @property
    def kind(self) -> str:
        """``"task"`` or ``"copy"``."""

    @property
    def symbol(self) -> str:
        """The task's name, or the name of the copied data."""

    @property
    def place(self) -> str:
        """``"device(0)"``, ``"host()"``; of copies ``"host() -> device(0)"``."""

    @property
    def device(self) -> int:
        """The device's ordinal, -1 for the host."""

    @property
    def stream(self) -> int:
        """Index of the stream within its context."""

    @property
    def start_us(self) -> float:
        """When it began."""

    @property
    def end_us(self) -> float:
        """When it was complete."""

    @property
    def nbytes(self) -> int:
        """Bytes moved."""


def busy_us(records: Iterable[TraceEntry], place: str | None = None, kind: str = "task") -> float:
    """Return how long at least one record of a place was running.

    Parameters
    ----------
    records : iterable of TraceEntry
        What ``context.trace`` returned.
    place : str, optional
        A place as the records name it, such as ``"device(0)"``. None: all of them.
    kind : str
        ``"task"`` or ``"copy"``.

    Returns
    -------
    float
        Length of the union of the intervals, in microseconds: what overlaps counts once.
    """
    spans = sorted(
        (record.start_us, record.end_us)
        for record in records
        if record.kind == kind and (place is None or record.place == place)
    )
    total = 0.0
    reached = float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def save_perfetto(
    records: Iterable[TraceEntry], path: str | os.PathLike[str], *, simulated: bool | None = None
) -> None:
    """Write records as trace events in JSON, which ui.perfetto.dev and chrome://tracing open.

    Parameters
    ----------
    records : iterable of TraceEntry
        What ``context.trace`` returned.
    path : str or path-like
        The file; overwritten.
    simulated : bool, optional
        Whether the times are those of a simulated machine. None: asked of the machine in use.

    Raises
    ------
    OSError
        If the file cannot be written.

    Notes
    -----
    A device is a process and a stream a thread. The names of the devices and the file's metadata say whether
    the times are measured or simulated.
    """
    if simulated is None:
        from stf_places.machines import machine

        simulated = machine().simulated
    kept = list(records)
    document = {
        "traceEvents": _names(kept, simulated) + [_event(record) for record in kept],
        "displayTimeUnit": "ms",
        "metadata": {
            "version": 1,
            "producer": "stf_places",
            "times": "simulated" if simulated else "measured",
        },
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))


def _process(device: int) -> int:
    """Return the process number of a device; the host is 0."""
    return device + 1


def _names(records: list[TraceEntry], simulated: bool) -> list[dict[str, Any]]:
    """Return the metadata events that name devices and streams."""
    nature = "simulated" if simulated else "measured"
    events = []
    for device in sorted({record.device for record in records}):
        label = "host" if device < 0 else f"device {device}"
        events.append(_name("process_name", _process(device), 0, f"{label} ({nature})"))
    for device, stream in sorted({(record.device, record.stream) for record in records}):
        events.append(_name("thread_name", _process(device), stream, f"stream {stream}"))
    return events


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _event(record: TraceEntry) -> dict[str, Any]:
    """Return the complete event ("X") of one record."""
    return {
        "ph": "X",
        "name": record.symbol or record.kind,
        "cat": record.kind,
        "pid": _process(record.device),
        "tid": record.stream,
        "ts": record.start_us,
        "dur": record.end_us - record.start_us,
        "args": {"place": record.place, "nbytes": record.nbytes},
    }
