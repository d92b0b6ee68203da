"""The machine that a workload measures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.runner import UsageError
from stf_places.errors import StfError

__all__ = ["current_device", "use_machine"]


def use_machine(machine: str | None) -> None:
    """Choose the machine; None leaves it to the environment.

    Raises
    ------
    UsageError
        If there is no such machine, or it cannot be used here.
    """
    try:
        if machine is not None:
            stf.use_machine(machine)
        current_driver()
    except (StfError, ValueError, OSError) as error:
        chosen = "" if machine is None else f"--machine {machine}: "
        raise UsageError(f"{chosen}{error}".replace("\n", " ")) from error


@contextmanager
def current_device(device: int) -> Iterator[None]:
    """Make a device current, as any program that uses it has done, and put back what was current.

    Raises
    ------
    UsageError
        If the machine has no such device.
    """
    driver = current_driver()
    if device >= driver.device_count():
        raise UsageError(f"--device {device}: {driver.machine} has {driver.device_count()} device(s), from 0")
    before = driver.current_context()
    driver.set_current_context(driver.primary_context(device))
    try:
        yield
    finally:
        driver.set_current_context(before)
