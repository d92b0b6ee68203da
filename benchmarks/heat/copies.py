"""Copies inside one device: the memory bandwidth that this machine has."""

from __future__ import annotations

from benchmarks.environment import current_driver
from benchmarks.heat.ours import now_us
from benchmarks.spin_kernels import wall_us

__all__ = ["Copies"]

#: Copies that are timed together.
COPIES = 20


class Copies:
    """Copy a block of the first device's memory to another, again and again.

    Parameters
    ----------
    nbytes : int
        Bytes of a copy.
    """

    def __init__(self, nbytes: int) -> None:
        self._driver = current_driver()
        self._nbytes = nbytes
        self._stream = self._driver.create_stream(self._driver.primary_context(0))
        self._blocks = [self._driver.allocate_device(0, nbytes, self._stream) for _ in range(2)]
        for block in self._blocks:
            self._driver.fill(block, 0, b"\0\0\0\0", nbytes // 4, self._stream)

    def measure_gb_s(self) -> float:
        """Return the bytes read and written in a second, in GB; by the virtual clock of a simulated machine."""
        driver = self._driver
        driver.synchronize_stream(self._stream)
        begin = now_us() if driver.simulated else wall_us()
        for _ in range(COPIES):
            driver.copy(self._blocks[0], 0, self._blocks[1], 0, self._nbytes, self._stream)
        driver.synchronize_stream(self._stream)
        duration = (now_us() if driver.simulated else wall_us()) - begin
        return 2 * COPIES * self._nbytes / duration / 1e3

    def close(self) -> None:
        """Give everything back."""
        for block in self._blocks:
            self._driver.free_device(0, block, self._stream)
        self._driver.synchronize_stream(self._stream)
        self._driver.destroy_stream(self._stream)
