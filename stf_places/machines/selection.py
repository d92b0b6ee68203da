"""Choosing the machine that programs run on. Nothing is opened before it is needed."""

from __future__ import annotations

import threading
import warnings
from operator import index
from typing import TypedDict

from stf_places._native import drivers
from stf_places._native import runtime as runtimes
from stf_places.errors import DriverError, NotSupported
from stf_places.machines import environment, specs
from stf_places.machines.descriptions import Machine

__all__ = ["SimulatedMachineWarning", "machine", "machine_init", "use_machine"]


# Two threads that need the default machine at once get the same one.
_opening = threading.RLock()


class _SimOptions(TypedDict):
    execute: bool
    chaos: bool
    seed: int
    check_conflicts: bool
    measure_bodies: bool


class SimulatedMachineWarning(UserWarning):
    """Say that a simulated machine is in use because no GPU was found and none was chosen."""


def use_machine(
    spec: str,
    *,
    execute: bool = True,
    chaos: int | None = None,
    check_conflicts: bool = True,
    measure_bodies: bool = False,
) -> Machine:
    """Open a machine and use it from now on, or within a ``with`` block.

    Parameters
    ----------
    spec : str
        ``"cuda"``; ``"sim"`` for the default simulated machine, ``"sim:NAME"`` for one that ships,
        ``"sim:PATH.json"`` for a file; ``"auto"`` for CUDA where it finds a device, else the default
        simulated machine.
    execute : bool
        False: a simulated machine moves no bytes and runs no bodies; only its clock runs.
    chaos : int, optional
        Seed: a simulated machine draws the next operation at random from all that could legally run.
    check_conflicts : bool
        Whether a simulated machine looks for operations on the same bytes without an order between them.
    measure_bodies : bool
        Whether a body without a cost hint takes, on a simulated machine's clock, the CPU time that it took here.
        Two runs then differ, and the machine says so.

    Returns
    -------
    Machine
        The machine, in use already. As a context manager it gives way to the one before it.

    Raises
    ------
    TypeError
        If `spec` is no string or `chaos` no int.
    ValueError
        If `spec` names no machine; if an option of simulated machines is given with another.
    NotSupported
        If CUDA cannot be used here.

    Notes
    -----
    Contexts, arrays and resources stay with the machine that they were made on.

    Examples
    --------
    >>> with use_machine("sim:h200x2") as chosen:
    ...     chosen.device_count, chosen.simulated
    (2, True)
    """
    if not isinstance(spec, str):
        raise TypeError(f"a machine is named by a string, such as 'sim:h200x2': got {spec!r}")
    if chaos is not None and (isinstance(chaos, bool) or not hasattr(type(chaos), "__index__")):
        raise TypeError(f"chaos is None or a seed, an int: got {chaos!r}")
    if chaos is not None and not 0 <= index(chaos) < 1 << 64:
        raise ValueError(f"a seed is from 0 to 2**64 - 1: got chaos={chaos}")
    options: _SimOptions = {
        "execute": execute,
        "chaos": chaos is not None,
        "seed": index(chaos or 0),
        "check_conflicts": check_conflicts,
        "measure_bodies": measure_bodies,
    }
    kind, separator, name = spec.partition(":")
    if kind == "sim" and (name or not separator):
        driver = drivers.sim_driver(specs.load(name or environment.machine()).to_dict(), **options)
    elif spec == "auto":
        driver = _found_driver(options)
    elif spec == "cuda":
        if not execute or chaos is not None or measure_bodies:
            raise ValueError(
                "execute=False, chaos= and measure_bodies= are for simulated machines: "
                f"got execute={execute}, chaos={chaos}, measure_bodies={measure_bodies} "
                "with 'cuda'; give 'sim' or 'sim:h200x2'"
            )
        driver = _cuda_driver()
    else:
        raise ValueError(f"a machine is 'auto', 'cuda', 'sim', 'sim:NAME' or 'sim:PATH.json': got {spec!r}")
    return _use(driver)


def machine() -> Machine:
    """Return the machine in use, opening the default one when there is none.

    Raises
    ------
    ValueError
        If STF_PLACES_DRIVER or STF_PLACES_MACHINE has a wrong value.
    NotSupported
        If STF_PLACES_DRIVER is ``cuda`` and CUDA cannot be used here.

    Examples
    --------
    >>> with use_machine("sim:tiny"):
    ...     machine().name
    'tiny'
    """
    return Machine(runtimes.current())


def machine_init() -> None:
    """Open the machine in use and enable access between all pairs of devices that can have it.

    Raises
    ------
    ValueError, NotSupported
        As `machine`.
    DriverError
        If the driver refuses access between two devices that can have it.

    Notes
    -----
    Not required: copies enable the access that they need. It moves the cost to the program's start.

    Examples
    --------
    >>> with use_machine("sim:h200x2"):
    ...     machine_init()
    """
    runtime = runtimes.current()
    for device in range(runtime.device_count):
        for peer in range(runtime.device_count):
            if peer != device:
                runtime.peers(device, peer)


def open_default() -> None:
    """Open the machine that the environment names and make it current, unless one is.

    Raises
    ------
    ValueError, NotSupported
        As `machine`.
    """
    with _opening:
        if runtimes.current_or_none() is None:
            use_machine(environment.driver())


def _use(driver: drivers.DriverHandle) -> Machine:
    runtime = runtimes.make_runtime(driver, environment.sync_each_task(), environment.check_streams())
    chosen = Machine(runtime, runtimes.current_or_none())
    runtimes.set_current(runtime)
    return chosen


def _cuda_driver() -> drivers.DriverHandle:
    driver = drivers.cuda_driver()
    if driver.device_count() == 0:
        raise NotSupported(
            "CUDA finds no device: check CUDA_VISIBLE_DEVICES, or choose STF_PLACES_DRIVER=sim"
        )
    return driver


def _found_driver(options: _SimOptions) -> drivers.DriverHandle:
    """Open CUDA where it finds a device, else the simulated machine, and say so."""
    try:
        if options["execute"] and not options["chaos"] and not options["measure_bodies"]:
            return _cuda_driver()
    except DriverError as error:
        name = environment.machine()
        warnings.warn(
            f"no GPU can be used ({error}), so the simulated machine {name!r} is: results are right, times "
            "are a model's. STF_PLACES_DRIVER=sim or use_machine('sim') chooses it without this warning, "
            "STF_PLACES_DRIVER=cuda makes the lack of a GPU an error",
            SimulatedMachineWarning,
            stacklevel=2,
        )
    return drivers.sim_driver(specs.load(environment.machine()).to_dict(), **options)
