"""The two kernels, and the ways to keep the urgent one fast."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = [
    "BULK_BLOCK_US",
    "BULK_REPEATS",
    "BULK_WAVES",
    "URGENT_SMS",
    "URGENT_US",
    "WARM_UP",
    "WAYS",
    "Samples",
    "WrongResult",
    "percentile",
    "require_counts",
]

#: The urgent kernel: one block.
URGENT_US = 28.0
#: The bulk kernel: on the whole device as many rounds of blocks of this duration.
BULK_WAVES = 11
BULK_BLOCK_US = 100.0
#: SMs of the urgent kernel's partition.
URGENT_SMS = 8
#: Urgent kernels before the first that counts, and bulk kernels timed alone, both in each repeat.
WARM_UP = 3
BULK_REPEATS = 5

#: Plain streams; the urgent kernel on a stream of the highest priority; it on a partition, the bulk on the rest.
WAYS = ("plain_streams", "highest_priority", "own_partition")


class WrongResult(Exception):
    """Report kernels that did not count their blocks."""


@dataclass
class Samples:
    """Hold what the repeats of a way gave, in microseconds of one clock; the first of them warmed up."""

    repeats: list[tuple[list[float], list[float]]] = field(default_factory=list)

    def add(self, urgent: list[float], bulk: list[float]) -> float:
        """Add a repeat: its urgent kernels, and bulk kernels alone; return the p50 of those that count."""
        self.repeats.append((urgent[WARM_UP:], bulk))
        return percentile(urgent[WARM_UP:], 50)

    @property
    def urgent(self) -> list[float]:
        """All urgent kernels that count."""
        return [us for urgent, _ in self.repeats[1:] for us in urgent]

    @property
    def bulk(self) -> list[float]:
        """All bulk kernels that ran alone."""
        return [us for _, bulk in self.repeats[1:] for us in bulk]

    def to_json(self, whose: str) -> dict[str, object]:
        """Return the figures beside the value of a record."""
        return {
            f"{whose}_p50_us": percentile(self.urgent, 50),
            f"{whose}_p99_us": percentile(self.urgent, 99),
            f"{whose}_max_us": max(self.urgent),
            f"{whose}_bulk_alone_ms": percentile(self.bulk, 50) / 1e3,
        }


def percentile(values: list[float], which: float) -> float:
    """Return a percentile."""
    return float(np.percentile(values, which))


def require_counts(
    what: str, urgent: npt.NDArray[np.int32], bulk: npt.NDArray[np.int32], probes: int
) -> None:
    """Check that each block ran once for each launch of a repeat.

    Raises
    ------
    WrongResult
        If one ran too often or too rarely.
    """
    rounds = WARM_UP + probes
    if (urgent != rounds).any() or (bulk != rounds + BULK_REPEATS).any():
        raise WrongResult(f"{what}: not every block ran once a launch")
