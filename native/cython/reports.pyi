"""What a context counted and traced, as Python values."""

from typing import Literal, NamedTuple

class PlaceStatistics(NamedTuple):
    """Count the work and the traffic of one place."""

    place: str
    tasks: int
    """Tasks that ran there."""
    bytes_in: int
    """Bytes copied to its memory."""
    bytes_out: int
    """Bytes copied from its memory."""

class ContextStatistics(NamedTuple):
    """Count what a context has asked of the driver so far."""

    tasks: int
    events_recorded: int
    waits: int
    """Waits of one stream for another that were put on a stream."""
    waits_skipped: int
    """Waits that were known to be unnecessary."""
    copies: int
    bytes_copied: int
    allocations: int
    """Blocks that the driver was asked for."""
    reused_blocks: int
    """Blocks that the context had freed before and used again."""
    evictions: int
    """Instances that gave way to others because a place was full."""
    graphs_launched: int
    """Graphs that a graph context launched."""
    graphs_instantiated: int
    """Of these, those that no executable of an earlier one could be made to fit."""
    places: tuple[PlaceStatistics, ...]
    """By place, sorted by name."""

class TraceRecord(NamedTuple):
    """Tell when a task or a copy ran. On a simulated machine the times are the model's."""

    kind: Literal["task", "copy"]
    symbol: str
    """The task's symbol, or the data's name."""
    place: str
    """Where; for copies from where to where."""
    device: int
    """Ordinal, -1 for none."""
    stream: int
    """Number of the stream within the context."""
    start_us: float
    """Microseconds since the context began to trace that device."""
    end_us: float
    nbytes: int
    """Bytes copied, 0 for tasks."""
