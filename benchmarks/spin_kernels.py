"""Kernels of known duration: each block keeps its part of an SM for a while, then adds 1 to its own element."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import stf_places as stf

__all__ = ["BLOCKS_PER_SM", "CudaKernel", "Spin", "SpinTasks", "wall_us"]

#: Threads of a block; two such blocks fill an SM, so that nothing else fits beside them.
THREADS = 1024
BLOCKS_PER_SM = 2

SOURCE = r"""
__device__ unsigned long long now_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void __launch_bounds__(1024, 2) count_slowly(int* counts, unsigned long long duration_ns) {
  if (threadIdx.x == 0) {
    const unsigned long long begin = now_ns();
    while (now_ns() - begin < duration_ns) {
    }
    counts[blockIdx.x] += 1;
  }
  __syncthreads();
}
"""


def wall_us() -> float:
    """Return this computer's time in microseconds."""
    return time.perf_counter_ns() / 1e3


class CudaKernel:
    """The kernel on a GPU, launched through cuda.core by ours and by the baselines alike.

    Raises
    ------
    ImportError
        If cuda.core is not installed.
    """

    def __init__(self, compute_capability: tuple[int, int]) -> None:
        import cuda.core

        options = cuda.core.ProgramOptions(arch="sm_{}{}".format(*compute_capability))
        program = cuda.core.Program(SOURCE, "c++", options)
        self._core: Any = cuda.core
        self._kernel = program.compile("cubin").get_kernel("count_slowly")
        self._streams: dict[int, Any] = {}
        self._shapes: dict[int, Any] = {}

    def stream(self, handle: int) -> Any:
        """Return cuda.core's object for a stream, made at the first call."""
        if handle not in self._streams:
            self._streams[handle] = self._core.Stream.from_handle(handle)
        return self._streams[handle]

    def launch(self, stream: Any, blocks: int, block_us: float, counts: int) -> None:
        """Launch on a stream of cuda.core; `counts` is an address in the GPU's memory."""
        if blocks not in self._shapes:
            self._shapes[blocks] = self._core.LaunchConfig(grid=blocks, block=THREADS)
        duration_ns = np.uint64(round(block_us * 1e3))
        self._core.launch(stream, self._shapes[blocks], self._kernel, counts, duration_ns)


@dataclass(frozen=True)
class Spin:
    """Describe a kernel that is a task: its place, blocks, their duration, and the task's priority."""

    place: stf.exec_place
    blocks: int
    block_us: float
    priority: int = 0

    @cached_property
    def sms(self) -> int:
        """SMs that it uses: the GPU spreads blocks over SMs before it doubles them up."""
        return min(self.blocks, self.place.sm_count)

    @cached_property
    def waves(self) -> int:
        """Rounds of blocks that it needs."""
        return -(-self.blocks // (BLOCKS_PER_SM * self.place.sm_count))


class SpinTasks:
    """Submit such kernels as tasks and wait for them.

    Parameters
    ----------
    kernel : CudaKernel or None
        None on a simulated machine, whose tasks have the same SMs, waves and microseconds.
    """

    def __init__(self, kernel: CudaKernel | None) -> None:
        self._kernel = kernel

    def submit(self, ctx: Any, spin: Spin, counts: Any, *others: Any) -> int:
        """Submit a kernel that counts its blocks in `counts`; return the handle of its stream."""
        hints = {"cost": spin.waves * spin.block_us, "sms": spin.sms, "waves": spin.waves}
        with ctx.task(spin.place, counts.rw(), *others, priority=spin.priority, **hints) as t:
            stream = int(t.stream_ptr())
            if self._kernel is None:
                array = t.numpy(0)
                t.run(np.add, array, 1, array)
            else:
                self._kernel.launch(self._kernel.stream(stream), spin.blocks, spin.block_us, t.get_arg(0))
        return stream

    def wait(self, ctx: Any, token: Any, stream: int) -> None:
        """Wait for the last task that wrote a token and is on this stream; on a GPU as the baselines do."""
        if self._kernel is None:
            ctx.wait(token)
        else:
            self._kernel.stream(stream).sync()

    def now_us(self) -> float:
        """Return a simulated machine's virtual time in microseconds; 0 on a GPU."""
        return float(stf.machine().now_us) if self._kernel is None else 0.0
