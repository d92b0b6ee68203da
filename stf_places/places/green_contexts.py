"""Contexts behind places: what `backing_context` returns, views by the older names, and contexts of others."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from stf_places.errors import NotSupported
from stf_places.places.sm_partitions import GreenPlaces, green_places

if TYPE_CHECKING:
    from stf_places._native.partitions import SmPartition
    from stf_places._native.places import exec_place

__all__ = ["GreenContext", "green_context_helper", "green_ctx_view"]


@dataclass(frozen=True)
class SmCount:
    """Tell how many SMs a context has."""

    sm_count: int


@dataclass(frozen=True)
class ContextResources:
    """Tell what a context was made with, under the names of cuda.core."""

    sm: SmCount


class GreenContext:
    """Stand for the green context behind a place of `green_places`.

    It has the face of a cuda.core ``Context`` (`handle`, `is_green`, `resources`, `close`), exists on a simulated
    machine too, and keeps the context alive.

    Notes
    -----
    Closing it gives up this object's share only: the place and its streams go on working.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     place = stf.green_places(16, 1)[0]
    ...     place.backing_context.is_green, place.backing_context.resources.sm.sm_count
    (True, 16)
    """

    is_green = True

    def __init__(self, partition: SmPartition) -> None:
        self._partition: SmPartition | None = partition
        self._identity = (id(partition.machine), partition.handle)

    @property
    def handle(self) -> int | None:
        """The raw ``CUcontext`` as an int; None once closed."""
        return None if self._partition is None else self._partition.handle

    @property
    def is_closed(self) -> bool:
        """True once `close` was called."""
        return self._partition is None

    @property
    def device_id(self) -> int:
        """Ordinal of the device.

        Raises
        ------
        ValueError
            If it is closed.
        """
        return self._open().device_id

    @property
    def resources(self) -> ContextResources:
        """What it was made with: ``resources.sm.sm_count``.

        Raises
        ------
        ValueError
            If it is closed.
        """
        return ContextResources(SmCount(self._open().sm_count))

    def to_cuda_core(self) -> Any:
        """Return a cuda.core ``Context`` of the same handle, for functions that ask for one.

        Returns
        -------
        cuda.core.Context
            It does not own the context: keep this object or the place.

        Raises
        ------
        ImportError
            If cuda.core is not installed.
        NotSupported
            If the machine is simulated: CUDA does not know the context.
        ValueError
            If it is closed.
        """
        held = self._open()
        if held.machine.simulated:
            raise NotSupported(f"{self!r} is of a simulated machine: cuda.core knows contexts of CUDA only")
        try:
            core = import_module("cuda.core")
        except ModuleNotFoundError as error:
            raise ImportError("cuda.core is not installed: pip install 'stf-places[cu13]'") from error
        return core.Stream.from_handle(held.open_stream()).context

    def close(self) -> None:
        """Give up this object's share of the context. Can be called again."""
        self._partition = None

    def _open(self) -> SmPartition:
        if self._partition is None:
            raise ValueError(
                "this GreenContext is closed: take place.backing_context again, the place is still there"
            )
        return self._partition

    def __reduce__(self) -> NoReturn:
        """Refuse: a context belongs to its process."""
        raise TypeError(f"{self!r} is bound to this process and cannot be pickled")

    def __eq__(self, other: object) -> bool:
        """Compare by handle."""
        if not isinstance(other, GreenContext):
            return NotImplemented
        both_open = self._partition is not None and other._partition is not None
        return self is other or (both_open and self._identity == other._identity)

    def __hash__(self) -> int:
        """Agree with comparison, and stay the same when it is closed."""
        return hash((GreenContext, self._identity))

    def __repr__(self) -> str:
        """Return handle, device and size."""
        if self._partition is None:
            return "<GreenContext: closed>"
        held = self._partition
        return f"<GreenContext {held.handle:#x}: {held.sm_count} SMs of device {held.device_id}>"


@dataclass(frozen=True)
class green_ctx_view:
    """Stand for one partition of a `green_context_helper`.

    Parameters
    ----------
    place : exec_place
        The place on it.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     view = stf.green_context_helper(64).get_view(1)
    ...     view.sm_count, stf.exec_place.green_ctx(view) == view.place
    (64, True)
    """

    place: exec_place

    @property
    def device_id(self) -> int:
        """Ordinal of the device."""
        return self.place.device_id

    @property
    def sm_count(self) -> int:
        """SMs that were granted."""
        return self.place.sm_count

    @property
    def handle(self) -> int:
        """The raw ``CUcontext`` as an int."""
        return int(self.place.backing_context.handle)


class green_context_helper:
    """Split a device into as many partitions of one size as fit.

    The form of earlier programs; `green_places` does the same and more.

    Parameters
    ----------
    sm_count : int
        SMs a partition.
    dev_id : int
        Ordinal of the device.

    Raises
    ------
    TypeError
        If an argument is no int.
    PartitionError
        If not one fits.
    InvalidDevice
        If there is no such device.
    NotSupported
        If the driver has no green contexts.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     helper = stf.green_context_helper(32)
    ...     helper.get_count(), len(helper), helper.device_id
    (4, 4, 0)
    """

    def __init__(self, sm_count: SupportsIndex, dev_id: SupportsIndex = 0) -> None:
        self._places: GreenPlaces = green_places(sm_count, device_id=dev_id)

    @property
    def device_id(self) -> int:
        """Ordinal of the device."""
        return self._places[0].device_id

    def get_count(self) -> int:
        """Return the number of partitions."""
        return len(self._places)

    def get_view(self, i: SupportsIndex) -> green_ctx_view:
        """Return a partition.

        Raises
        ------
        IndexError
            If there is none of that number.
        """
        number = index(i)
        if not 0 <= number < len(self._places):
            raise IndexError(f"views are numbered 0 to {len(self._places) - 1}: got {number}")
        return green_ctx_view(self._places[number])

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._places)

    def __repr__(self) -> str:
        """Return the sizes and the device."""
        return (
            f"<green_context_helper: {len(self)} x {self._places[0].sm_count} SMs of device {self.device_id}>"
        )


def view_place(view: object) -> exec_place:
    """Return the place of a view.

    Raises
    ------
    TypeError
        If it is no view.
    """
    if not isinstance(view, green_ctx_view):
        raise TypeError(
            f"a green_ctx_view is needed, from green_context_helper(...).get_view(i): got {view!r} "
            f"({type(view).__name__}); for other contexts use exec_place.from_context"
        )
    return view.place


def view_device(view: object) -> int:
    """Return the device ordinal of a view.

    Raises
    ------
    TypeError
        If it is no view.
    """
    return view_place(view).device_id


def place_from_context(ctx: object, dev_id: SupportsIndex = -1) -> exec_place:
    """Return a place on a context of another owner.

    See Also
    --------
    exec_place.from_context
    """
    from stf_places._native.partitions import adopt, on_partition

    device = index(dev_id) if hasattr(type(dev_id), "__index__") and not isinstance(dev_id, bool) else None
    if device is None:
        raise TypeError(f"dev_id is an int, the device's ordinal: got {dev_id!r} ({type(dev_id).__name__})")
    if device < -1:
        raise ValueError(f"device ordinals count from 0, and -1 asks the context: got dev_id={device}")
    if isinstance(ctx, GreenContext) and not ctx.is_closed:
        place = on_partition(ctx._open())
        if device not in (-1, place.device_id):
            raise ValueError(
                f"this context belongs to device {place.device_id}: got dev_id={device}; leave dev_id out"
            )
        return place
    return adopt(_handle_of(ctx), device, _keeping(ctx), ctx)


def _handle_of(ctx: object) -> int:
    """Return the raw handle of a context object.

    Raises
    ------
    TypeError
        If it is no context.
    ValueError
        If it is closed.
    """
    found = ctx
    for name in ("handle", "context"):  # cuda.core and ours; Warp's devices
        if not isinstance(found, int) and hasattr(found, name):
            found = getattr(found, name)
            break
    if ctx is not None and (found is None or getattr(ctx, "is_closed", False)):
        raise ValueError(f"{ctx!r} is closed: a place needs a context that is open")
    if isinstance(found, bool) or not (hasattr(type(found), "__index__") or hasattr(type(found), "__int__")):
        raise TypeError(
            "from_context takes a raw CUcontext as an int, or an object with a handle (cuda.core's Context) or a "
            f"context (Warp's Device): got {ctx!r} ({type(ctx).__name__})"
        )
    if isinstance(found, (str, bytes, float)):
        raise TypeError(f"a context's handle is an int: got {found!r} ({type(found).__name__})")
    handle: int = int(found)  # type: ignore[call-overload]
    if not 0 < handle < 1 << 64:
        raise ValueError(f"{ctx!r} has the handle {handle}, which is no context: closed, or never made?")
    return handle


def _keeping(ctx: object) -> object:
    """Return what keeps a context alive even if its user closes it; None for a handle alone.

    A stream of a cuda.core green context embeds the context.
    """
    if hasattr(type(ctx), "__index__"):
        return None
    if not getattr(ctx, "is_green", False) or not hasattr(ctx, "create_stream"):
        return (ctx,)
    from stf_places._native import runtime
    from stf_places._native.places import exec_place

    device = runtime.current().driver.context_device(_handle_of(ctx))
    with exec_place.device(device):  # cuda.core asks for some context to be current
        return (ctx, ctx.create_stream())
