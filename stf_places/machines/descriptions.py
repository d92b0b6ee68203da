"""The machine in use, as Python sees it."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING

from stf_places._native import pages
from stf_places._native import runtime as runtimes
from stf_places.errors import InvalidDevice, NotSupported

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle

__all__ = ["Device", "Machine", "TimelineEntry"]


@dataclass(frozen=True)
class Device:
    """Describe a device.

    Parameters
    ----------
    ordinal : int
        Its number, from 0.
    name : str
        Its name.
    sm_count : int
        Streaming multiprocessors.
    compute_capability : tuple of int
        Major and minor number.
    total_memory : int
        Bytes.
    memory_bandwidth : float
        GB/s; 0 when unknown.
    copy_engines : int
        Copies that can run at the same time.
    memory_pools : bool
        True when it allocates in stream order.
    managed_memory : bool
        True when it has managed memory.
    uuid : str
        ``""`` when unknown.
    """

    ordinal: int
    name: str
    sm_count: int
    compute_capability: tuple[int, int]
    total_memory: int
    memory_bandwidth: float
    copy_engines: int
    memory_pools: bool
    managed_memory: bool
    uuid: str


@dataclass(frozen=True)
class TimelineEntry:
    """Describe one finished operation of a simulated machine.

    Parameters
    ----------
    kind : str
        ``"kernel"``, ``"copy"``, ``"fill"``, ``"host"`` or ``"body"``.
    symbol : str
        The task's name.
    device : int
        Ordinal, -1 for the host.
    stream : int
        The stream's handle.
    start_us : float
        Start in virtual microseconds since the machine was opened.
    end_us : float
        End, likewise.
    nbytes : int
        Bytes moved.
    sms : int
        SMs used.
    """

    kind: str
    symbol: str
    device: int
    stream: int
    start_us: float
    end_us: float
    nbytes: int
    sms: int


# The failure that is meant when none is named.
_USUAL_CODES = {"allocation": "out_of_memory"}


class Machine:
    """Describe the machine that programs run on: CUDA devices, or a simulated machine.

    Made by `use_machine` and `machine`. As a context manager it is the machine in use within the block; at
    the block's end the one before it is again.

    Notes
    -----
    Times of a simulated machine are a model's. They are no measurement of a GPU.

    Examples
    --------
    >>> from stf_places.machines import use_machine
    >>> with use_machine("sim:h200x2") as machine:
    ...     machine.driver, machine.name, machine.device_count
    ('sim', 'h200x2', 2)
    """

    __slots__ = ("_devices", "_entered", "_previous", "_runtime")

    def __init__(self, runtime: runtimes.RuntimeHandle, *previous: runtimes.RuntimeHandle | None) -> None:
        self._runtime = runtime
        self._previous = previous[0] if previous else runtime
        self._entered: list[runtimes.RuntimeHandle | None] = []
        self._devices: tuple[Device, ...] | None = None

    @property
    def _driver(self) -> DriverHandle:
        return self._runtime.driver

    @property
    def driver(self) -> str:
        """``"cuda"`` or ``"sim"``."""
        return self._driver.name

    @property
    def name(self) -> str:
        """``"cuda"``, or the simulated machine's name such as ``"h200x2"``."""
        return self._driver.machine

    @property
    def simulated(self) -> bool:
        """True when no device is behind it."""
        return self._driver.simulated

    @property
    def executes(self) -> bool:
        """False on a simulated machine that moves no bytes and runs no bodies."""
        return self._driver.executes

    @property
    def deterministic(self) -> bool:
        """True when two runs give the same times: a simulated machine that does not measure bodies."""
        return self._driver.deterministic

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return self._runtime.device_count

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices by ordinal."""
        if self._devices is None:
            self._devices = tuple(self._describe(ordinal) for ordinal in range(self.device_count))
        return self._devices

    def _describe(self, ordinal: int) -> Device:
        given = self._driver.device_properties(ordinal)
        capability = (given.pop("compute_major"), given.pop("compute_minor"))
        return Device(ordinal=ordinal, compute_capability=capability, **given)

    @property
    def driver_version(self) -> int:
        """What the driver answers, such as 13000 for CUDA 13.0."""
        return self._driver.version()

    def __repr__(self) -> str:
        """Return what it is, and whether it is real."""
        nature = "simulated" if self.simulated else "real"
        if self.simulated and not self.executes:
            nature += ", moves no bytes"
        if self.simulated and not self.deterministic:
            nature += ", measures bodies (not deterministic)"
        names = sorted({device.name for device in self.devices})
        return f"<Machine {self.name}: {nature}, {self.device_count} x {' / '.join(names)}>"

    def __eq__(self, other: object) -> bool:
        """Tell whether it is the same open machine."""
        return self._runtime is other._runtime if isinstance(other, Machine) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash by the open machine."""
        return hash(self._runtime)

    def __enter__(self) -> Machine:
        """Use this machine within the block."""
        current = runtimes.current_or_none()
        before = self._previous if current is self._runtime else current
        self._previous = self._runtime
        runtimes.set_current(self._runtime)
        self._entered.append(before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Use again what was in use before."""
        runtimes.set_current(self._entered.pop())

    # What only a simulated machine can do.

    def _simulation(self, what: str) -> DriverHandle:
        if not self.simulated:
            raise NotSupported(
                f"{what} is for simulated machines: this one is real ({self.name}); choose one with "
                "use_machine('sim:h200x2')"
            )
        return self._driver

    @property
    def now_us(self) -> float:
        """The host's virtual time in microseconds since the machine was opened.

        Raises
        ------
        NotSupported
            If the machine is real.
        """
        return self._simulation("now_us").now_us()

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Reports of operations that touch the same bytes without an order between them, oldest first.

        Raises
        ------
        NotSupported
            If the machine is real.
        """
        return tuple(self._simulation("conflicts").conflicts())

    @property
    def operations(self) -> int:
        """Operations submitted so far.

        Raises
        ------
        NotSupported
            If the machine is real.
        """
        return self._simulation("operations").operations()

    @property
    def live_allocations(self) -> int:
        """Blocks of memory of all kinds, and reserved ranges of addresses, that were not given back yet.

        Raises
        ------
        NotSupported
            If the machine is real.
        """
        return self._simulation("live_allocations").live_allocations()

    def used_memory(self, dev: int) -> int:
        """Return the bytes in use on a device.

        Raises
        ------
        NotSupported
            If the machine is real.
        InvalidDevice
            If there is no such device.
        """
        simulation = self._simulation("used_memory")
        if not 0 <= index(dev) < self.device_count:
            raise InvalidDevice(
                f"device {dev} does not exist: this machine ({self.name}) has {self.device_count} device(s), "
                f"ordinals 0 to {self.device_count - 1}"
            )
        return simulation.used_memory(dev)

    def link_traffic(self) -> dict[tuple[int, int], int]:
        """Return the bytes that operations submitted so far send over links.

        Returns
        -------
        dict
            Bytes by the two ends, from and to: device ordinals, -1 for the host. Pairs without any are left
            out.

        Raises
        ------
        NotSupported
            If the machine is real: only simulated machines count.

        Notes
        -----
        A copy counts on each link that it takes: between devices without a link, on those to and from the host.
        Work counts what its accesses use in memory of other devices: reads towards its device, writes away from
        it.

        Examples
        --------
        >>> import numpy as np
        >>> import stf_places as stf
        >>> from stf_places.machines import use_machine
        >>> with use_machine("sim:h200x2") as machine:
        ...     with stf.context() as ctx:
        ...         data = ctx.logical_data(np.zeros(1000))
        ...         with ctx.task(stf.exec_place.device(1), data.rw()):
        ...             pass
        ...     machine.link_traffic()
        {(-1, 1): 8000, (1, -1): 8000}
        """
        if not self.simulated:
            raise NotSupported(
                f"only simulated machines count the bytes on links: this one is real ({self.name}); choose one "
                "with use_machine('sim:h200x2')"
            )
        return pages.link_traffic(self._driver)

    def fail(self, kind: str, nth: int = 1, code: str | None = None) -> None:
        """Order a fault: the nth operation of a kind, counted from now, fails.

        Parameters
        ----------
        kind : str
            ``"allocation"``, ``"copy"``, ``"launch"``, ``"event"``, ``"host_function"`` or ``"green_context"``.
        nth : int
            From 1.
        code : str, optional
            ``"out_of_memory"``, ``"invalid_value"``, ``"not_supported"``, ``"device_lost"`` (which stays) or
            ``"failed"``. None: out of memory for allocations, else failed.

        Raises
        ------
        NotSupported
            If the machine is real.
        ValueError
            If an argument is not one of these.

        Notes
        -----
        Allocations and events fail at the call, the others at the next wait for their stream.
        """
        simulation = self._simulation("fail")
        if index(nth) < 1:
            raise ValueError(f"operations are counted from 1: got nth={nth}")
        simulation.order_fault(kind, nth, _USUAL_CODES.get(kind, "failed") if code is None else code)

    def record_timeline(self, on: bool = True) -> None:
        """Begin (or end) to keep what `timeline` returns.

        Raises
        ------
        NotSupported
            If the machine is real.
        """
        self._simulation("record_timeline").record_timeline(on)

    def timeline(self) -> tuple[TimelineEntry, ...]:
        """Return the finished operations since `record_timeline`, in order of start.

        Raises
        ------
        NotSupported
            If the machine is real.
        """
        return tuple(TimelineEntry(**entry) for entry in self._simulation("timeline").timeline())
