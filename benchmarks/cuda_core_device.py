"""What a program writes by hand with cuda.core and cuda.bindings: the baselines of the SM partition workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CountsOnDevice", "CudaCoreDevice", "DriverCallFailed", "checked"]


class DriverCallFailed(Exception):
    """Report a raw driver call that failed."""


def checked(result: Sequence[Any]) -> Any:
    """Return what a call of cuda.bindings gave, without its status: nothing, one value, or a tuple.

    Raises
    ------
    DriverCallFailed
        If the status is not success.
    """
    status, *values = result
    if int(status) != 0:
        raise DriverCallFailed(f"a driver call failed: {status!r}")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


class CountsOnDevice:
    """An array of int32 in the current GPU's memory, zero at first; given back with `close`."""

    def __init__(self, length: int) -> None:
        from cuda.bindings import driver

        self._driver: Any = driver
        self._length = length
        self._memory = checked(driver.cuMemAlloc(4 * length))
        self.address = int(self._memory)
        self.clear()

    def clear(self) -> None:
        """Set all elements to zero, and wait for that."""
        checked(self._driver.cuMemsetD32(self._memory, 0, self._length))
        checked(self._driver.cuCtxSynchronize())

    def values(self) -> npt.NDArray[np.int32]:
        """Return the elements, once the GPU has done all its work."""
        checked(self._driver.cuCtxSynchronize())
        found = np.empty(self._length, np.int32)
        checked(self._driver.cuMemcpyDtoH(found.ctypes.data, self._memory, found.nbytes))
        return found

    def close(self) -> None:
        """Give the memory back."""
        checked(self._driver.cuMemFree(self._memory))


class CudaCoreDevice:
    """A GPU through cuda.core alone, with its primary context current."""

    def __init__(self, ordinal: int = 0) -> None:
        import cuda.core

        self._core: Any = cuda.core
        self._device = cuda.core.Device(ordinal)
        self._device.set_current()

    def streams(self, count: int, priority: int | None = None) -> list[Any]:
        """Return new streams of the whole device."""
        options = self._core.StreamOptions(priority=priority)
        return [self._device.create_stream(options=options) for _ in range(count)]

    def highest_priority(self) -> int:
        """Return the most urgent priority, the lowest number."""
        from cuda.bindings import driver

        _, greatest = checked(driver.cuCtxGetStreamPriorityRange())
        return int(greatest)

    def green_contexts(self, sm_count: int, count: int) -> list[Any]:
        """Return green contexts of as many SMs each, out of one split."""
        groups, _ = self._split(sm_count, count)
        return [self._green_context(group) for group in groups]

    def green_context_and_rest(self, sm_count: int) -> tuple[Any, Any]:
        """Return a green context of as many SMs, and one of all others."""
        groups, rest = self._split(sm_count, 1)
        return self._green_context(groups[0]), self._green_context(rest)

    def _split(self, sm_count: int, count: int) -> tuple[list[Any], Any]:
        options = self._core.SMResourceOptions(count=[sm_count] * count)
        groups, rest = self._device.resources.sm.split(options)
        if len(groups) != count:
            raise DriverCallFailed(
                f"the driver grants {len(groups)} groups of {sm_count} SMs: asked for {count}"
            )
        return groups, rest

    def _green_context(self, group: Any) -> Any:
        return self._device.create_context(self._core.ContextOptions(resources=[group]))
