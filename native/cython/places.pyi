"""Places as values: where tasks run (`exec_place`) and where bytes lie (`data_place`)."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, SupportsIndex, TypeVar

from stf_places._native.grids import exec_place_grid
from stf_places.partitions import AxisRule, Mapper, Partition
from stf_places.places.green_contexts import green_ctx_view
from stf_places.places.streams import CudaStream

_Place = TypeVar("_Place", bound="exec_place")

class data_place:
    """Say where bytes lie. An immutable value: hashable, compared by what it is.

    Made by `device`, `host`, `managed`, `affine`, `current_device`, `composite` and `replicated`. Making one opens no
    machine (but for `current_device`); a device is looked for when the place is first used.

    Examples
    --------
    >>> place = data_place.host()
    >>> place.kind, place == data_place.host()
    ('host', True)
    """

    @staticmethod
    def device(dev_id: SupportsIndex) -> data_place:
        """Return the memory of a device.

        Parameters
        ----------
        dev_id : int
            Ordinal, from 0.

        Raises
        ------
        TypeError
            If it is no int.
        ValueError
            If it is negative.
        """
    @staticmethod
    def host() -> data_place:
        """Return the host's memory; what is allocated there is pinned."""
    @staticmethod
    def managed() -> data_place:
        """Return memory that the driver moves between host and devices at need."""
    @staticmethod
    def affine() -> data_place:
        """Return the stand-in for the data place of whatever place a task runs on."""
    @staticmethod
    def current_device() -> data_place:
        """Return the memory of the device whose context is current on this thread, else of device 0."""
    @staticmethod
    def locality_domain(dev_id: SupportsIndex, domain: SupportsIndex) -> data_place:
        """Return the memory of a locality domain of a device.

        Parameters
        ----------
        dev_id : int
            Ordinal of the device.
        domain : int
            Number of the domain, from 0; `exec_place_grid.locality_domain_count` tells how many there are.

        Returns
        -------
        data_place
            That of the whole device: drivers so far know no domains, so each device is one.

        Raises
        ------
        TypeError
            If an argument is no int.
        InvalidDevice
            If there is no such device.
        IndexError
            If it has no such domain.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x1"):
        ...     data_place.locality_domain(0, 0) == data_place.device(0)
        True
        """
    @staticmethod
    def green_ctx(view: green_ctx_view) -> data_place:
        """Return the memory of a view's device: partitions share it, and the instances of data in it.

        Raises
        ------
        TypeError
            If it is no view of a `green_context_helper`.
        """
    @staticmethod
    def composite(grid: exec_place_grid, spec: Partition | Mapper | AxisRule | Callable[..., Any]) -> data_place:
        """Return memory that is spread over the devices of a grid: one array, its pages where they are used.

        Parameters
        ----------
        grid : exec_place_grid
            Devices and partitions of devices.
        spec : Partition, Mapper, AxisRule or callable
            How data lies over the grid. A rule alone is for data of one axis; a callable is a mapper's function,
            ``fn(data_coords, data_dims, grid_dims) -> coords``.

        Returns
        -------
        data_place
            A value without a shape: what it means for data of a shape is found when the data is first used there.

        Raises
        ------
        TypeError
            If `grid` is no grid, or `spec` nothing that lays data over one.
        PartitionError
            If the grid has a host place, or a device cannot reach the memory of another one: the pair is named. Where
            no machine is open yet, that is found at the first use.

        Notes
        -----
        Data gets one range of addresses, each page of which lies on the device of the place that owns most of its
        bytes (`Layout.pages` tells which; pages have 2 MiB on current GPUs); neighbouring pages of a device are one
        piece of memory. All devices of the grid read and write all of it. Where one device owns all pages, it is an
        ordinary block of that device. Ranges that are no longer used stay mapped for the next data that lies alike,
        until a device is short of room.

        References
        ----------
        CUDASTF, ``data_place.composite(grid, mapper)``. CUDA driver API, virtual memory management.

        Examples
        --------
        >>> import numpy as np
        >>> import stf_places as stf
        >>> grid = stf.exec_place_grid.from_devices([0, 1])
        >>> place = data_place.composite(grid, stf.partition(stf.blocked("x"), stf.whole))
        >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
        ...     image = ctx.logical_data_full((4096, 1024), 1.0, np.float64, where=place)
        ...     with ctx.task(stf.exec_place.device(1), image.rw(place)) as t:
        ...         t.numpy(0)[0] += 1
        ...     total = ctx.wait(image).sum()
        >>> float(total)
        4195328.0
        """
    @staticmethod
    def replicated(grid: exec_place_grid | None = None) -> data_place:
        """Return the stand-in for a copy on each device that a task runs on, for arguments that it only reads.

        Parameters
        ----------
        grid : exec_place_grid, optional
            The devices that may hold copies: a task elsewhere is refused. None: those of the task.

        Raises
        ------
        TypeError
            If it is no grid.
        PartitionError
            If it has a host place.

        Notes
        -----
        `task.get_arg` and `task.get_arg_cai` take the number of the place whose copy is meant; shards do that
        themselves.

        Examples
        --------
        >>> import numpy as np
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
        ...     table = ctx.logical_data(np.arange(3.0))
        ...     with ctx.task(stf.exec_place_grid.from_devices([0, 1]), table.read(data_place.replicated())) as t:
        ...         t.get_arg(0, 0) != t.get_arg(0, 1)
        True
        """
    @property
    def kind(self) -> Literal["host", "device", "managed", "affine", "composite", "replicated"]:
        """What it is."""
    @property
    def device_id(self) -> int:
        """The device's ordinal, -1 for a place that is not a device."""
    @property
    def grid(self) -> exec_place_grid | None:
        """The grid of a composite or replicated place, None for other places."""
    @property
    def spec(self) -> Partition | Mapper | None:
        """How data lies over the grid of a composite place, None for other places."""
    @property
    def allocation_is_stream_ordered(self) -> bool:
        """True where `allocate` and `deallocate` follow the order of a stream."""
    def allocate(self, nbytes: SupportsIndex, stream: object = None) -> int:
        """Allocate memory.

        Parameters
        ----------
        nbytes : int
            Size in bytes; 0 gives the address 0.
        stream : None, int, CudaStream or object with ``__cuda_stream__``
            Device memory is usable by what follows on this stream. None: by every stream, at once.

        Returns
        -------
        int
            The address. On a simulated machine it is host memory.

        Raises
        ------
        TypeError
            If `nbytes` is no int or `stream` is no stream.
        ValueError
            If `nbytes` is negative, or the place is affine.
        InvalidDevice
            If the machine has no such device.
        OutOfMemory
            If the place has no room.
        """
    def deallocate(self, ptr: SupportsIndex, nbytes: SupportsIndex, stream: object = None) -> None:
        """Give memory of `allocate` back.

        Parameters
        ----------
        ptr : int
            The address; 0 is ignored.
        nbytes : int
            The size that was asked for.
        stream : None, int, CudaStream or object with ``__cuda_stream__``
            Device memory goes back behind what precedes on this stream, other memory after a wait for it.

        Raises
        ------
        TypeError
            If an argument is of the wrong type.
        DriverError
            If the address is not of `allocate` of this place.
        """
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

class exec_place:
    """Say where a task runs. An immutable value: hashable, compared by what it is.

    Made by `device`, `host`, `current_device`, `green_places`, `from_context`, `green_ctx` and `rest`.
    ``with place:`` makes its context current on this thread and
    restores what was current before at the block's end, also after an error; blocks nest.

    Notes
    -----
    A place of SMs keeps its green context alive and goes with its last reference; its groups of SMs are then free
    for others. Work reaches it through its streams: the current context stays the device's.

    The affine data place that `set_affine_data_place` sets belongs to the Python object and takes no part in
    comparisons. `repr` reads back; behind a comment sign it says when the machine in use is simulated.

    Examples
    --------
    >>> place = exec_place.device(0)
    >>> place.kind, place.size, place == exec_place.device(0)
    ('device', 1, True)
    """

    @staticmethod
    def device(dev_id: SupportsIndex) -> exec_place:
        """Return a whole device.

        Parameters
        ----------
        dev_id : int
            Ordinal, from 0; looked for when the place is first used.

        Raises
        ------
        TypeError
            If it is no int.
        ValueError
            If it is negative.
        """
    @staticmethod
    def host() -> exec_place:
        """Return the host."""
    @staticmethod
    def current_device() -> exec_place:
        """Return the device whose context is current on this thread, else device 0."""
    @staticmethod
    def from_context(ctx: object, dev_id: SupportsIndex = -1) -> exec_place:
        """Return a place on a context of another owner, such as a green context of cuda.core.

        Parameters
        ----------
        ctx : int or object
            A raw ``CUcontext``, or an object with a `handle` (cuda.core's ``Context``, `GreenContext`) or a `context`
            (Warp's ``Device``). The object is kept while places or streams use the context; a green context of
            cuda.core stays alive even when its user closes it. Whoever gives a raw handle keeps the context open.
        dev_id : int
            Ordinal of its device; -1 asks the driver.

        Returns
        -------
        exec_place
            Compared by the context's handle.

        Raises
        ------
        TypeError
            If it is no context, or `dev_id` no int.
        ValueError
            If the context is closed, or of another device.
        DriverError
            If the driver does not know it.
        """
    @staticmethod
    def green_ctx(view: green_ctx_view, use_green_ctx_data_place: bool = False) -> exec_place:
        """Return the place of a view of `green_context_helper`.

        Parameters
        ----------
        view : green_ctx_view
            From ``helper.get_view(i)``.
        use_green_ctx_data_place : bool
            Set `data_place.green_ctx` of the view as affine data place; it is the device's memory either way.

        Raises
        ------
        TypeError
            If it is no view.
        """
    @staticmethod
    def locality_domain(dev_id: SupportsIndex, domain: SupportsIndex) -> exec_place:
        """Return the place of a locality domain: SMs and memory of a device that lie close to each other.

        Parameters
        ----------
        dev_id : int
            Ordinal of the device.
        domain : int
            Number of the domain, from 0; `exec_place_grid.locality_domain_count` tells how many there are.

        Returns
        -------
        exec_place
            The whole device: drivers so far know no domains, so each device is one.

        Raises
        ------
        TypeError
            If an argument is no int.
        InvalidDevice
            If there is no such device.
        IndexError
            If it has no such domain.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x1"):
        ...     exec_place.locality_domain(0, 0) == exec_place.device(0)
        True
        """
    @staticmethod
    def rest(places: Iterable[exec_place]) -> exec_place:
        """Return the place of all SMs of a split that these places do not hold.

        Parameters
        ----------
        places : iterable of exec_place
            Live places of one split.

        Raises
        ------
        TypeError
            If an item is no place.
        PartitionError
            If they are not places of one split, nothing is left, or another live place holds some of the rest.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x1"):
        ...     urgent = stf.green_places(8, 1)
        ...     exec_place.rest(urgent).sm_count
        124
        """
    @property
    def kind(self) -> Literal["host", "device", "grid"]:
        """What it is."""
    @property
    def device_id(self) -> int:
        """The device's ordinal, -1 for the host and for grids."""
    @property
    def size(self) -> int:
        """Number of places in it: 1 but for grids."""
    @property
    def dims(self) -> tuple[int, int, int, int]:
        """Places along the axes x, y, z and t."""
    @property
    def sm_count(self) -> int:
        """SMs that work on the place can use: granted to a partition, all of a device, 0 for the host.

        Of a grid: the sum over its places.

        Raises
        ------
        InvalidDevice
            If the machine has no such device.
        """
    @property
    def backing_context(self) -> Any:
        """The context behind the place, None for whole devices and the host.

        A `GreenContext` for a place of `green_places`, with ``handle``, ``is_green``, ``resources.sm.sm_count`` and
        ``close``; for one of `from_context` what was given there.
        """
    @property
    def affine_data_place(self) -> data_place | None:
        """What `data_place.affine()` means for a task here; None for a grid whose places share none."""
    def set_affine_data_place(self, dplace: data_place) -> None:
        """Set what `data_place.affine()` means for tasks on this object; other objects are left alone.

        Raises
        ------
        TypeError
            If it is no data place.
        ValueError
            If it is `data_place.affine()` itself.
        """
    def get_place(self, idx: SupportsIndex) -> exec_place:
        """Return the place with a linear index, in C order.

        Raises
        ------
        IndexError
            If there is none.
        """
    def pick_stream(self, resources: exec_place_resources, for_computation: bool = True) -> CudaStream:
        """Return a stream of this place (a grid: of its first), the next in turn.

        Parameters
        ----------
        resources : exec_place_resources
            Owns the stream.
        for_computation : bool
            False: a stream for transfers.

        Raises
        ------
        ValueError
            If the resources belong to a context that was finalized.
        InvalidDevice
            If the machine has no such device.
        """
    def __enter__(self: _Place) -> _Place:
        """Make the place's context current on this thread; nothing for the host.

        Raises
        ------
        TypeError
            If it is a grid.
        InvalidDevice
            If the machine has no such device.
        """
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Make current again what was current before.

        Raises
        ------
        TaskStateError
            If it is not the innermost block of this thread.
        """
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

class exec_place_resources:
    """Own the streams of places, for `exec_place.pick_stream` and for contexts.

    Notes
    -----
    It belongs to the machine in use when it was made. Its streams are destroyed with it; work that was given to
    them still completes.

    Examples
    --------
    >>> resources = exec_place_resources()  # doctest: +SKIP
    >>> stream = exec_place.device(0).pick_stream(resources)  # doctest: +SKIP
    """

    def __init__(self) -> None: ...

class async_resources(exec_place_resources):
    """Resources to hand to several contexts, which then share streams. Must outlive them."""
