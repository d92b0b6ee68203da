"""The flow of kernels that every system records, its kernels, and what NumPy makes of it.

16 arrays, and levels of 8 tasks: a task of an even level changes an even array and reads the odd one behind it, in
the next level it is the other way round. So each task follows two of the level before, and the 8 of a level are
independent.
The kernel's result depends on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.runner import UsageError
from stf_places.places.compiled_kernels import KernelSource, load_kernel

__all__ = [
    "ARRAYS",
    "COUNT",
    "LANES",
    "LENGTH",
    "MIX",
    "WARM_UP",
    "Flow",
    "Values",
    "WrongResult",
    "count",
    "expected",
    "first_values",
    "kernel_here",
    "require_equal",
    "steps",
    "work_name",
]

ARRAYS = 16
#: Tasks of a level.
LANES = ARRAYS // 2
#: Elements of an array, and threads of a launch.
LENGTH = 64
#: Two levels bring all arrays to the device.
WARM_UP = 2 * LANES

Values = npt.NDArray[np.uint32]

MIX = KernelSource(
    name="mix",
    user="the benchmark of graphs",
    text=r"""
extern "C" __global__ void mix(unsigned int* target, const unsigned int* source) {
  target[threadIdx.x] = 3u * target[threadIdx.x] + source[threadIdx.x];
}
""",
)

COUNT = KernelSource(
    name="count_rounds",
    user="the benchmark of graphs",
    text=r"""
extern "C" __global__ void count_rounds(int* rounds, int keep) {
  rounds[0] = keep * (rounds[0] + 1);
}
""",
)


class WrongResult(Exception):
    """Report a graph that did not do what was recorded."""


def mix(target: Values, source: Values) -> None:
    """Do what the kernel does."""
    target *= np.uint32(3)
    target += source


def count(rounds: npt.NDArray[np.int32], keep: int) -> None:
    """Do what the kernel that counts rounds does: add 1, or begin with 0."""
    rounds[0] = keep * (rounds[0] + 1)


def steps(tasks: int) -> list[tuple[int, int, int]]:
    """Return the tasks of a flow in order: lane, array that is changed, array that is read."""
    result = []
    for number in range(tasks):
        level, lane = divmod(number, LANES)
        target = 2 * lane + level % 2
        result.append((lane, target, (target + 1) % ARRAYS))
    return result


def first_values() -> Values:
    """Return the arrays as they are before the first task, one a row."""
    return np.arange(ARRAYS * LENGTH, dtype=np.uint32).reshape(ARRAYS, LENGTH)


def expected(*flows: int) -> Values:
    """Return what the arrays hold after flows of so many tasks, one after the other."""
    values = first_values()
    for tasks in flows:
        levels, rest = divmod(tasks, LANES)
        for level in range(levels + (rest > 0)):
            lanes = LANES if level < levels else rest
            odd = level % 2
            source = values[0::2].take(range(1, LANES + 1), 0, mode="wrap") if odd else values[1::2]
            mix(values[odd::2][:lanes], source[:lanes])
    return values


def require_equal(system: str, found: Values, wanted: Values) -> None:
    """Refuse values that differ from NumPy's.

    Raises
    ------
    WrongResult
        Naming the first array that differs.
    """
    wrong = np.flatnonzero((found != wanted).any(axis=1))
    if wrong.size:
        first = int(wrong[0])
        raise WrongResult(
            f"{system}: {wrong.size} of {len(found)} arrays differ from NumPy's, array {first} is "
            f"{found[first, :4]} and has to be {wanted[first, :4]}"
        )


def kernel_here(source: KernelSource) -> Any | None:
    """Return a kernel for the first device, compiled and loaded; None on a simulated machine.

    Raises
    ------
    UsageError
        If the compiler is missing.
    """
    driver = current_driver()
    if driver.simulated:
        return None
    found = driver.device_properties(0)
    arch = f"sm_{found['compute_major']}{found['compute_minor']}"
    try:
        with stf.exec_place.device(0):
            return load_kernel(source, arch, f"cu{driver.version() // 1000}")
    except ImportError as error:
        raise UsageError(f"kernels for a GPU need cuda.core: {error}") from error


def work_name() -> str:
    """Say what the tasks do on this machine."""
    return (
        "task.run of a Python function: no kernel" if current_driver().simulated else "one cuda_kernel.launch"
    )


@dataclass(frozen=True)
class Flow:
    """Submit the flow to a context of ours.

    Parameters
    ----------
    places : sequence of exec_place
        One for each lane, in turn.
    kernel : cuda.core.Kernel or None
        None on a simulated machine.
    """

    places: Sequence[stf.exec_place]
    kernel: Any | None

    def plan(self, data: Sequence[Any], tasks: int) -> list[tuple[stf.exec_place, Any, Any]]:
        """Return place, data to change and data to read of each task."""
        count = len(self.places)
        return [
            (self.places[lane % count], data[target], data[source]) for lane, target, source in steps(tasks)
        ]

    def submit(self, ctx: Any, plan: list[tuple[stf.exec_place, Any, Any]]) -> None:
        """Submit a plan; this is the timed part."""
        kernel = self.kernel
        if kernel is None:
            for place, target, source in plan:
                with ctx.task(place, target.rw(), source.read()) as t:
                    t.run(mix, *t.args_cai())
            return
        for place, target, source in plan:
            with ctx.cuda_kernel(place, target.rw(), source.read()) as t:
                t.launch(kernel, 1, LENGTH, [target, source])
