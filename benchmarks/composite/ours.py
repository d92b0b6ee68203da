"""A task that writes new data on a composite place, in a machine that was opened for the purpose, and again."""

from __future__ import annotations

import numpy as np

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["Ours", "WrongResult", "spread_over"]


class WrongResult(Exception):
    """Report memory that is not where it should be."""


def spread_over(devices: int) -> stf.exec_place_grid:
    """Return the grid of some devices, with arrays of bytes laid over it in blocks."""
    return stf.exec_place_grid.from_devices(range(devices)).with_data(stf.blocked("x"))


class Ours:
    """Measure the first write and the one after the data is gone.

    Parameters
    ----------
    machine : str
        For `use_machine`: each measurement opens it anew, since an open machine keeps mapped ranges.
    nbytes : int
        Size of the array.
    devices : int
        Devices that it lies on.
    """

    def __init__(self, machine: str, nbytes: int, devices: int) -> None:
        self._machine = machine
        self._nbytes = nbytes
        self._devices = devices
        self.again_ms: list[float] = []
        self.simulated_ms: list[tuple[float, float]] = []

    def first_ms(self) -> float:
        """Return the milliseconds of the first write; `again_ms` gets those of the second.

        Raises
        ------
        WrongResult
            If the memory does not lie on all devices, or the second array is not where the first was.
        """
        with stf.use_machine(self._machine), collector_off():
            grid = spread_over(self._devices)
            for device in range(self._devices):
                with stf.context() as ctx, ctx.task(stf.exec_place.device(device)):
                    pass  # makes the device's contexts
            before = self._free()
            first, virtual, address = self._write(grid)
            taken = [old - new for old, new in zip(before, self._free(), strict=True)]
            again, virtual_again, same = self._write(grid)
        share = self._nbytes // self._devices
        if min(taken) < share // 2 or sum(taken) < self._nbytes:
            raise WrongResult(
                f"{self._nbytes} bytes over {self._devices} devices: they have {taken} bytes less"
            )
        if same != address:
            raise WrongResult(f"the range at {address:#x} was not used again: got {same:#x}")
        self.again_ms.append(again)
        self.simulated_ms.append((virtual, virtual_again))
        return first

    def _write(self, grid: stf.exec_place_grid) -> tuple[float, float, int]:
        driver = current_driver()
        clock = driver.now_us if driver.simulated else float
        with stf.context() as ctx:
            data = ctx.logical_data_empty((self._nbytes,), np.uint8)
            virtual, begin = clock(), wall_us()
            with ctx.task(grid, data.write()) as t:
                pass
            duration, simulated = wall_us() - begin, clock() - virtual
            with ctx.task(grid, data.rw()) as t:
                address = t.get_arg(0)
        return duration / 1e3, simulated / 1e3, address

    def _free(self) -> list[int]:
        return [current_driver().memory_info(device)[0] for device in range(self._devices)]
