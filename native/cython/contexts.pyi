"""Contexts: sequential flows of tasks over logical data."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, SupportsIndex, TypeVar

from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer

from stf_places._native.cuda_kernels import cuda_kernel as _cuda_kernel
from stf_places._native.data import dep
from stf_places._native.data import logical_data as _logical_data
from stf_places._native.places import async_resources, data_place, exec_place_resources
from stf_places._native.places import exec_place as _exec_place
from stf_places._native.reports import ContextStatistics, TraceRecord
from stf_places._native.tasks import task as _task

_Self = TypeVar("_Self", bound="context")
_Shape = SupportsIndex | Sequence[SupportsIndex]

class _HasInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _HasStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class context:
    """Own a sequential flow of tasks: what they read and write decides what waits for what.

    Parameters
    ----------
    use_graph : bool
        False: tasks run on streams. True: they are recorded as nodes of a CUDA graph, which is launched at the end, and
        before whatever waits for values (`wait`, the body of a task on the host, `fence`).
    stream : int, CudaStream or object with ``__cuda_stream__``, optional
        A stream of the caller's: all work comes behind what is on it already, `finalize` does not wait, and what
        the caller puts on it afterwards comes behind all work.
    handle : async_resources, optional
        Streams to share with other contexts. It has to be one of the machine in use when it was made.
    trace : bool
        Record when tasks and copies ran.

    Raises
    ------
    NotSupported
        If `use_graph` is True and so is `trace`, or the driver cannot capture into a graph (before CUDA 12.3); the
        latter is found when the first task starts.
    TypeError
        If `stream` or `handle` is something else.
    ValueError
        If `stream` is capturing a graph, or the environment names a wrong machine.
    WrongContext
        If `stream` belongs to another machine.

    Notes
    -----
    With graphs, memory of the caller's is read when the graph is launched, not when a task is submitted. Values, order
    and errors are those of a context on streams; the body of a task on the host launches what was recorded so far, and
    host functions (`host_launch`) are nodes.

    A context belongs to one thread at a time; contexts of different threads do not disturb each other. It stays
    with the machine in use when it was made. ``with`` finalizes at the end; a context that is dropped instead is
    finalized then, or at the interpreter's exit, with a `ResourceWarning`.

    Examples
    --------
    >>> import numpy as np
    >>> import stf_places as stf
    >>> x = np.ones(3)
    >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
    ...     data = ctx.logical_data(x, name="x")
    ...     for device in (0, 1):
    ...         with ctx.task(stf.exec_place.device(device), data.rw()) as t:
    ...             t.numpy(0)[:] += device + 1
    >>> x
    array([4., 4., 4.])

    The same as a graph: on a simulated machine the work of a task is what `task.run` records.

    >>> with stf.use_machine("sim:h200x2"), stf.context(use_graph=True) as ctx:
    ...     data = ctx.logical_data(x, name="x")
    ...     for device in (0, 1):
    ...         with ctx.task(stf.exec_place.device(device), data.rw()) as t:
    ...             t.run(lambda values: np.multiply(values, 2, out=values), t.get_arg_cai(0))
    >>> x
    array([16., 16., 16.])
    """

    def __init__(
        self,
        use_graph: bool = False,
        *,
        stream: int | _HasStream | None = None,
        handle: async_resources | None = None,
        trace: bool = False,
    ) -> None: ...
    def __enter__(self: _Self) -> _Self:
        """Return the context.

        Raises
        ------
        ContextClosed
            If it was finalized.
        """
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Finalize. A body's exception goes on; a failure to finalize is then added as its note."""
    def logical_data(
        self, buf: NDArray[Any] | _HasInterface | Buffer, dplace: data_place | None = None, name: str | None = None
    ) -> _logical_data:
        """Register memory of the caller's as logical data; its value goes back there at the end.

        Parameters
        ----------
        buf : array or buffer
            A NumPy array, an object with ``__cuda_array_interface__``, a `DeviceArray`, or anything with a
            buffer; C-contiguous. It is kept alive for as long as it is used.
        dplace : data_place, optional
            Where the memory is: the host by default, the place of a `DeviceArray`; needed for other objects with
            ``__cuda_array_interface__``.
        name : str, optional
            For messages and reports.

        Returns
        -------
        logical_data
            Of the same shape and dtype. Read-only if the memory is.

        Raises
        ------
        TypeError
            If `buf` has no memory to work on, holds Python objects or is masked, or `name` is no string.
        ValueError
            If the memory is not C-contiguous, or `dplace` is missing or does not fit.
        InvalidDevice
            If the machine has no such device.
        ContextClosed
            If the context was finalized.

        Notes
        -----
        Until `finalize` (with a caller's stream: until that stream is synchronised) the memory belongs to the
        context: its contents are those of the value only now and then. A CUDA Array Interface that names a
        stream is waited for.
        """
    def logical_data_empty(
        self, shape: _Shape, dtype: DTypeLike | None = None, name: str | None = None, *, no_export: bool = False
    ) -> _logical_data:
        """Make data without a value: a task has to write it first.

        Parameters
        ----------
        shape : int or sequence of int
            Lengths of the axes; 0 and the empty sequence are possible.
        dtype : dtype-like, optional
            float64 by default.
        name : str, optional
            For messages and reports.
        no_export : bool
            Keep the data in the scope that made it.

        Raises
        ------
        TypeError
            If the dtype holds Python objects or has no size, or `shape` or `name` is something else.
        ValueError
            If a length is negative or the data would have 2**63 bytes or more.
        ContextClosed
            If the context was finalized.
        """
    def logical_data_full(
        self,
        shape: _Shape,
        fill_value: object,
        dtype: DTypeLike | None = None,
        where: data_place | None = None,
        exec_place: _exec_place | None = None,
        name: str | None = None,
    ) -> _logical_data:
        """Make data that has one value everywhere.

        Parameters
        ----------
        shape : int or sequence of int
            Lengths of the axes.
        fill_value : scalar
            The value.
        dtype : dtype-like, optional
            Elements of 1, 2, 4, 8 or 16 bytes; by default the type of `fill_value`.
        where : data_place, optional
            Where the value lies at first; by default the memory of `exec_place`.
        exec_place : exec_place, optional
            Where the fill runs; by default beside `where`, else on the current device.
        name : str, optional
            For messages and reports.

        Raises
        ------
        TypeError
            If elements have another size or hold Python objects, or an argument is of the wrong kind.
        ValueError
            If `fill_value` is an array, or `shape` is impossible.
        OverflowError
            If `dtype` cannot hold the value.
        InvalidDevice
            If the machine has no such device.
        OutOfMemory
            If the data does not fit.
        ContextClosed
            If the context was finalized.
        """
    def logical_data_zeros(self, shape: _Shape, dtype: DTypeLike | None = None, **kwargs: Any) -> _logical_data:
        """Return ``logical_data_full(shape, 0, dtype, **kwargs)``, float64 by default; raises as that."""
    def logical_data_ones(self, shape: _Shape, dtype: DTypeLike | None = None, **kwargs: Any) -> _logical_data:
        """Return ``logical_data_full(shape, 1, dtype, **kwargs)``, float64 by default; raises as that."""
    def token(self) -> _logical_data:
        """Make a token: data without a value, which only orders the tasks that name it.

        Raises
        ------
        ContextClosed
            If the context was finalized.
        """
    def task(
        self,
        *args: dep | _exec_place,
        symbol: str | None = None,
        cost: float | None = None,
        priority: int = 0,
        sms: int = 0,
        waves: int = 1,
    ) -> _task:
        """Make a task. It starts when it is entered.

        Parameters
        ----------
        *args : dep or exec_place
            What it reads and writes, in the order in which the body asks for it, and at most one place. Without
            a place it runs on the current device.
        symbol : str, optional
            Name for messages and reports.
        cost : float, optional
            Expected duration in microseconds. A simulated machine takes it at its word.
        priority : int
            Higher is more urgent.
        sms : int
            How many SMs of the place the work fills on a simulated machine, so that others can run beside it; 0: all.
        waves : int
            How many rounds of thread blocks the work has on a simulated machine; between two of them more urgent work
            can take the SMs.

        Raises
        ------
        TypeError
            If an argument is neither, or there are two places.
        ValueError
            If `cost` or `sms` is negative, or `waves` below 1.
        ContextClosed
            If the context was finalized.
        """
    def cuda_kernel(self, *args: dep | _exec_place, symbol: str | None = None) -> _cuda_kernel:
        """Make a task for CUDA kernels: `cuda_kernel.launch` puts them on its stream, or into the graph.

        Parameters
        ----------
        *args : dep or exec_place
            What the kernels read and write, and at most one place, as for `task`.
        symbol : str, optional
            Name for messages and reports.

        Raises
        ------
        TypeError
            If an argument is neither, or there are two places.
        ContextClosed
            If the context was finalized.
        """
    def host_launch(
        self,
        *deps: dep,
        fn: Callable[..., object],
        args: Sequence[object] | None = None,
        symbol: str | None = None,
    ) -> None:
        """Call ``fn(*arrays, *args)`` once the data is complete, without waiting here.

        Parameters
        ----------
        *deps : dep
            Each but the tokens gives `fn` a NumPy array over host memory; what is only read is read-only.
        fn : callable
            The function.
        args : tuple or list, optional
            What it gets behind the arrays.
        symbol : str, optional
            Name for messages and reports.

        Raises
        ------
        TypeError
            If `fn` cannot be called, `args` is no sequence, or a dependency is something else.
        ValueError
            If a dependency asks for memory other than the host's.
        ContextClosed, WrongContext, TaskStateError, PoisonedData, OutOfMemory, DriverError
            As `task.start`.

        Notes
        -----
        On a GPU machine `fn` runs on a thread of the driver's, on a simulated machine during a later call that
        waits. An exception of `fn` is raised by the next `wait`, `finalize` or `check_errors`. `fn` must not call
        CUDA or this context, and must not keep the arrays: copy what is to stay. What it was given is released
        on the main thread. If the interpreter shuts down first, `fn` is not called.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
        ...     data = ctx.logical_data_ones(4)
        ...     ctx.host_launch(data.read(), fn=lambda array, label: print(label, array.sum()), args=("sum",))
        sum 4.0
        """
    def wait(self, ld: _logical_data) -> NDArray[Any] | None:
        """Wait for data and return a copy of its value in host memory; None for a token.

        Raises
        ------
        TypeError
            If it is no logical data.
        WrongContext
            If it belongs to another context.
        ContextClosed
            If the context was finalized.
        TaskStateError
            If nothing has written it, or a task that writes it is open.
        PoisonedData
            If a failed task left it half-written.
        KeyboardInterrupt
            If a signal arrives meanwhile; waiting again is possible.
        Exception
            Whatever a host function has raised since the last time that somebody asked.
        """
    def fence(self) -> int:
        """Return a stream's handle that is complete once all tasks submitted so far are.

        Raises
        ------
        ContextClosed
            If the context was finalized.
        TaskStateError
            If a task is open.
        """
    def check_errors(self) -> None:
        """Raise the oldest exception of a host function that nobody was told of yet, if there is one."""
    def finalize(self) -> None:
        """Write values back, wait for all work and release everything. A second call does nothing.

        With a caller's stream it does not wait: values are back once that stream is synchronised.

        Raises
        ------
        TaskStateError
            If a task is open.
        DeviceLost
            If the device is lost; the text lists what was not written back. The context is closed.
        DriverError
            If the driver refuses.
        KeyboardInterrupt
            If a signal arrives meanwhile; calling again is possible.
        Exception
            The oldest that a host function has raised; `check_errors` raises the others.
        """
    @property
    def closed(self) -> bool:
        """True once it was finalized."""
    @property
    def place_resources(self) -> exec_place_resources:
        """The context's streams by place, for `exec_place.pick_stream`; not to be used after `finalize`.

        Raises
        ------
        ContextClosed
            If the context was finalized.
        """
    @property
    def stats(self) -> ContextStatistics:
        """What was asked of the driver so far."""
    @property
    def trace(self) -> list[TraceRecord]:
        """When tasks and copies ran; complete after `finalize`.

        Raises
        ------
        ValueError
            If the context was made without ``trace=True``.
        """
