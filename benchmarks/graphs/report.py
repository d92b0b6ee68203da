"""Puts the parts, their checks and their baselines together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import stf_places as stf
from benchmarks.environment import Environment, current_environment
from benchmarks.graphs import cuda_stf, loops, ours, raw_driver
from benchmarks.graphs.programs import COUNT, LANES, MIX, Flow, WrongResult, kernel_here, work_name
from benchmarks.paired import in_turn, median_ratio
from benchmarks.partition_machine import MISSING, prepared_machine
from benchmarks.records import Baseline, Missing, Record, Spread

__all__ = ["measure_all"]

NAME = "graphs"
SMS_OF_A_PARTITION = 8

# Not measured in the run, hence no baselines.
SOURCE = "H200, driver 580.159, CUDA 13.0, peer of August 2026, measured 2026-11-29"
RECORD_REFERENCES: dict[str, object] = {
    "goal": {"2000": 2.5, "100000": 3.0},
    "raw_driver": {"2000": 1.0, "100000": 1.2},
    "peer": "42 us/task at 2,000 tasks, and more with the length",
    "unit": "us/task",
    "source": f"the design's goal; {SOURCE}",
}
LAUNCH_REFERENCES: dict[str, object] = {
    "goal": "at most 1.05 times the raw graph",
    "source": "the design's goal",
}
REPLAY_REFERENCES: dict[str, dict[str, object]] = {
    "replay_record": {"peer": 20.0, "unit": "us/task", "source": SOURCE},
    "replay_submit": {"peer": 154.0, "unit": "us", "source": SOURCE},
    "replay_done": {"peer": 163.0, "unit": "us", "source": SOURCE},
}


@dataclass(frozen=True)
class Sizes:
    """Say how much is measured."""

    lengths: tuple[int, ...] = (100, 1_000, 2_000, 10_000, 100_000)
    nodes: tuple[int, ...] = (100, 1_000, 10_000)
    rounds: int = 1_000
    replayed: int = 100
    repeats: int = 5
    launches: int = 200


QUICK = Sizes(lengths=(100, 1_000), nodes=(100,), rounds=20, repeats=2, launches=5)


@dataclass
class Run:
    """Hold the machine, the kernels and what was found so far."""

    sizes: Sizes
    environment: Environment
    mix: Any | None
    count: Any | None
    raw: raw_driver.RawDriver | None
    no_raw: str
    records: list[Record] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)

    def wait(self, stream: int) -> None:
        """Wait for a stream as the raw calls do, where they are there."""
        (ours.synchronize if self.raw is None else self.raw.wait)(stream)

    def add(
        self,
        case: str,
        values: tuple[float, ...],
        unit: str,
        baselines: list[Baseline | Missing],
        extra: dict[str, object],
    ) -> None:
        """Add the record of a case."""
        extra = {"work": work_name(), **extra}
        self.records.append(Record(NAME, case, Spread(values), unit, self.environment, baselines, extra))

    @contextmanager
    def unless_refused(self, *cases: str) -> Iterator[None]:
        """Note cases that the machine has not."""
        try:
            yield
        except (stf.PartitionError, stf.NotSupported) as error:
            self.missing += [{"case": case, "reason": str(error)} for case in cases]


# ---- Recording -------------------------------------------------------------------------------------------


def measure_recording(run: Run) -> None:
    """Measure all lengths on one place, and over partitions where there are such."""
    place = stf.exec_place.device(0)
    for tasks in run.sizes.lengths:
        record_length(run, "place", tasks, Flow([place], run.mix), [])
    kinds = ("graph", "scope")
    cases = [f"record_{kind}_partitions_{tasks}" for tasks in run.sizes.lengths for kind in kinds]
    with run.unless_refused(*cases):
        partitions = list(stf.green_places(SMS_OF_A_PARTITION, LANES))
        by_hand = without_what_fails(run, partitions)
        for tasks in run.sizes.lengths:
            record_length(by_hand, "partitions", tasks, Flow(partitions, run.mix), partitions)


def without_what_fails(run: Run, partitions: list[stf.exec_place]) -> Run:
    """Return the run, without the raw calls if they fail on these places."""
    raw, reason = tried(run.raw, partitions) if run.raw is not None else (None, run.no_raw)
    return replace(run, raw=raw, no_raw=reason)


def record_length(run: Run, where: str, tasks: int, flow: Flow, partitions: list[stf.exec_place]) -> None:
    """Measure one length in both contexts and by hand, in turn."""
    kept: dict[str, list[Any]] = {"graph": [], "scope": [], "raw": []}

    def keeping(kind: str, measure: Callable[[], Any]) -> Callable[[], float]:
        def once() -> float:
            kept[kind].append(measure())
            return float(kept[kind][-1].us_per_task)

        return once

    measures = [
        keeping("graph", partial(ours.record_context, flow, tasks)),
        keeping("scope", partial(ours.record_scope, flow, tasks)),
    ]
    with ExitStack() as stack:
        if run.raw is not None:
            by_hand = raw_driver.RawGraph(run.raw, tasks, partitions)
            stack.callback(by_hand.close)
            measures.append(keeping("raw", by_hand.record))
        values = in_turn(measures, run.sizes.repeats)
    for kind, found in zip(("graph", "scope"), values, strict=False):
        add_recording(
            run, f"record_{kind}_{where}_{tasks}", tasks, found, kept[kind], values[2:], kept["raw"]
        )


def add_recording(
    run: Run,
    case: str,
    tasks: int,
    values: tuple[float, ...],
    recorded: list[ours.Recorded],
    by_hand: list[tuple[float, ...]],
    raw: list[raw_driver.RawTimes],
) -> None:
    """Add the record of one length in one kind of context; of each list the first warmed up."""
    name = "raw driver, C++: one capture held open"
    extra: dict[str, object] = {
        "tasks": tasks,
        "close_ms": median(each.close_ms for each in recorded[1:]),
        "close_and_run_ms": median(each.done_ms for each in recorded[1:]),
        "counts": recorded[-1].counts,
        "reference_figures": RECORD_REFERENCES,
    }
    baselines: list[Baseline | Missing] = [Missing(name, run.no_raw)]
    if raw:
        baselines = [Baseline(name, Spread(by_hand[0]))]
        extra["ratio_to_raw_driver"] = median_ratio(values, by_hand[0])
        extra["raw_driver_ms"] = {
            "end": median(each.end_ms for each in raw[1:]),
            "instantiate": median(each.instantiate_ms for each in raw[1:]),
            "launch": median(each.launch_ms for each in raw[1:]),
        }
    run.add(case, values, "us/task", baselines, extra)


# ---- Launching -------------------------------------------------------------------------------------------

SAME_NODES = "raw driver, C++: a graph of the same nodes and edges"
FEWER_EDGES = "raw driver, C++: without implied edges"


def measure_launches(run: Run) -> None:
    """Launch graphs of all sizes again and again, ours and the raw one in turn."""
    launches = run.sizes.launches
    for tasks in run.sizes.nodes:
        mine = ours.Launches(Flow([stf.exec_place.device(0)], run.mix), tasks, run.wait)
        systems: list[Any] = [mine]
        with ExitStack() as stack:
            stack.callback(mine.close)
            fewest = max(2 * (tasks - LANES), 0)
            for implied in (True, False) if mine.nodes()[1] > fewest else (False,):
                if run.raw is not None:
                    by_hand = raw_driver.RawGraph(run.raw, tasks, implied_edges=implied)
                    stack.callback(by_hand.close)
                    by_hand.make_ready()
                    systems.append(by_hand)
            done = in_turn([each.launch for each in systems], launches)
            submitted = [tuple(each.submit_us[-launches:]) for each in systems]
            sizes = [each.nodes() for each in systems]
            for each in systems[1:]:
                each.check()
        if sizes[0][0] < tasks:
            raise WrongResult(f"stf_places: a graph of {tasks} tasks has {sizes[0][0]} nodes")
        add_launches(run, f"launch_submit_{tasks}", submitted, sizes)
        add_launches(run, f"launch_done_{tasks}", done, sizes)


def add_launches(run: Run, case: str, values: list[tuple[float, ...]], sizes: list[tuple[int, int]]) -> None:
    """Add the record of submitting or of being done."""
    extra: dict[str, object] = {
        "nodes": sizes[0][0],
        "edges": sizes[0][1],
        "reference_figures": LAUNCH_REFERENCES,
    }
    names = (SAME_NODES, FEWER_EDGES)
    baselines: list[Baseline | Missing] = [
        Baseline(name, Spread(found)) for name, found in zip(names, values[1:], strict=False)
    ]
    if baselines:
        extra["ratio_to_raw_driver"] = median_ratio(values[0], values[1])
        extra["raw_nodes"], extra["raw_edges"] = sizes[1]
    run.add(case, values[0], "us", baselines or [Missing(SAME_NODES, run.no_raw)], extra)


# ---- Loops -----------------------------------------------------------------------------------------------

HOST_LOOP = "the host: the body launched, ctx.wait of the value"
LIBRARY_LOOP = "the library's loop on the host"
LAUNCHES = "the host: the body launched each round"
RAW_LAUNCHES = "raw driver, C++: a graph of one kernel each round"


def measure_loops(run: Run) -> None:
    """Measure both loops that the device drives against those that the host drives."""
    with run.unless_refused("loop_while"):
        others = {HOST_LOOP: loops.HostLoop, LIBRARY_LOOP: loops.LoopOnHost}
        add_loop(run, "loop_while", loops.DeviceLoop, others, None)
    with run.unless_refused("loop_repeat"):
        add_loop(run, "loop_repeat", loops.RepeatedLoop, {LAUNCHES: loops.RepeatedLaunches}, run.raw)


def add_loop(
    run: Run,
    case: str,
    mine: type[loops.Loop],
    others: dict[str, type[loops.Loop]],
    raw: raw_driver.RawDriver | None,
) -> None:
    """Measure one loop and its baselines in turn."""
    rounds = run.sizes.rounds
    names = []
    missing = []
    with ExitStack() as stack:
        systems = [mine(run.count, rounds, run.wait)]
        stack.callback(systems[0].close)
        for name, kind in others.items():
            try:
                systems.append(kind(run.count, rounds, run.wait))
            except (stf.PartitionError, stf.NotSupported) as error:
                missing.append(Missing(name, str(error)))
                continue
            stack.callback(systems[-1].close)
            names.append(name)
        measures = [each.measure for each in systems]
        if raw is not None:
            by_hand = raw_driver.RawGraph(raw, 1)
            stack.callback(by_hand.close)
            by_hand.make_ready()
            measures.append(partial(by_hand.launch_many, rounds))
            names.append(RAW_LAUNCHES)
        values = in_turn(measures, run.sizes.repeats)
        driven = {
            type(each).__name__: {"on_device": each.loop.on_device, "host_reason": each.loop.host_reason}
            for each in systems
            if each.loop is not None
        }
    baselines = [Baseline(name, Spread(found)) for name, found in zip(names, values[1:], strict=True)]
    against = {name: median_ratio(found, values[0]) for name, found in zip(names, values[1:], strict=True)}
    extra: dict[str, object] = {"rounds": rounds, "loops": driven, "speed_against": against}
    run.add(case, values[0], "us/round", [*baselines, *missing], extra)


# ---- Replaying -------------------------------------------------------------------------------------------


def measure_replay(run: Run) -> None:
    """Record a task graph and launch it, the peer and the raw calls in turn with it."""
    tasks, repeats, launches = run.sizes.replayed, run.sizes.repeats, run.sizes.launches
    systems: dict[str, Any] = {
        ours.NAME: ours.Replay(Flow([stf.exec_place.device(0)], run.mix), tasks, launches, run.wait)
    }
    missing = []
    if run.raw is None:
        missing += [Missing(raw_driver.NAME, run.no_raw), Missing(cuda_stf.NAME, run.no_raw)]
    else:
        systems[raw_driver.NAME] = raw_driver.RawReplay(run.raw, tasks, launches)
        peer, reason = peer_part(run.raw, tasks, launches)
        if peer is None:
            missing.append(Missing(cuda_stf.NAME, reason))
        else:
            systems[cuda_stf.NAME] = peer
    recorded = in_turn([each.record for each in systems.values()], repeats)
    for each in systems.values():
        each.close()
    kept = repeats * launches  # without those that warmed up
    values = {
        "replay_record": recorded,
        "replay_submit": [tuple(each.launch_us[-kept:]) for each in systems.values()],
        "replay_done": [tuple(each.done_us[-kept:]) for each in systems.values()],
    }
    for case, (mine, *others) in values.items():
        names = list(systems)[1:]
        measured = [Baseline(name, Spread(found)) for name, found in zip(names, others, strict=True)]
        extra: dict[str, object] = {"tasks": tasks, "reference_figures": REPLAY_REFERENCES[case]}
        run.add(case, mine, "us/task" if case == "replay_record" else "us", [*measured, *missing], extra)


def peer_part(raw: raw_driver.RawDriver, tasks: int, launches: int) -> tuple[cuda_stf.PeerReplay | None, str]:
    """Return the peer, or why it cannot be measured here."""
    peer = cuda_stf.load()
    if peer is None:
        return None, "not importable here"
    system = cuda_stf.PeerReplay(peer, raw, tasks, launches)
    try:
        system.record()
    except Exception as error:  # whatever a version of the peer has not, or does otherwise
        return None, f"{type(error).__name__}: {error}"
    return system, ""


# ---- All -------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Run], None]] = {
    "record": measure_recording,
    "launch": measure_launches,
    "loop": measure_loops,
    "replay": measure_replay,
}


def raw_part(kernel: Any | None) -> tuple[raw_driver.RawDriver | None, str]:
    """Return the C++ part, or why it is not there."""
    if kernel is None:
        return None, MISSING
    try:
        return tried(raw_driver.RawDriver(kernel), [])
    except raw_driver.Unavailable as error:
        return None, str(error)


def tried(
    raw: raw_driver.RawDriver, partitions: list[stf.exec_place]
) -> tuple[raw_driver.RawDriver | None, str]:
    """Return the C++ part if it works on these places, or why it does not."""
    try:
        raw.try_out(partitions)
    except raw_driver.Unavailable as error:
        return None, str(error)
    return raw, ""


def sizes_of(quick: bool, repeats: int | None, launches: int | None) -> Sizes:
    """Return how much is measured."""
    chosen = QUICK if quick else Sizes()
    return Sizes(
        chosen.lengths,
        chosen.nodes,
        chosen.rounds,
        chosen.replayed,
        repeats or chosen.repeats,
        launches or chosen.launches,
    )


def measure_all(
    machine: str | None, only: str | None, quick: bool, repeats: int | None, launches: int | None
) -> list[Record]:
    """Measure every case.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment.
    only : str or None
        A part of `PARTS`, or None for all.
    quick : bool
        Short graphs, few rounds.
    repeats, launches : int or None
        Of each case; None for the usual number.

    Raises
    ------
    UsageError
        If the machine or the kernels cannot be used.
    WrongResult
        If a graph did not do what was recorded.
    """
    with prepared_machine(machine):
        mix = kernel_here(MIX)
        raw, reason = raw_part(mix)
        run = Run(
            sizes_of(quick, repeats, launches), current_environment(), mix, kernel_here(COUNT), raw, reason
        )
        for name, measure in PARTS.items():
            if only in (None, name):
                measure(run)
    if run.missing and run.records:
        run.records[0].extra["cases_not_measured"] = run.missing
    return run.records
