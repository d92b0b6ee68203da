"""A picture of the speed-ups: one panel a kind of places, one line a system and scaling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.records import Baseline, Record

__all__ = ["save"]

Line = list[tuple[int, float]]


def lines_of(records: list[Record]) -> dict[str, Line]:
    """Return places and speed-up of each system and scaling; a baseline's against its own time on one place."""
    lines: dict[str, Line] = {}
    times: dict[str, Line] = {}
    for record in records:
        places, scaling = int(str(record.extra["places"])), str(record.extra["scaling"])
        speed_up = record.extra.get("speed_up", record.extra.get("simulated_speed_up"))
        if speed_up is not None:
            lines.setdefault(f"{scaling}: stf_places", []).append((places, float(str(speed_up))))
        for baseline in record.baselines:
            if isinstance(baseline, Baseline) and "one whole device" not in baseline.name:
                name = f"{scaling}: {baseline.name.partition(':')[0]}"
                times.setdefault(name, []).append((places, baseline.spread.median))
    for name, found in times.items():
        weak = name.startswith("weak")
        first = found[0][1]
        lines[name] = [(places, first / time * (places if weak else 1)) for places, time in found]
    return lines


def draw(axes: Any, kind: str, records: list[Record]) -> None:
    """Draw the lines of one kind of places."""
    counts = sorted({int(str(record.extra["places"])) for record in records})
    axes.plot(counts, counts, color="0.7", linestyle=":", label="ideal")
    for number, (name, line) in enumerate(lines_of(records).items()):
        style = "--" if name.startswith("weak") else "-"
        axes.plot(*zip(*line, strict=True), style, marker="os^vD"[number % 5], label=name)
    first = records[0].extra
    sms = f" of {first['sms_of_a_place']} SMs" if kind == "partitions" else ""
    axes.set_title(f"{kind}{sms}, strong: {first['rows']} x {first['columns']}", fontsize="medium")
    axes.set_xlabel(kind)
    axes.set_ylabel(f"speed-up against one {kind[:-1]}")
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")


def save(records: list[Record], path: Path) -> None:
    """Draw the speed-ups and save the picture.

    Parameters
    ----------
    records : list of Record
        From `measure_all`.
    path : Path
        The file; its suffix is the format.
    """
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(str(record.extra["kind"]) for record in records))
    figure = Figure(figsize=(5.5 * len(kinds), 4.5), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        draw(axes, kind, [record for record in records if record.extra["kind"] == kind])
    where = records[0].environment
    clock = "SIMULATED time, no GPU was measured" if where.simulated else where.driver
    figure.suptitle(f"Heat equation, float32, {where.machine}: {clock}", fontsize="medium")
    figure.savefig(path, dpi=150)
