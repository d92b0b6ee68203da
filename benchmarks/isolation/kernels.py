"""The work of victims and neighbours: kernels compiled with NVRTC, and copies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.environment import current_driver

__all__ = ["Work", "Workshop"]

SOURCE = r"""
extern "C" __global__ void arithmetic(float* out, int rounds) {
  float a = threadIdx.x, b = blockIdx.x, c = 0.5f, d = 2.0f;
  for (int i = 0; i < rounds; ++i) {
    a = a * 0.999f + 1.0f; b = b * 0.998f + a; c = c * 0.997f + b; d = d * 0.996f + c;
  }
  if (a + b + c + d == 12345.678f) out[0] = a;
}

extern "C" __global__ void copy(float4* to, const float4* from, long long count, int rounds) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (int round = 0; round < rounds; ++round)
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
      to[i] = from[i];
}

extern "C" __global__ void tiny(int* count) { ++*count; }
"""

#: Puts one piece of work on a stream.
Work = Callable[[int], None]
Bytes = npt.NDArray[np.uint8]
MIB = 1 << 20


class Workshop:
    """Compile the kernels, own the buffers, and make pieces of work for a number of SMs.

    Parameters
    ----------
    device : int
        Ordinal of the GPU.
    """

    def __init__(self, device: int) -> None:
        from cuda.core import Program, ProgramOptions

        import stf_places as stf

        self.driver = current_driver()
        self.device = device
        self.place = stf.data_place.device(device)
        properties = self.driver.device_properties(device)
        arch = f"sm_{properties['compute_major']}{properties['compute_minor']}"
        code = Program(SOURCE, "c++", ProgramOptions(arch=arch)).compile("cubin")
        self._code = code
        self._kernels = {name: int(code.get_kernel(name).handle) for name in ("arithmetic", "copy", "tiny")}
        self._buffers: list[tuple[Any, int, int]] = []
        self._checks: list[Callable[[], bool]] = []

    def buffer(self, nbytes: int, place: Any = None) -> int:
        """Return memory that `close` gives back."""
        where = self.place if place is None else place
        address = int(where.allocate(nbytes))
        self._buffers.append((where, address, nbytes))
        return address

    def wrong_results(self) -> int:
        """Return how many pieces of work left something else than they should have."""
        return sum(not right() for right in self._checks)

    def close(self) -> None:
        """Give the buffers back."""
        for where, address, nbytes in self._buffers:
            where.deallocate(address, nbytes)
        self._buffers.clear()

    def arithmetic(self, sms: int, rounds: int) -> Work:
        """Return arithmetic that fills `sms` SMs."""
        out = self.buffer(MIB)
        return self._launcher("arithmetic", sms * 2, 1024, ctypes.c_uint64(out), ctypes.c_int(rounds))

    def copy(self, sms: int, nbytes: int, rounds: int = 1) -> Work:
        """Return a copy of `nbytes` by `sms` SMs, done `rounds` times."""
        to, from_ = self.buffer(nbytes), self.buffer(nbytes)
        values = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
        self._write(from_, values)
        self._checks.append(lambda: np.array_equal(self._read(to, nbytes), values))
        sizes = (ctypes.c_longlong(nbytes // 16), ctypes.c_int(rounds))
        return self._launcher("copy", sms * 2, 1024, ctypes.c_uint64(to), ctypes.c_uint64(from_), *sizes)

    def chain(self, length: int) -> Work:
        """Return kernels of one thread, one behind the other."""
        counter = self.buffer(4)
        self._write(counter, np.zeros(4, np.uint8))
        one = self._launcher("tiny", 1, 1, ctypes.c_uint64(counter))
        launched = 0

        def enqueue(stream: int) -> None:
            nonlocal launched
            for _ in range(length):
                one(stream)
            launched += length

        self._checks.append(lambda: self._read(counter, 4).view(np.int32)[0] == launched)

        return enqueue

    def host_copies(self, nbytes: int) -> Work:
        """Return a copy from pinned memory to the device and one back."""
        import stf_places as stf

        host, device = self.buffer(nbytes, stf.data_place.host()), self.buffer(nbytes)

        def enqueue(stream: int) -> None:
            self.driver.copy(device, self.device, host, "host", nbytes, stream)
            self.driver.copy(host, "host", device, self.device, nbytes, stream)

        return enqueue

    def _write(self, address: int, values: Bytes) -> None:
        self.driver.copy(address, self.device, values.ctypes.data, "host", values.nbytes, 0)
        self.driver.synchronize_stream(0)

    def _read(self, address: int, nbytes: int) -> Bytes:
        values = np.empty(nbytes, np.uint8)
        self.driver.copy(values.ctypes.data, "host", address, self.device, nbytes, 0)
        self.driver.synchronize_stream(0)
        return values

    def _launcher(self, name: str, blocks: int, threads: int, *arguments: Any) -> Work:
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))

        def enqueue(stream: int) -> None:
            self.driver.launch(
                self._kernels[name],
                stream,
                grid=(blocks, 1, 1),
                block=(threads, 1, 1),
                parameters=ctypes.addressof(pointers),
            )

        enqueue.arguments = arguments  # type: ignore[attr-defined]  # what the pointers point to
        return enqueue
