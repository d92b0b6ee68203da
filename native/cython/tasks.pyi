"""Tasks: where they run, what they were given, and the work put in them."""

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, SupportsIndex

from numpy.typing import NDArray

from stf_places._native.data import logical_data
from stf_places._native.places import exec_place as _exec_place
from stf_places._native.views import stf_cai
from stf_places.flow.shards import Shard
from stf_places.partitions import AxisRule, Partition
from stf_places.partitions.composites import Composite
from stf_places.places.streams import CudaStream

class task:
    """Put work behind the data that it needs. Made by `context.task`.

    Use it as a context manager, or call `start` and `end`. Between the two its arguments have memory on their
    data places, its streams are behind whatever the task depends on, and the device of its place is current.
    A body puts its work on the task's streams and does not wait for it; the body of a task on the host place
    begins once its data is complete. A body that raises poisons the data that the task was to write.

    Notes
    -----
    Pointers, views and streams are valid until the task ends. A task that is dropped while it is open is ended
    as failed, with a `ResourceWarning`.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
    ...     a, b = ctx.logical_data_full(3, 2.0), ctx.logical_data_empty(3)
    ...     with ctx.task(stf.exec_place.device(1), a.read(), b.write(), symbol="square") as t:
    ...         t.numpy(1)[:] = t.numpy(0) ** 2
    ...     ctx.wait(b)
    array([4., 4., 4.])
    """

    def __enter__(self) -> task:
        """Start the task; raises as `start`."""
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """End the task unless the body did. A body's exception goes on; a failure to end is added as its note."""
    def start(self) -> task:
        """Bring the data and open the task; returns the task.

        Raises
        ------
        ContextClosed
            If the context was finalized.
        WrongContext
            If data belongs to another context.
        TaskStateError
            If it was started before, if nothing has written what it reads, if its data is in use by a task that
            is open, or if another thread is using the context.
        PoisonedData
            If it reads what a failed task left half-written.
        InvalidDevice
            If the machine has no such device.
        OutOfMemory
            If the data does not fit.
        ValueError
            If a grid has no data place for a dependency that names none.
        DriverError
            If the driver refuses.
        """
    def end(self) -> None:
        """Close the task.

        Raises
        ------
        TaskStateError
            If it is not open.
        DriverError
            If the driver refuses.
        """
    def set_exec_place(self, place: _exec_place) -> None:
        """Choose the place, before the task starts.

        Raises
        ------
        TypeError
            If it is no place.
        TaskStateError
            If the task has started.
        """
    def set_symbol(self, name: str) -> None:
        """Give a name for messages and reports, before the task starts.

        Raises
        ------
        TypeError
            If it is no string.
        TaskStateError
            If the task has started.
        """
    @property
    def symbol(self) -> str | None:
        """The name, None if it has none."""
    @property
    def state(self) -> Literal["created", "open", "ended"]:
        """How far the task is."""
    @property
    def exec_place(self) -> _exec_place | None:
        """Where it runs. If no place was given: the current device while the task is open, else None."""
    def __len__(self) -> int:
        """Return the number of dependencies, tokens included."""
    def index(self, data: logical_data) -> int:
        """Return the position of data among the dependencies.

        Raises
        ------
        ValueError
            If it is none of them.
        """
    def readonly(self, index: SupportsIndex) -> bool:
        """Tell whether the task only reads an argument.

        Raises
        ------
        IndexError
            If there is no such argument.
        """
    def get_arg(self, index: SupportsIndex, place_index: SupportsIndex = 0) -> int:
        """Return the address of an argument in the memory of its data place.

        Parameters
        ----------
        index : int
            Position among the dependencies, tokens included, from 0.
        place_index : int
            Number of the place in the grid whose copy is meant, for an argument on `data_place.replicated`; others
            have one address.

        Raises
        ------
        TaskStateError
            If the task is not open.
        TypeError
            If the argument is a token.
        IndexError
            If there is no such argument or place.
        """
    def get_arg_cai(self, index: SupportsIndex, place_index: SupportsIndex = 0) -> stf_cai:
        """Return an argument as a CUDA Array Interface object.

        Parameters
        ----------
        index, place_index : int
            As for `get_arg`.

        Raises
        ------
        TaskStateError
            If the task is not open.
        TypeError
            If the argument is a token.
        IndexError
            If there is no such argument.
        """
    def args_cai(self) -> None | stf_cai | tuple[stf_cai, ...]:
        """Return the arguments that are no tokens: None for none, the object itself for one, else a tuple.

        Raises
        ------
        TaskStateError
            If the task is not open.
        """
    def numpy(self, index: SupportsIndex, place_index: SupportsIndex = 0) -> NDArray[Any]:
        """Return a NumPy view of an argument whose memory the CPU can use.

        That is any argument on a simulated machine, and one on the host on a GPU machine. What the task only
        reads cannot be written through the view.

        Parameters
        ----------
        index, place_index : int
            As for `get_arg`.

        Raises
        ------
        TaskStateError
            If the task is not open.
        TypeError
            If the argument is a token.
        IndexError
            If there is no such argument.
        NotSupported
            If the memory is a GPU's, or the machine moves no bytes.

        Notes
        -----
        The view must not be used after the task's end: its memory can then be overwritten, or belong to other
        data once the context is finalized. Copy what is to stay.
        """
    def run(self, fn: Callable[..., object], *args: object) -> None:
        """Do ``fn(*args)`` as work of the task.

        On a simulated machine the call is put on the task's stream and is made when its turn comes, as a kernel's
        would be; an exception of `fn` is then raised by the next blocking call of the context. On the host place
        and on a GPU machine it is made at once.

        Raises
        ------
        TypeError
            If `fn` cannot be called.
        TaskStateError
            If the task is not open.
        """
    def run_on(self, place_index: SupportsIndex, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        """Do ``fn(*args)`` as work on one place of a grid; what `Shard.run` calls.

        Raises
        ------
        TypeError
            If `fn` cannot be called.
        TaskStateError
            If the task is not open.
        IndexError
            If there is no such place.
        """
    def shards(
        self,
        index: SupportsIndex,
        halo: SupportsIndex | Sequence[SupportsIndex] = 0,
        *,
        partition: Partition | AxisRule | None = None,
    ) -> list[Shard]:
        """Return what each place of the grid does of an argument: boxes of it, with the place and its stream.

        Parameters
        ----------
        index : int
            Position of the argument among the dependencies.
        halo : int or sequence of int
            Elements by which each box is widened at either side, for all axes or one number an axis; boxes end at the
            border of the array.
        partition : Partition or AxisRule, optional
            How the argument lies over the task's grid. None: as its composite data place says, its own or that of the
            grid.

        Returns
        -------
        list of Shard
            In the order of the places, and for a place in the order of its boxes; a place that owns nothing has none.
            Where grid axes are replicated, the places of the first copy. On a single place one shard of everything.

        Raises
        ------
        TaskStateError
            If the task is not open.
        TypeError
            If an argument is of the wrong kind, or the task's argument is a token.
        IndexError
            If there is no such argument.
        ValueError
            If there is no partition, a halo is negative or not one width an axis, or boxes with gaps (of cyclic rules)
            are to be widened.
        PartitionError
            If the partition does not fit the argument or the grid.
        NotSupported
            If the data place is a mapper's, which has no boxes.

        Notes
        -----
        What is launched on the stream of a shard runs beside the other places' work; the task ends when all are done.
        On a simulated machine each place is taken to touch its boxes of all arguments of this shape: what is read with
        the halo, what is written without, but for an argument that the task only writes and whose shards these are. Two
        places that touch the same bytes, one of them writing, are a race then. The last call counts.

        Examples
        --------
        >>> import numpy as np
        >>> import stf_places as stf
        >>> grid = stf.exec_place_grid.from_devices([0, 1]).with_data(stf.partition(stf.blocked("x"), stf.whole))
        >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
        ...     image = ctx.logical_data_zeros((6, 4), np.float32)
        ...     with ctx.task(grid, image.rw()) as t:
        ...         for shard in t.shards(0, halo=(1, 0)):
        ...             shard.start, shard.shape, shard.inner[0]
        ((0, 0), (4, 4), slice(0, 3, 1))
        ((2, 0), (4, 4), slice(1, 4, 1))
        """
    def spec_of(self, index: SupportsIndex) -> Composite | None:
        """Return what lays an argument over a grid, None if nothing does. For use within the package.

        Raises
        ------
        TypeError
            If the argument is a token.
        IndexError
            If there is no such argument.
        """
    def part(
        self,
        index: SupportsIndex,
        place_index: SupportsIndex,
        offset: SupportsIndex,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> stf_cai:
        """Return a part of an argument, from `offset` bytes on. For use within the package.

        Raises
        ------
        IndexError
            If there is no such argument or place.
        """
    def touch(self, place_index: SupportsIndex, parts: Iterable[tuple[int, int, int, int, bool]]) -> None:
        """Tell what a place touches: rows (argument, offset, bytes, bytes used, write). For use within the package.

        Raises
        ------
        IndexError
            If there is no such argument or place.
        """
    def arguments(self) -> list[tuple[tuple[int, ...] | None, Any, int]]:
        """Return shape, dtype and mode (1 read, 2 write, 3 both) of each argument. For use within the package."""
    def stream_ptr(self) -> CudaStream:
        """Return the task's stream; of a grid task the stream of its first place.

        Raises
        ------
        TaskStateError
            If the task is not open.
        """
    def get_grid_dims(self) -> tuple[int, int, int, int] | None:
        """Return the shape of the grid that the task runs on, padded with ones; None for a single place."""
    def get_stream_at_index(self, place_index: SupportsIndex) -> CudaStream:
        """Return the stream of one place of the grid, in C order.

        Raises
        ------
        TaskStateError
            If the task is not open.
        IndexError
            If there is no such place.
        """
    def get_stream_ptrs(self) -> list[CudaStream]:
        """Return the streams of all places of the grid, in C order.

        Raises
        ------
        TaskStateError
            If the task is not open.
        """
