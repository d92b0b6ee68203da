"""The environment variables that the package reads, parsed strictly. Nothing is remembered between calls."""

from __future__ import annotations

import os

__all__ = ["check_streams", "driver", "machine", "sync_each_task"]

DEFAULT_MACHINE = "h200x2"
_DRIVERS = ("auto", "cuda", "sim")
_SWITCHES = {"0": False, "1": True}


def _value(name: str) -> str | None:
    """Return a variable's value; None when it is unset or empty."""
    return os.environ.get(name) or None


def _switch(name: str) -> bool:
    given = _value(name)
    if given is None:
        return False
    if given not in _SWITCHES:
        raise ValueError(f"{name} is 0 or 1: got {given!r}")
    return _SWITCHES[given]


def driver() -> str:
    """Return what STF_PLACES_DRIVER chooses: ``"auto"`` (also when unset), ``"cuda"`` or ``"sim"``.

    Raises
    ------
    ValueError
        If it has another value.

    Examples
    --------
    >>> driver() in ("auto", "cuda", "sim")
    True
    """
    given = _value("STF_PLACES_DRIVER")
    if given is None:
        return "auto"
    if given not in _DRIVERS:
        raise ValueError(f"STF_PLACES_DRIVER is one of {', '.join(_DRIVERS)}: got {given!r}")
    return given


def machine() -> str:
    """Return the simulated machine that STF_PLACES_MACHINE names: a name or a path of a ``.json`` file.

    Returns
    -------
    str
        ``"h200x2"`` when the variable is unset. Whether there is such a machine is found out by `specs.load`.

    Examples
    --------
    >>> isinstance(machine(), str)
    True
    """
    return _value("STF_PLACES_MACHINE") or DEFAULT_MACHINE


def sync_each_task() -> bool:
    """Return whether STF_PLACES_SYNC asks to wait after each task, which names a failure's culprit.

    Raises
    ------
    ValueError
        If it is neither ``0`` nor ``1``.
    """
    return _switch("STF_PLACES_SYNC")


def check_streams() -> bool:
    """Return whether STF_PLACES_CHECK asks to look for work on the wrong stream at each task's end.

    Raises
    ------
    ValueError
        If it is neither ``0`` nor ``1``.
    """
    return _switch("STF_PLACES_CHECK")
