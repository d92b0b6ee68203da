"""The driver's own calls, timed in C++ by raw_driver.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from benchmarks.compiled_cpp import Unavailable, load_library

__all__ = ["CALLS", "Unavailable", "load", "measure"]

SOURCE = Path(__file__).with_name("raw_driver.cpp")
CALLS = (
    "raw driver, C++: get the current context",
    "raw driver, C++: record an event",
    "raw driver, C++: record + wait on another stream",
)

Entry = Callable[..., int]


def load() -> Entry:
    """Compile the C++ source and load it.

    Raises
    ------
    Unavailable
        If there is no compiler, or it fails.
    """
    entry = load_library(SOURCE).raw_driver_measure
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
