"""Puts the cases, their checks and their baselines together."""

from __future__ import annotations

from benchmarks.environment import Environment, current_environment
from benchmarks.machines import current_device, use_machine
from benchmarks.records import Baseline, Missing, Record, Spread
from benchmarks.task_overhead import bare_python, cuda_stf, ours, raw_driver
from benchmarks.task_overhead.programs import PROGRAMS, Program
from benchmarks.timing import repeated

__all__ = ["measure_all"]

NAME = "task_overhead"
US = "us/task"
SIMULATED = "sim:h200x1"  # for the simulated throughput, when the machine is real

# Not measured in the run, hence no baselines: the peer's figures and the goals, for reading beside the value.
REFERENCE_SOURCE = "H200, driver 580.159, CUDA 13.0, peer of August 2026, measured 2026-11-29"
REFERENCES: dict[str, dict[str, object]] = {
    "chain": {"peer": 7.0, "goal": 1.0, "unit": US, "source": REFERENCE_SOURCE},
    "two_dependencies": {"peer": 10.9, "goal": 2.0, "unit": US, "source": REFERENCE_SOURCE},
    "tokens": {"peer": 8.8, "goal": 2.0, "unit": US, "source": REFERENCE_SOURCE},
    "simulated_throughput": {"goal": 500_000, "unit": "tasks/s", "source": "the design's goal"},
}


def raw_baselines(
    environment: Environment, device: int, calls: int, repeats: int
) -> list[Baseline | Missing]:
    """Time the raw driver calls, or say why not."""
    if environment.simulated:
        return [Missing(name, "needs a GPU: this machine is simulated") for name in raw_driver.CALLS]
    try:
        entry = raw_driver.load()
        raw_driver.measure(entry, device, calls)
        rows = [raw_driver.measure(entry, device, calls) for _ in range(repeats)]
    except raw_driver.Unavailable as error:
        return [Missing(name, str(error)) for name in raw_driver.CALLS]
    return [
        Baseline(name, Spread(values), "us/call")
        for name, values in zip(raw_driver.CALLS, zip(*rows, strict=True), strict=True)
    ]


def peer_baseline(environment: Environment, program: Program, tasks: int, repeats: int) -> Baseline | Missing:
    """Time the peer, or say why not."""
    if environment.simulated:
        return Missing(cuda_stf.NAME, "needs a GPU: this machine is simulated")
    peer = cuda_stf.load()
    if peer is None:
        return Missing(cuda_stf.NAME, "not importable here")
    return Baseline(cuda_stf.NAME, repeated(lambda: cuda_stf.measure(peer, program, tasks), repeats))


def measure_case(program: Program, tasks: int, repeats: int) -> tuple[Spread, dict[str, int]]:
    """Measure one case on stf_places; the counts are those of the last repeat."""
    counts: dict[str, int] = {}

    def once() -> float:
        measured = ours.measure(program, tasks)
        counts.update(measured.counts)
        return measured.us_per_task

    return repeated(once, repeats), counts


def throughput(tasks: int, repeats: int) -> Record:
    """Measure tasks a second on the current machine, which is simulated."""
    environment = current_environment()
    spread = repeated(lambda: ours.measure_throughput(tasks), repeats)
    extra = {"tasks": tasks, "reference_figures": REFERENCES["simulated_throughput"]}
    return Record(NAME, "simulated_throughput", spread, "tasks/s", environment, extra=extra)


def measure_all(machine: str | None, device: int, tasks: int, repeats: int) -> list[Record]:
    """Measure every case.

    Parameters
    ----------
    machine : str or None
        ``"cuda"``, a simulated machine, or None to leave it to the environment.
    device : int
        Ordinal of the device that is current.
    tasks : int
        Tasks in a timed part.
    repeats : int
        Timed parts of each case.

    Raises
    ------
    UsageError
        If the machine or the device cannot be used.
    WrongResult
        If a timed part did not do what it was to do.
    """
    use_machine(machine)
    records = []
    with current_device(device):
        environment = current_environment(device)
        raw = raw_baselines(environment, device, tasks, repeats)
        for program in PROGRAMS:
            spread, counts = measure_case(program, tasks, repeats)
            bare = Spread(tuple(bare_python.measure(program, tasks) for _ in range(repeats)))
            peer = peer_baseline(environment, program, tasks, repeats)
            extra: dict[str, object] = {
                "tasks": tasks,
                "device": device,
                "counts": counts,
                "reference_figures": REFERENCES[program.name],
            }
            baselines = [*raw, Baseline(bare_python.NAME, bare), peer]
            records.append(Record(NAME, program.name, spread, US, environment, baselines, extra))
    with ours.simulated_machine(SIMULATED):
        records.append(throughput(tasks, repeats))
    return records
