"""The driver's own calls for the same contexts, through cuda.bindings."""

from __future__ import annotations

from typing import Any

from benchmarks.cuda_core_device import checked
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["NAME", "RawDriver"]

NAME = "raw driver: split, describe, create, through cuda.bindings"


class RawDriver:
    """Measure cuDevSmResourceSplitByCount, cuDevResourceGenerateDesc and cuGreenCtxCreate."""

    def __init__(self, sm_count: int, count: int) -> None:
        from cuda.bindings import driver

        self._driver: Any = driver
        self._request = sm_count, count
        checked(driver.cuInit(0))
        self._device = checked(driver.cuDeviceGet(0))

    def measure_ms(self) -> float:
        """Return the milliseconds of all calls; the contexts are destroyed outside the timed part."""
        made: list[Any] = []
        try:
            with collector_off():
                begin = wall_us()
                self._make(made)
                return (wall_us() - begin) / 1e3
        finally:
            for context in made:
                checked(self._driver.cuGreenCtxDestroy(context))

    def _make(self, made: list[Any]) -> None:
        driver = self._driver
        sm_count, count = self._request
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        flags = int(driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
        whole = checked(driver.cuDeviceGetDevResource(self._device, kind))
        groups, found, _ = checked(driver.cuDevSmResourceSplitByCount(count, whole, 0, sm_count))
        for group in groups[: int(found)]:
            description = checked(driver.cuDevResourceGenerateDesc([group], 1))
            made.append(checked(driver.cuGreenCtxCreate(description, self._device, flags)))
