"""The same kernels on streams and green contexts that were made by hand with cuda.core."""

from __future__ import annotations

from benchmarks.concurrent.programs import BLOCK_US, BLOCKS, Case, WrongResult
from benchmarks.cuda_core_device import CountsOnDevice, CudaCoreDevice
from benchmarks.spin_kernels import CudaKernel, wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "ByHand"]

NAME = "cuda.core by hand: streams, green contexts"


class ByHand:
    """Measure a case."""

    def __init__(self, kernel: CudaKernel, case: Case) -> None:
        device = CudaCoreDevice()
        self._kernel = kernel
        self._case = case
        self._contexts = device.green_contexts(BLOCKS, case.lanes) if case.partitioned else []
        self._streams = (
            [context.create_stream() for context in self._contexts]
            if case.partitioned
            else device.streams(case.lanes)
        )
        self._counts = [CountsOnDevice(BLOCKS) for _ in range(case.kernels)]

    def measure_ms(self) -> float:
        """Return the milliseconds from the first launch to the end of all.

        Raises
        ------
        WrongResult
            If a block ran too often or too rarely.
        """
        for counts in self._counts:
            counts.clear()
        self._run_all()
        with collector_off():
            begin = wall_us()
            self._run_all()
            duration = wall_us() - begin
        if any((counts.values() != 2).any() for counts in self._counts):
            raise WrongResult(f"{self._case.name}, {NAME}: not every block ran twice")
        return duration / 1e3

    def _run_all(self) -> None:
        for i, counts in enumerate(self._counts):
            stream = self._streams[i % self._case.lanes]
            self._kernel.launch(stream, BLOCKS, BLOCK_US, counts.address)
        for stream in self._streams:
            stream.sync()

    def close(self) -> None:
        """Give everything back."""
        for counts in self._counts:
            counts.close()
        for owner in [*self._streams, *self._contexts]:
            owner.close()
