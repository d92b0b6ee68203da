"""The same contexts through cuda.core."""

from __future__ import annotations

from benchmarks.cuda_core_device import CudaCoreDevice
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "CudaCore"]

NAME = "cuda.core: SMResource.split, Device.create_context"


class CudaCore:
    """Measure a split and its contexts."""

    def __init__(self, sm_count: int, count: int) -> None:
        self._device = CudaCoreDevice()
        self._request = sm_count, count

    def measure_ms(self) -> float:
        """Return the milliseconds of all calls; the contexts are closed outside the timed part."""
        with collector_off():
            begin = wall_us()
            contexts = self._device.green_contexts(*self._request)
            duration = wall_us() - begin
        for context in contexts:
            context.close()
        return duration / 1e3
