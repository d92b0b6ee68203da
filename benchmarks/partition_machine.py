"""The machine of a workload about SM partitions: choosing it, and its kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.machines import current_device, use_machine
from benchmarks.runner import UsageError
from benchmarks.spin_kernels import CudaKernel

__all__ = ["MISSING", "kernel_here", "partitions_refused", "prepared_machine"]

#: Why a hand-written baseline has no value on a simulated machine.
MISSING = "needs a GPU: this machine is simulated"


@contextmanager
def prepared_machine(machine: str | None) -> Iterator[None]:
    """Choose the machine and make its first device current.

    Raises
    ------
    UsageError
        If there is no such machine, or it cannot be used here.
    """
    use_machine(machine)
    with current_device(0):
        yield


@contextmanager
def partitions_refused() -> Iterator[None]:
    """Turn a machine's refusal of the partitions that a workload needs into a line for the user."""
    try:
        yield
    except (stf.PartitionError, stf.NotSupported) as error:
        raise UsageError(f"this workload needs SM partitions: {error}") from error


def kernel_here() -> CudaKernel | None:
    """Return the kernel for the GPU in use, None on a simulated machine.

    Raises
    ------
    UsageError
        If cuda.core is missing.
    """
    properties: dict[str, Any] = current_driver().device_properties(0)
    if current_driver().simulated:
        return None
    try:
        return CudaKernel((properties["compute_major"], properties["compute_minor"]))
    except ImportError as error:
        raise UsageError(f"kernels for a GPU need cuda.core: {error}") from error
