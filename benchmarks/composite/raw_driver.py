"""The driver's own calls: those that map the same pieces, and copies from and to ordinary memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.composite.copies import Rates, timed
from benchmarks.composite.ours import WrongResult
from benchmarks.environment import current_driver
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off
from stf_places._native import pages

__all__ = ["HOST", "NAME", "RawCopies", "RawDriver", "link_name"]

NAME = "raw driver: reserve, map, grant"
#: The host's number among the ends of links.
HOST = -1
#: Bytes at either end of a block that are marked before each copy.
MARKED = 4096


def link_name(source: int, target: int) -> str:
    """Return the name of a copy over a link, as a baseline."""
    ends = ["host" if end == HOST else f"device {end}" for end in (source, target)]
    return f"raw driver: ordinary memory, {ends[0]} to {ends[1]}"


class RawDriver:
    """Measure the calls on a machine that was opened for the purpose; `parts_ms` gets what each call took.

    Parameters
    ----------
    pieces : sequence of (int, int)
        Device and bytes of each piece.
    """

    def __init__(self, pieces: Sequence[tuple[int, int]]) -> None:
        self._pieces = pieces
        self.parts_ms: list[tuple[float, float, float]] = []

    def measure_ms(self) -> float:
        """Return the milliseconds of all calls; what they made is given back outside the timed part."""
        driver = current_driver()
        nbytes = sum(size for _, size in self._pieces)
        devices = sorted({device for device, _ in self._pieces})
        with collector_off():
            begin = wall_us()
            address = pages.reserve_pages(driver, nbytes)
            reserved = wall_us()
            at = address
            for device, size in self._pieces:
                pages.map_pages(driver, at, size, device)
                at += size
            mapped = wall_us()
            pages.grant_access(driver, address, nbytes, devices)
            granted = wall_us()
        pages.unmap_pages(driver, address, nbytes)
        pages.release_pages(driver, address, nbytes)
        parts = (reserved - begin) / 1e3, (mapped - reserved) / 1e3, (granted - mapped) / 1e3
        self.parts_ms.append(parts)
        return sum(parts)


class RawCopies:
    """Copy between blocks of ordinary memory: one of each device, and a pinned one of the host.

    Parameters
    ----------
    nbytes : int
        Size of each block and copy.
    devices : int
        Devices that have one, from 0 on.
    """

    def __init__(self, nbytes: int, devices: int) -> None:
        self._driver = driver = current_driver()
        self._nbytes = nbytes
        self._mark = 0
        self._streams = [driver.create_stream(driver.primary_context(device)) for device in range(devices)]
        self._blocks = {HOST: driver.allocate_host(nbytes)}
        for device, stream in enumerate(self._streams):
            self._blocks[device] = driver.allocate_device(device, nbytes, stream)
            driver.fill(self._blocks[device], device, b"\0", nbytes, stream)
            driver.synchronize_stream(stream)
            for other in range(device):
                driver.enable_peer_access(device, other)
                driver.enable_peer_access(other, device)

    def measure(self, source: int, target: int) -> Rates:
        """Copy a block once, on a stream of the device that it comes from or else goes to.

        Raises
        ------
        WrongResult
            If the ends of the block did not arrive.
        """
        driver = self._driver
        stream = self._streams[target if source == HOST else source]
        self._mark += 1
        mark = self._mark.to_bytes(8, "little")
        for offset in (0, self._nbytes - MARKED):
            driver.fill(self._blocks[source] + offset, source, mark, MARKED // 8, stream)
        driver.synchronize_stream(stream)
        rates = timed(
            self._nbytes,
            lambda: driver.copy(
                self._blocks[target], target, self._blocks[source], source, self._nbytes, stream
            ),
            lambda: driver.synchronize_stream(stream),
        )
        ends = np.zeros(2, np.uint64)
        for number, offset in enumerate((0, self._nbytes - 8)):
            at = self._blocks[target] + offset
            driver.copy(ends.ctypes.data + 8 * number, HOST, at, target, 8, stream)
        driver.synchronize_stream(stream)
        if (ends != self._mark).any():
            raise WrongResult(f"{link_name(source, target)}: got {ends} at the ends, not {self._mark}")
        return rates

    def close(self) -> None:
        """Give everything back."""
        driver = self._driver
        for device, stream in enumerate(self._streams):
            driver.free_device(device, self._blocks[device], stream)
            driver.synchronize_stream(stream)
            driver.destroy_stream(stream)
            driver.trim_device(device)
        driver.free_host(self._blocks[HOST])
