"""The driver seam in Python: every operation of native/driver/driver.hpp as a method.

The core calls the C++ seam itself. These methods are for tests that run one body on every driver, for the
faces of simulated machines, and for code that needs a stream or an event without a context.

Handles and addresses are plain integers. A location is a device number, ``"host"`` (or -1) or ``"managed"``.
No method holds the GIL during a driver call. A failed call raises what `stf_places._native.errors` says for
its code: `stf_places.errors.DriverError` and its subclasses, each naming call, code and what would work.
"""

from collections.abc import Callable, Iterable
from typing import Any

class DriverHandle:
    """Hold a driver: real GPUs through libcuda, or a simulated machine.

    Notes
    -----
    Made by `cuda_driver` and `sim_driver` only. The driver lives as long as the last object that uses it.
    """

    # What it is.
    @property
    def name(self) -> str:
        """``"cuda"`` or ``"sim"``."""
    @property
    def machine(self) -> str:
        """``"cuda"``, or the name of the simulated machine."""
    @property
    def simulated(self) -> bool:
        """True for a simulated machine."""
    @property
    def executes(self) -> bool:
        """False for a simulated machine that moves no bytes."""
    @property
    def deterministic(self) -> bool:
        """True when two runs give the same times: a simulated machine that does not measure bodies."""
    def version(self) -> int:
        """Return the CUDA version of the driver: 13000 for 13.0."""

    # Devices.
    def device_count(self) -> int:
        """Return how many devices there are."""
    def device_properties(self, device: int) -> dict[str, Any]:
        """Return what is fixed about a device.

        Returns
        -------
        dict
            ``name``, ``sm_count``, ``compute_major``, ``compute_minor``, ``total_memory`` (bytes),
            ``memory_bandwidth`` (GB/s, 0 when unknown), ``copy_engines``, ``memory_pools``,
            ``managed_memory``, ``uuid`` ("" when unknown).

        Raises
        ------
        InvalidDevice
            If there is no such device.
        """
    def memory_info(self, device: int) -> tuple[int, int]:
        """Return free and total memory of a device in bytes."""
    def link(self, from_: int, to: int) -> dict[str, Any]:
        """Return ``peer``, ``bandwidth`` and ``latency_us`` between two devices; -1 is the host.

        Notes
        -----
        Bandwidth is in GB/s, 0 when unknown.
        """
    def enable_peer_access(self, device: int, peer: int) -> None:
        """Let work of ``device`` reach memory of ``peer``. Doing it again changes nothing.

        Raises
        ------
        NotSupported
            If the two cannot reach each other; copies between them still work.
        """

    # Contexts.
    def primary_context(self, device: int) -> int:
        """Return the primary context of a device, which stays retained as long as the driver lives."""
    def current_context(self) -> int:
        """Return the context that is current to this thread, 0 if none is."""
    def set_current_context(self, context: int) -> None:
        """Make a context current to this thread; 0 for none."""
    def context_device(self, context: int) -> int:
        """Return the device of a context."""

    # Streams.
    def create_stream(self, context: int, priority: int = 0) -> int:
        """Make a stream that does not wait for the legacy default stream.

        Parameters
        ----------
        context : int
            Its context.
        priority : int
            0 is the default, negative numbers are more urgent; clamped to what the device has.
        """
    def destroy_stream(self, stream: int) -> None:
        """Give a stream back; work already on it still completes."""
    def query_stream(self, stream: int) -> bool:
        """Return True when nothing is pending on the stream."""
    def synchronize_stream(self, stream: int) -> None:
        """Wait for everything on the stream; Ctrl-C ends the wait."""
    def stream_context(self, stream: int) -> int:
        """Return the context of a stream."""
    def stream_capturing(self, stream: int) -> bool:
        """Return True when the stream's work is being captured into a graph."""
    def query_default_streams(self, context: int) -> bool:
        """Return True when nothing is pending on the context's default streams."""

    # Events.
    def create_event(self, context: int, timing: bool = False) -> int:
        """Make an event; only timing events can be given to `elapsed_us`."""
    def destroy_event(self, event: int) -> None:
        """Give an event back."""
    def record_event(self, event: int, stream: int) -> None:
        """Let the event stand for everything on the stream so far."""
    def wait_event(self, stream: int, event: int) -> None:
        """Let what follows on the stream wait for the event's latest record."""
    def query_event(self, event: int) -> bool:
        """Return True when the event's latest record is done, or when it has none."""
    def synchronize_event(self, event: int) -> None:
        """Wait for the event; Ctrl-C ends the wait."""
    def elapsed_us(self, from_: int, to: int) -> float:
        """Return the microseconds between two completed timing events of one device."""

    # Memory.
    def allocate_device(self, device: int, nbytes: int, stream: int) -> int:
        """Take memory from the driver's own pool, usable by what follows on the stream.

        Raises
        ------
        OutOfMemory
            If there is no room, naming what was asked for and what was free.
        """
    def free_device(self, device: int, address: int, stream: int) -> None:
        """Give device memory back after what precedes on the stream."""
    def trim_device(self, device: int) -> None:
        """Give unused memory of the pool back to the system."""
    def allocate_host(self, nbytes: int) -> int:
        """Take pinned memory that all devices reach."""
    def free_host(self, address: int) -> None:
        """Give pinned memory back; its users have to be done."""
    def allocate_managed(self, nbytes: int, device: int = -1) -> int:
        """Take managed memory, which prefers ``device`` unless that is -1."""
    def free_managed(self, address: int) -> None:
        """Give managed memory back; its users have to be done."""
    def copy(
        self, to: int, to_at: int | str, from_: int, from_at: int | str, nbytes: int, stream: int
    ) -> None:
        """Copy bytes between any two locations, in stream order.

        Notes
        -----
        The memory has to live until the copy is done.
        """
    def fill(self, to: int, at: int | str, value: bytes, count: int, stream: int) -> None:
        """Set ``count`` elements to ``value``, which is 1, 2, 4, 8 or 16 bytes long."""

    # Work.
    def host_function(self, stream: int, function: Callable[[], object]) -> None:
        """Call a function in stream order, on a thread of the driver's.

        Notes
        -----
        It must not call the driver. What it raises goes to ``sys.unraisablehook``. After a context error it
        is not called. On a simulated machine it runs on the thread of a later call.
        """
    def launch(
        self,
        function: int,
        stream: int,
        *,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        shared_bytes: int = 0,
        parameters: int = 0,
        symbol: str = "",
        cost_us: float = -1,
        sms: int = 0,
        waves: int = 1,
        accesses: Iterable[tuple[int, int, bool]] = (),
    ) -> None:
        """Launch a kernel of the machine's own kind.

        Parameters
        ----------
        function : int
            A CUfunction or CUkernel.
        stream : int
            The stream that it goes on.
        grid, block : tuple of three int
            Blocks in the grid and threads in a block.
        shared_bytes : int
            Dynamic shared memory of a block.
        parameters : int
            Address of an array of pointers to the arguments.
        symbol, cost_us, sms, waves, accesses
            What the simulated machine is told about the work: a name, microseconds on ``sms`` SMs (negative:
            from the bytes), the width (0: the whole place), one more than the points where more urgent work
            can take the SMs, and ``(address, nbytes, write)`` of each range.
        """
    def host_work(
        self,
        stream: int,
        function: Callable[[], object] | None = None,
        *,
        symbol: str = "",
        cost_us: float = -1,
        sms: int = 0,
        waves: int = 1,
        accesses: Iterable[tuple[int, int, bool]] = (),
    ) -> None:
        """Run a host function that stands for device work; simulated machines only.

        Raises
        ------
        NotSupported
            On a real driver.
        """
    def begin_body(self, stream: int) -> None:
        """Finish everything that later work on the stream would wait for; nothing on a real driver."""
    def end_body(
        self,
        stream: int,
        *,
        symbol: str = "",
        cost_us: float = -1,
        sms: int = 0,
        waves: int = 1,
        accesses: Iterable[tuple[int, int, bool]] = (),
    ) -> None:
        """Put a body's duration and accesses on the clock; nothing on a real driver."""

    # What only a simulated machine can do: each raises NotSupported on a real driver.
    @property
    def spec_name(self) -> str:
        """The name in the machine's description."""
    def now_us(self) -> float:
        """Return the host's virtual time in microseconds."""
    def advance_us(self, us: float) -> None:
        """Let the host compute for that long."""
    def order_fault(self, kind: str, nth: int, code: str) -> None:
        """Let the nth operation of a kind, counted from now, fail.

        Parameters
        ----------
        kind : {"allocation", "copy", "launch", "event", "host_function", "green_context"}
            What fails.
        nth : int
            1 for the next one.
        code : {"out_of_memory", "invalid_value", "not_supported", "device_lost", "failed"}
            How it fails; ``"device_lost"`` is sticky.

        Raises
        ------
        ValueError
            If there is no such kind or code.
        """
    def conflicts(self) -> list[str]:
        """Return the reports of unordered operations found so far, oldest first."""
    def record_timeline(self, on: bool = True) -> None:
        """Keep finished operations for `timeline`, or stop keeping them."""
    def timeline(self) -> list[dict[str, Any]]:
        """Return finished operations in order of start.

        Returns
        -------
        list of dict
            ``kind``, ``symbol``, ``device``, ``stream``, ``start_us``, ``end_us``, ``nbytes``, ``sms``.
        """
    def used_memory(self, device: int) -> int:
        """Return the bytes in use on a device."""
    def live_allocations(self) -> int:
        """Return how many blocks of all kinds, and reserved ranges, are in use."""
    def operations(self) -> int:
        """Return how many operations were submitted so far."""
    def drain(self) -> None:
        """Run everything that is pending."""

def cuda_driver() -> DriverHandle:
    """Load libcuda, initialise it and find the devices.

    Raises
    ------
    NotSupported
        If no driver is installed, or one that is too old.
    InvalidDevice
        If the driver finds no device.

    Notes
    -----
    Sets ``CUDA_DEVICE_MAX_CONNECTIONS`` to 32 if it is unset; this has an effect before the first ``cuInit``.
    A driver that was initialised cannot be used in the child of a fork: start workers with
    ``multiprocessing.get_context("spawn")``.
    """

def sim_driver(
    spec: dict[str, Any],
    *,
    execute: bool = True,
    chaos: bool = False,
    seed: int = 0,
    check_conflicts: bool = True,
    measure_bodies: bool = False,
) -> DriverHandle:
    """Make a deterministic machine in this process.

    Parameters
    ----------
    spec : dict
        The machine, laid out as `stf_places._native.machine_specs` says.
    execute : bool
        False moves no bytes and runs no bodies: only the clock works.
    chaos : bool
        Draw the next operation at random from all that could legally run.
    seed : int
        Seed of that draw.
    check_conflicts : bool
        Report operations that touch the same bytes without an order between them.
    measure_bodies : bool
        Bodies without a cost hint take the CPU time that they took: not deterministic.

    Raises
    ------
    ValueError
        If the description has a field that does not exist.
    KeyError
        If it lacks one that it needs.
    """
