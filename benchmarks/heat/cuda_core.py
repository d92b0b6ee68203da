"""The same steps written by hand with cuda.core: a block of rows a device, streams, and copies of the edge rows.

Each device has its rows and one row of each neighbour beside them, twice. A step is a kernel a device; then each device
waits for its neighbours' kernels and copies their edge rows into its memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cuda_core_device import checked
from benchmarks.heat.programs import BLOCK, RATE, WARM_UP, Case, require_close
from benchmarks.heat.warp_plain import Plain
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "ByHand", "Unavailable"]

NAME = "cuda.core by hand: streams, edge rows copied"
THREADS = 256
ITEMSIZE = 4

# Row 0 of the memory is the neighbour's above, the last one the neighbour's below.
SOURCE = f"""
extern "C" __global__ void diffuse(const float* __restrict__ u, float* __restrict__ v, int rows, int columns,
                                   int has_above, int has_below) {{
  const int i = blockIdx.y;
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  const float* here = u + (size_t)(i + 1) * columns;
  const float* north = i > 0 || has_above ? here - columns : here;
  const float* south = i + 1 < rows || has_below ? here + columns : here;
  const float west = here[j > 0 ? j - 1 : 0];
  const float east = here[j + 1 < columns ? j + 1 : j];
  v[(size_t)(i + 1) * columns + j] = here[j] + {RATE}f * (north[j] + south[j] + west + east - 4.0f * here[j]);
}}

extern "C" __global__ void fill(float* u, int first_row, int columns) {{
  const int i = blockIdx.y;
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  const int value = ((first_row + i) / {BLOCK} * 37 + j / {BLOCK} * 101) & 255;
  u[(size_t)(i + 1) * columns + j] = value / 256.0f;
}}
"""


class Unavailable(Exception):
    """Report why this cannot be measured here."""


class Block:
    """The rows of one device: its memory, stream, event and kernels."""

    def __init__(self, ordinal: int, first_row: int, rows: int, case: Case) -> None:
        import cuda.core
        from cuda.bindings import driver

        self._core: Any = cuda.core
        self._driver: Any = driver
        self._device = cuda.core.Device(ordinal)
        self._device.set_current()
        self.context = checked(driver.cuCtxGetCurrent())
        capability = self._device.compute_capability
        options = cuda.core.ProgramOptions(arch=f"sm_{capability.major}{capability.minor}")
        code = cuda.core.Program(SOURCE, "c++", options).compile("cubin")
        self._diffuse, self._fill = code.get_kernel("diffuse"), code.get_kernel("fill")
        self._stream = self._device.create_stream()
        self._launches = cuda.core.LaunchConfig(grid=(-(-case.columns // THREADS), rows), block=THREADS)
        self._event = checked(driver.cuEventCreate(int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)))
        self.first_row, self.rows, self._columns = first_row, rows, case.columns
        self._row_bytes = case.columns * ITEMSIZE
        self._memory = [checked(driver.cuMemAlloc((rows + 2) * self._row_bytes)) for _ in range(2)]
        self._neighbours = np.int32(first_row > 0), np.int32(first_row + rows < case.rows)

    def row(self, which: int, row: int) -> int:
        """Return the address of a row of its own, from 0; -1 and `rows` are the neighbours'."""
        return int(self._memory[which]) + (row + 1) * self._row_bytes

    def set_current(self) -> None:
        """Make the device's primary context current."""
        self._device.set_current()

    def fill(self) -> None:
        """Write the first values into array 0."""
        self._device.set_current()
        arguments = int(self._memory[0]), np.int32(self.first_row), np.int32(self._columns)
        self._core.launch(self._stream, self._launches, self._fill, *arguments)
        self._record()

    def step(self, which: int) -> None:
        """Do one step from one array to the other."""
        self._device.set_current()
        arrays = int(self._memory[which]), int(self._memory[1 - which])
        sizes = np.int32(self.rows), np.int32(self._columns)
        self._core.launch(self._stream, self._launches, self._diffuse, *arrays, *sizes, *self._neighbours)
        self._record()

    def _record(self) -> None:
        checked(self._driver.cuEventRecord(self._event, self._stream.handle))

    def take_edges(self, which: int, above: Block | None, below: Block | None) -> None:
        """Copy the edge rows of the neighbours, once their kernels are done."""
        self._device.set_current()
        for other, to, of in ((above, -1, above.rows - 1 if above else 0), (below, self.rows, 0)):
            if other is None:
                continue
            checked(self._driver.cuStreamWaitEvent(self._stream.handle, other._event, 0))
            addresses = self.row(which, to), other.row(which, of)
            checked(self._driver.cuMemcpyDtoDAsync(*addresses, self._row_bytes, self._stream.handle))

    def sync(self) -> None:
        """Wait for its stream."""
        self._stream.sync()

    def reach(self, other: Block) -> None:
        """Let this device read the other's memory.

        Raises
        ------
        Unavailable
            If it cannot.
        """
        self._device.set_current()
        (status,) = self._driver.cuCtxEnablePeerAccess(other.context, 0)
        already = self._driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        if int(status) not in (0, int(already)):
            raise Unavailable(f"the devices have no peer access: {status!r}")

    def close(self) -> None:
        """Give everything back."""
        self._device.set_current()
        for memory in self._memory:
            checked(self._driver.cuMemFree(memory))
        checked(self._driver.cuEventDestroy(self._event))
        self._stream.close()


class ByHand:
    """Do a case on the first devices.

    Raises
    ------
    ImportError
        If cuda.core or cuda.bindings is missing.
    Unavailable
        If the devices cannot reach each other.
    """

    def __init__(self, case: Case, steps: int, plain: Plain) -> None:
        self._case = case
        self._steps = steps
        self._plain = plain
        self._blocks: list[Block] = []
        height = -(-case.rows // case.places)
        try:
            for ordinal, first in enumerate(range(0, case.rows, height)):
                self._blocks.append(Block(ordinal, first, min(height, case.rows - first), case))
            for block in self._blocks:
                for other in self._blocks:
                    if other is not block:
                        block.reach(other)
        except BaseException:
            self.close()
            raise
        self._blocks[0].set_current()

    def measure_ms(self) -> float:
        """Do all steps and check them; return the milliseconds of a step.

        Raises
        ------
        WrongResult
            If a cell is too far from that of plain Warp.
        """
        with collector_off():
            for block in self._blocks:
                block.fill()
            self._take_edges(0)
            which = self._run(0, WARM_UP)
            self._sync()
            begin = wall_us()
            which = self._run(which, self._steps)
            self._sync()
            duration = wall_us() - begin
        self._blocks[0].set_current()
        found = [(block.row(which, 0), block.rows) for block in self._blocks]
        require_close(NAME, self._case, self._plain.difference_at(found))
        return duration / 1e3 / self._steps

    def _run(self, which: int, steps: int) -> int:
        for _ in range(steps):
            for block in self._blocks:
                block.step(which)
            which = 1 - which
            self._take_edges(which)
        return which

    def _take_edges(self, which: int) -> None:
        neighbours = [None, *self._blocks, None]
        for above, block, below in zip(neighbours, self._blocks, neighbours[2:], strict=False):
            block.take_edges(which, above, below)

    def _sync(self) -> None:
        for block in self._blocks:
            block.sync()

    def close(self) -> None:
        """Give everything back, and leave the first device current."""
        for block in reversed(self._blocks):
            block.close()
