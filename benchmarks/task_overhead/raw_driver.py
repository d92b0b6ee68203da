"""The driver's own calls, timed in C++ by raw_driver.cpp."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["CALLS", "Unavailable", "load", "measure"]

SOURCE = Path(__file__).with_name("raw_driver.cpp")
CALLS = (
    "raw driver, C++: get the current context",
    "raw driver, C++: record an event",
    "raw driver, C++: record + wait on another stream",
)

Entry = Callable[..., int]


class Unavailable(Exception):
    """Report why the raw calls cannot be timed here."""


def compiler() -> list[str]:
    """Return the system's C++ compiler: ``CXX``, or the first that is found.

    Raises
    ------
    Unavailable
        If there is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    for command in [chosen] if chosen else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    raise Unavailable(f"no C++ compiler here: looked for {shlex.join(chosen) or 'c++, g++, clang++'}")


def load() -> Entry:
    """Compile the C++ source in a temporary folder and load it.

    Raises
    ------
    Unavailable
        If there is no compiler, or it fails.
    """
    command = compiler()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "raw_driver.so")
        options = ["-O2", "-std=c++17", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
        try:
            subprocess.run([*command, *options], capture_output=True, text=True, check=True, timeout=300)
            entry = ctypes.CDLL(str(library)).raw_driver_measure
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{command[0]} failed: {error.stderr.strip().splitlines()[-1:]}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{command[0]}: {error}") from error
    entry.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_double)]
    entry.restype = ctypes.c_int
    return entry


def measure(entry: Entry, device: int, calls: int) -> tuple[float, ...]:
    """Time the calls once.

    Parameters
    ----------
    entry : callable
        From `load`.
    device : int
        Ordinal of the device.
    calls : int
        How often each is called.

    Returns
    -------
    tuple of float
        Microseconds a call, in the order of `CALLS`.

    Raises
    ------
    Unavailable
        If the driver or one of its entry points is missing, or a call fails.
    """
    found = (ctypes.c_double * len(CALLS))()
    status = entry(device, calls, found)
    if status < 0:
        raise Unavailable("libcuda.so.1 or one of its entry points is missing")
    if status != 0:
        raise Unavailable(f"a raw driver call failed with status {status}")
    return tuple(found)
