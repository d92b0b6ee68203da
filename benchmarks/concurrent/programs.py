"""The cases: how many kernels, and in which way they run."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCKS", "BLOCK_US", "CASES", "Case", "WrongResult"]

#: Each kernel: as many blocks as its partition has SMs, each of this many microseconds.
BLOCKS = 8
BLOCK_US = 1000.0
STREAMS = 8


class WrongResult(Exception):
    """Report kernels that did not count their blocks."""


@dataclass(frozen=True)
class Case:
    """Describe a case: ``lanes`` streams that kernels take in turn, each on a partition of its own or on the device."""

    kernels: int
    lanes: int
    partitioned: bool

    @property
    def name(self) -> str:
        """The case's name in records."""
        kind = "partition" if self.partitioned else "stream"
        return f"{self.kernels}_kernels_{self.lanes}_{kind}{'s' if self.lanes > 1 else ''}"


CASES = tuple(
    Case(kernels, lanes, partitioned)
    for kernels in (8, 15)
    for lanes, partitioned in ((1, False), (STREAMS, False), (kernels, True))
)
