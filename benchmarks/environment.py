"""Where a benchmark ran: machine, driver, Python, commit."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle

__all__ = ["Environment", "current_driver", "current_environment"]

_KERNEL_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Environment:
    """Say where a record was measured.

    Parameters
    ----------
    machine : str
        Name of the GPU, or of the simulated machine.
    simulated : bool
        True on a simulated machine; its times are those of this computer's CPU, never of a GPU.
    driver : str
        Version of the driver, or of the one that a simulated machine stands for.
    sm_count, device_count : int
        SMs of the device used, and devices of the machine.
    """

    machine: str
    simulated: bool
    driver: str
    sm_count: int
    device_count: int

    def to_json(self) -> dict[str, object]:
        """Return the fields of a record that say where it was measured."""
        return {
            "machine": {
                "name": self.machine,
                "kind": "simulated" if self.simulated else "real",
                "cpu": cpu_name(),
                "sm_count": self.sm_count,
                "device_count": self.device_count,
            },
            "driver": self.driver,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "commit": commit(),
            "uncommitted_changes": uncommitted_changes(),
        }


def current_driver() -> DriverHandle:
    """Return the driver of the current machine, opening the default machine when there is none."""
    from stf_places._native import runtime

    return runtime.current().driver


def current_environment(device: int = 0) -> Environment:
    """Return the environment of the current machine.

    Parameters
    ----------
    device : int
        Ordinal of the device that is measured.

    Raises
    ------
    InvalidDevice
        If the machine has no such device.
    """
    driver = current_driver()
    properties = driver.device_properties(device)
    version = driver.version()
    text = f"CUDA {version // 1000}.{version % 1000 // 10}"
    if driver.simulated:
        return Environment(
            driver.machine, True, f"{text} (simulated)", properties["sm_count"], driver.device_count()
        )
    kernel = kernel_driver_version()
    text += f", driver {kernel}" if kernel else ""
    return Environment(properties["name"], False, text, properties["sm_count"], driver.device_count())


def kernel_driver_version() -> str | None:
    """Return the version of the kernel driver, or None where it does not say."""
    try:
        found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", _KERNEL_DRIVER.read_text())
    except OSError:
        return None
    return found.group() if found else None


def cpu_name() -> str:
    """Return the model of this computer's CPU, or its architecture."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.machine()


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent)]
    try:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def commit() -> str:
    """Return the commit of the checkout, or ``"unknown"`` outside one."""
    return _git("rev-parse", "HEAD") or "unknown"


def uncommitted_changes() -> bool | None:
    """Tell whether the checkout differs from its commit; None outside a checkout."""
    status = _git("status", "--porcelain", "--untracked-files=no")
    return None if status is None else bool(status)
