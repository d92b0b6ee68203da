"""Copies of one logical data between pinned host memory, a composite place and a device, as tasks ask for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import stf_places as stf
from benchmarks.composite.ours import WrongResult, spread_over
from benchmarks.environment import current_driver
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["CASES", "Case", "Copies", "Rates", "timed"]

WORD = np.dtype(np.uint64)
#: A word of each so many tells in which round it was written; the pages of the smallest machine have as many bytes.
STAMP_WORDS = 4096 // WORD.itemsize
#: The other words are their number times this, modulo 2**64.
FACTOR = 0x9E3779B97F4A7C15
#: Words that are made or compared at once.
CHUNK = 1 << 23


@dataclass(frozen=True)
class Case:
    """Name a copy and its ends: ``"host"``, ``"composite"`` or ``"device"``, the first one."""

    name: str
    source: str
    target: str


CASES = (
    Case("host_to_composite", "host", "composite"),
    Case("composite_to_host", "composite", "host"),
    Case("composite_to_device", "composite", "device"),
)


@dataclass(frozen=True)
class Rates:
    """Gigabytes a second, by this computer's clock and by a simulated machine's (0 on a real one)."""

    wall: float
    simulated: float


def timed(nbytes: int, copy: Any, wait: Any) -> Rates:
    """Return how fast `copy()` moves so many bytes, until `wait()` returns."""
    driver = current_driver()
    with collector_off():
        virtual, begin = driver.now_us() if driver.simulated else 0.0, wall_us()
        copy()
        wait()
        duration = wall_us() - begin
        simulated = driver.now_us() - virtual if driver.simulated else 0.0
    return Rates(nbytes / duration / 1e3, nbytes / simulated / 1e3 if simulated else 0.0)


class Copies:
    """Send data from place to place: a task on each that would change it makes its copy the only valid one.

    All memory is there before the first measurement.

    Parameters
    ----------
    nbytes : int
        Size of the data.
    devices : int
        Devices that it lies on.
    """

    def __init__(self, nbytes: int, devices: int) -> None:
        self._nbytes = nbytes
        self._places: dict[str, stf.exec_place] = {
            "host": stf.exec_place.host(),
            "composite": spread_over(devices),
            "device": stf.exec_place.device(0),
        }
        self._block = stf.DeviceArray(nbytes // WORD.itemsize, WORD, stf.data_place.host())
        self._words = np.asarray(self._block)
        for first in range(0, self._words.size, CHUNK):
            self._words[first : first + CHUNK] = self._expected(first)
        self._stamps = np.arange(len(self._words[::STAMP_WORDS]), dtype=WORD)
        self._ctx = stf.context()
        self._data = self._ctx.logical_data(self._block)
        for place in ("composite", "device", "host"):
            self._send(place)
        self.wait()

    def measure(self, case: Case) -> Rates:
        """Copy the data once and see what arrived.

        Raises
        ------
        WrongResult
            If it is not what was sent, or something else was done in the timed part.
        """
        self._stamp()
        if case.source != "host":
            self._send(case.source)
            self._wipe()
        before = self._ctx.stats
        rates = timed(self._nbytes, lambda: self._send(case.target), self.wait)
        after = self._ctx.stats
        if case.source == "host":
            self._wipe()
        if case.target != "host":
            self._send("host")
        self.wait()
        if not np.array_equal(self._words[::STAMP_WORDS], self._stamps):
            raise WrongResult(f"{case.name}: what arrived is not what was sent")
        done = after.bytes_copied - before.bytes_copied, after.allocations - before.allocations
        if done != (self._nbytes, 0):
            raise WrongResult(
                f"{case.name}: {self._nbytes} bytes are copied and no memory is taken: "
                f"got {done[0]} bytes, {done[1]} allocations"
            )
        return rates

    def wait(self) -> None:
        """Wait for all that was asked for."""
        current_driver().synchronize_stream(self._ctx.fence())

    def check(self) -> None:
        """Bring the data to the host and look at every word.

        Raises
        ------
        WrongResult
            If one has changed on its way.
        """
        self._send("host")
        self._wipe()
        for first in range(0, self._words.size, CHUNK):
            if not np.array_equal(self._words[first : first + CHUNK], self._expected(first)):
                raise WrongResult(f"words from {first} on are not what was sent at first")

    def close(self) -> None:
        """Give everything back."""
        self._ctx.finalize()

    def _expected(self, first: int) -> Any:
        """Return words from a multiple of `CHUNK` on, 0 for those that are stamped."""
        numbers = np.arange(first, min(first + CHUNK, self._words.size), dtype=WORD)
        words = numbers * np.uint64(FACTOR)
        words[::STAMP_WORDS] = 0
        return words

    def _send(self, place: str) -> None:
        with self._ctx.task(self._places[place], self._data.rw(), symbol=f"to {place}"):
            pass

    def _stamp(self) -> None:
        """Mark the data, on the host, with numbers that it never had."""
        self._stamps += np.uint64(1 << 32)
        with self._ctx.task(self._places["host"], self._data.rw(), symbol="stamp") as t:
            t.numpy(0)[::STAMP_WORDS] = self._stamps

    def _wipe(self) -> None:
        """Clear the marks in the host's memory: where it is out of date, a copy that brings nothing there shows."""
        self.wait()
        self._words[::STAMP_WORDS] = 0
