"""Kernels that take a known time and leave a mark: what the examples about SM partitions run.

Each block keeps its part of an SM for a given time, then adds 1 to its own element of an array. On a GPU that is a
CUDA kernel; on a simulated machine it is a task of the same SMs, waves and microseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

import stf_places as stf

Counts = npt.NDArray[np.int32]

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
  __syncthreads();  // the other threads wait here, and keep their part of the SM
}
"""


@dataclass(frozen=True)
class Spin:
    """Describe a kernel: how many blocks, of how many microseconds, on which place."""

    place: stf.exec_place
    blocks: int
    block_us: float
    priority: int = 0
    symbol: str = "spin"

    @cached_property
    def sms(self) -> int:
        """SMs that it uses: the GPU spreads blocks over SMs before it doubles them up."""
        return min(self.blocks, self.place.sm_count)

    @cached_property
    def waves(self) -> int:
        """Rounds of blocks that it needs."""
        return -(-self.blocks // (BLOCKS_PER_SM * self.place.sm_count))


class SpinKernels:
    """Submit such kernels as tasks, wait for them and tell the time, on the machine in use.

    Raises
    ------
    ImportError
        If the machine is real and cuda.core is not installed.
    """

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._cuda = None if machine.simulated else CudaKernel(machine.devices[0].compute_capability)

    def now_us(self) -> float:
        """Return the time in microseconds: the simulated machine's clock, or this computer's."""
        return float(self._machine.now_us) if self._cuda is None else time.perf_counter_ns() / 1e3

    def submit(self, ctx: Any, spin: Spin, counts: Any, *others: Any) -> int:
        """Submit a kernel as a task that counts its blocks in `counts`; return the stream that it is on."""
        hints = {"cost": spin.waves * spin.block_us, "sms": spin.sms, "waves": spin.waves}
        dependencies = (counts.rw(), *others)
        with ctx.task(spin.place, *dependencies, symbol=spin.symbol, priority=spin.priority, **hints) as t:
            stream = int(t.stream_ptr())
            if self._cuda is None:
                array = t.numpy(0)
                t.run(np.add, array, 1, array)
            else:
                self._cuda.launch(stream, spin, t.get_arg(0))
        return stream

    def wait(self, ctx: Any, token: Any, stream: int) -> None:
        """Wait for the last task that wrote a token, which is on this stream.

        On a GPU without sleeping, for the sake of measuring: a long `ctx.wait` looks every 50 us or less often.
        """
        if self._cuda is None:
            ctx.wait(token)
        else:
            self._cuda.stream(stream).sync()


class CudaKernel:
    """The kernel for a GPU, with what its launches need kept for the next one."""

    def __init__(self, compute_capability: tuple[int, int]) -> None:
        import cuda.core

        options = cuda.core.ProgramOptions(arch="sm_{}{}".format(*compute_capability))
        program = cuda.core.Program(SOURCE, "c++", options)
        self._core: Any = cuda.core
        self._kernel = program.compile("cubin").get_kernel("count_slowly")
        self._streams: dict[int, Any] = {}
        self._shapes: dict[int, Any] = {}

    def stream(self, handle: int) -> Any:
        """Return cuda.core's object for a stream."""
        if handle not in self._streams:
            self._streams[handle] = self._core.Stream.from_handle(handle)
        return self._streams[handle]

    def launch(self, stream: int, spin: Spin, counts: int) -> None:
        """Launch the kernel on a task's stream; `counts` is an address in the GPU's memory."""
        if spin.blocks not in self._shapes:
            self._shapes[spin.blocks] = self._core.LaunchConfig(grid=spin.blocks, block=THREADS)
        duration_ns = np.uint64(round(spin.block_us * 1e3))
        self._core.launch(self.stream(stream), self._shapes[spin.blocks], self._kernel, counts, duration_ns)
