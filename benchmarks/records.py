"""What a benchmark reports: one record a case, written as a JSON list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from statistics import median

from benchmarks.environment import Environment

__all__ = ["Baseline", "Missing", "Record", "Spread"]


@dataclass(frozen=True)
class Spread:
    """Hold the repeats of one measurement.

    Parameters
    ----------
    values : tuple of float
        One value a repeat, in the order of the repeats; at least one.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the repeats."""
        return median(self.values)

    def to_json(self) -> dict[str, float]:
        """Return minimum, maximum and number of the repeats."""
        return {"min": min(self.values), "max": max(self.values), "repeats": len(self.values)}


@dataclass(frozen=True)
class Baseline:
    """Name another system and what it measured in the same run, in the record's unit unless it has its own.

    Parameters
    ----------
    name : str
        The system and what it did.
    spread : Spread
        Its repeats.
    unit : str, optional
        Where it differs from the record's.
    """

    name: str
    spread: Spread
    unit: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the baseline as it stands in the file."""
        result: dict[str, object] = {"name": self.name, "value": self.spread.median}
        if self.unit is not None:
            result["unit"] = self.unit
        result["spread"] = self.spread.to_json()
        return result


@dataclass(frozen=True)
class Missing:
    """Name a baseline that this run could not measure, and the reason."""

    name: str
    reason: str

    def to_json(self) -> dict[str, object]:
        """Return the reason as it stands in the file."""
        return {"name": self.name, "reason": self.reason}


@dataclass(frozen=True)
class Record:
    """Hold the result of one case of a workload.

    Parameters
    ----------
    name : str
        The workload.
    case : str
        The case in it.
    spread : Spread
        The repeats; their median is the record's value.
    unit : str
        Unit of the value, such as ``"us/task"``.
    environment : Environment
        Where it was measured.
    baselines : sequence of Baseline or Missing, optional
        Other systems, measured in the same run.
    extra : dict, optional
        Further fields of the record, such as the counts that were checked.
    """

    name: str
    case: str
    spread: Spread
    unit: str
    environment: Environment
    baselines: Sequence[Baseline | Missing] = ()
    extra: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the record as it stands in the file."""
        measured = [each.to_json() for each in self.baselines if isinstance(each, Baseline)]
        missing = [each.to_json() for each in self.baselines if isinstance(each, Missing)]
        return {
            "name": self.name,
            "case": self.case,
            "value": self.spread.median,
            "unit": self.unit,
            "spread": self.spread.to_json(),
            "baselines": measured,
            "baselines_not_measured": missing,
            **self.environment.to_json(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **self.extra,
        }
