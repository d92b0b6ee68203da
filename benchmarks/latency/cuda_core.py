"""The same two kernels on streams and green contexts that were made by hand with cuda.core."""

from __future__ import annotations

from typing import Any

from benchmarks.cuda_core_device import CountsOnDevice, CudaCoreDevice
from benchmarks.latency.programs import (
    BULK_BLOCK_US,
    BULK_REPEATS,
    BULK_WAVES,
    URGENT_SMS,
    URGENT_US,
    WARM_UP,
    Samples,
    require_counts,
)
from benchmarks.spin_kernels import BLOCKS_PER_SM, CudaKernel, wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "ByHand"]

NAME = "cuda.core by hand: streams, green contexts"


class ByHand:
    """Measure a way."""

    def __init__(self, kernel: CudaKernel, way: str, sm_count: int) -> None:
        device = CudaCoreDevice()
        self._kernel = kernel
        self._way = way
        self.samples = Samples()
        self._contexts: tuple[Any, ...] = ()
        if way == "own_partition":
            self._contexts = device.green_context_and_rest(URGENT_SMS)
            self._urgent, self._bulk = [context.create_stream() for context in self._contexts]
        else:
            priority = device.highest_priority() if way == "highest_priority" else None
            (self._bulk,), (self._urgent,) = device.streams(1), device.streams(1, priority)
        self._bulk_blocks = BULK_WAVES * BLOCKS_PER_SM * sm_count
        self._urgent_counts, self._bulk_counts = CountsOnDevice(1), CountsOnDevice(self._bulk_blocks)

    def measure_us(self, probes: int) -> float:
        """Launch urgent kernels, each behind a fresh bulk kernel; return the p50 from launch to done.

        Raises
        ------
        WrongResult
            If a block ran too often or too rarely.
        """
        self._urgent_counts.clear()
        self._bulk_counts.clear()
        with collector_off():
            urgent = [self._probe() for _ in range(WARM_UP + probes)]
            bulk = [self._time_bulk() for _ in range(BULK_REPEATS)]
        require_counts(
            f"{self._way}, {NAME}", self._urgent_counts.values(), self._bulk_counts.values(), probes
        )
        return self.samples.add(urgent, bulk)

    def _launch_bulk(self) -> None:
        self._kernel.launch(self._bulk, self._bulk_blocks, BULK_BLOCK_US, self._bulk_counts.address)

    def _time_bulk(self) -> float:
        begin = wall_us()
        self._launch_bulk()
        self._bulk.sync()
        return wall_us() - begin

    def _probe(self) -> float:
        self._launch_bulk()
        begin = wall_us()
        self._kernel.launch(self._urgent, 1, URGENT_US, self._urgent_counts.address)
        self._urgent.sync()
        duration = wall_us() - begin
        self._bulk.sync()
        return duration

    def close(self) -> None:
        """Give everything back."""
        for owner in [self._urgent_counts, self._bulk_counts, self._urgent, self._bulk, *self._contexts]:
            owner.close()
