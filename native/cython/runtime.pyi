"""The runtime in use: a driver, its devices and settings. One is current for the process."""

from stf_places._native.drivers import DriverHandle

class RuntimeHandle:
    """A driver together with what is asked of it once; made by `make_runtime`."""

    @property
    def driver(self) -> DriverHandle:
        """The driver that it was made with."""
    @property
    def simulated(self) -> bool:
        """True on a simulated machine."""
    @property
    def device_count(self) -> int:
        """Number of devices."""
    def peers(self, device: int, peer: int) -> bool:
        """Tell whether `device` reaches the memory of `peer`, and enable it at the first call.

        Raises
        ------
        InvalidDevice
            If one of the two does not exist.
        DriverError
            If the driver refuses to enable what it says is possible.
        """

def make_runtime(
    driver: DriverHandle, sync_each_task: bool = False, check_streams: bool = False
) -> RuntimeHandle:
    """Make a runtime over a driver.

    Parameters
    ----------
    driver : DriverHandle
        The open driver.
    sync_each_task : bool
        Wait after each task, to name the culprit of a fault.
    check_streams : bool
        Ask the default streams at each task's end whether the body put its work there.

    Raises
    ------
    DriverError
        If the driver cannot tell its devices.
    """

def current() -> RuntimeHandle:
    """Return the current runtime, opening the default machine when there is none.

    Raises
    ------
    ValueError
        If an environment variable that chooses the machine is wrong.
    NotSupported
        If CUDA was asked for and cannot be used.
    """

def current_or_none() -> RuntimeHandle | None:
    """Return the current runtime, or None when no machine was opened yet."""

def set_current(handle: RuntimeHandle | None) -> None:
    """Make a runtime current for the whole process; None: the next use opens the default machine."""
