"""The driver's own calls for the same pieces: reserve a range, map a piece of each device, grant access."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.environment import current_driver
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off
from stf_places._native import pages

__all__ = ["NAME", "RawDriver"]

NAME = "raw driver: reserve, map, grant"


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
