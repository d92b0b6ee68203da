"""Warp kernels in task bodies: devices, streams and arrays of a task as Warp's own objects, and launches.

On a GPU a launch goes on the task's stream. On a simulated machine, and on the host, the kernel is compiled for
Warp's ``cpu`` device and runs on the CPU, in the order of the task's stream.

Functions that take `work` accept a task, or a shard of one (`task.shards`): its place, stream and copies are then used.

Examples
--------
>>> import warp as wp
>>> from stf_places.interop import warp as stf_warp
>>> with ctx.task(place, x.read(), y.rw()) as t:  # doctest: +SKIP
...     stf_warp.launch(t, saxpy, dim=n, inputs=[2.0, stf_warp.array(t, 0), stf_warp.array(t, 1)])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from stf_places._native.partitions import is_adopted, require_usable_here
from stf_places.errors import InvalidDevice, NotSupported
from stf_places.interop.warp_devices import _warp, mapped_device, primary

if TYPE_CHECKING:
    from stf_places._native.places import exec_place
    from stf_places.places import CudaStream

__all__ = ["array", "device", "launch", "stream"]

#: Warp stream objects kept for reuse; past this number they are made anew.
KEPT_STREAMS = 256

_OWN_ARGUMENTS = ("device", "stream", "record_cmd")


def device(place: exec_place) -> Any:
    """Return a Warp device for a place.

    Parameters
    ----------
    place : exec_place
        A device, a partition or the host. A grid stands for its first place.

    Returns
    -------
    warp.Device
        ``cuda:N`` for device N of a real machine, ``cpu`` for the host and on a simulated machine. For a partition a
        device over its green context, mapped once for each context and unmapped when the place is gone.

    Raises
    ------
    ImportError
        If Warp is not installed.
    InvalidDevice
        If Warp does not see the device.

    Notes
    -----
    `launch`, `array` and `stream` do not need it for a partition: they use the place's stream on the whole device,
    which costs no second loading of modules and leaves the current context alone. On an H200 a launch
    costs the same both ways (12 to 14 us). Arrays of `array` belong to the whole device; kernels of a mapped
    device read them as they share its memory.
    """
    from stf_places._native import runtime

    single = _single(place, 0)
    require_usable_here(single)
    if not runtime.current().simulated and single.backing_context is not None:
        return mapped_device(single)
    return _device_of(single, runtime.current().simulated)


def stream(work: Any, index: int = 0) -> Any:
    """Return the stream of a task or shard as a Warp stream.

    Parameters
    ----------
    work : task or shard
        The open task, or a shard of it.
    index : int
        Which place of a grid task.

    Returns
    -------
    warp.Stream
        A view: it does not own the stream. The same object each time while it is kept.

    Raises
    ------
    ImportError
        If Warp is not installed.
    NotSupported
        If the work runs on a simulated machine or on the host, which have no CUDA stream.
    IndexError
        If the grid has no such place.
    """
    place, handle = _place_and_stream(work, index)
    if handle.simulated or place.kind == "host":
        raise NotSupported(
            f"Warp streams are CUDA streams: {place!r} has none; launch with stf_places.interop.warp.launch, which "
            "works everywhere"
        )
    with primary(place):
        return _stream_of(place, int(handle))


def array(
    work: Any,
    index: int,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    ndim: int | None = None,
) -> Any:
    """Return the memory of a dependency as a Warp array, without a copy.

    Parameters
    ----------
    work : task or shard
        The open task, or a shard of it.
    index : int
        Position among the task's dependencies.
    dtype : Warp type, optional
        Element type; by default what the NumPy type stands for. A vector, quaternion or matrix type takes the
        trailing dimensions: data of shape (n, 3) and ``wp.vec3`` give n vectors.
    shape : sequence of int, optional
        Another shape of the same number of bytes.
    ndim : int, optional
        1 flattens; another number has to be that of the array.

    Returns
    -------
    warp.array
        Valid while the task is open. Warp has no read-only arrays: a kernel that writes to what the task only reads
        is not noticed.

    Raises
    ------
    ImportError
        If Warp is not installed.
    TypeError
        If the dependency is a token, or Warp's type does not fit NumPy's.
    ValueError
        If trailing dimensions, `shape` or `ndim` do not fit the data.
    """
    place, handle = _place_and_stream(work, 0)
    view = work.get_arg_cai(index)
    target = _device_of(place, handle.simulated)
    element, folded = _element(view.dtype, dtype, tuple(view.shape), index)
    if shape is not None:
        folded = _reshaped(folded, tuple(shape), index)
    if ndim is not None and ndim != len(folded):
        if ndim != 1:
            raise ValueError(
                f"argument {index} has shape {folded}: ndim is {len(folded)}, or 1 to flatten; got {ndim}"
            )
        folded = (math.prod(folded),)
    return _warp().array(ptr=view.ptr or None, dtype=element, shape=folded, device=target)


def launch(
    work: Any,
    kernel: Any,
    dim: int | Sequence[int],
    inputs: Iterable[Any] = (),
    outputs: Iterable[Any] = (),
    *,
    index: int = 0,
    **kwargs: Any,
) -> None:
    """Launch a Warp kernel as work of a task or shard.

    Parameters
    ----------
    work : task or shard
        The open task, or a shard of it.
    kernel : warp.Kernel
        The kernel.
    dim : int or sequence of int
        Number of threads along each dimension.
    inputs, outputs : iterable
        The kernel's arguments.
    index : int
        Which place of a grid task, the first by default: one launch runs on one place.
    **kwargs
        Further arguments of ``warp.launch``, but for `device`, `stream` and `record_cmd`.

    Raises
    ------
    ImportError
        If Warp is not installed.
    TypeError
        If a keyword argument is one that this function sets.
    TaskStateError
        If the task is not open.

    Notes
    -----
    Asynchronous everywhere: on a simulated machine the kernel is compiled and its arguments are checked here, and
    it runs when its turn in the stream comes (``task.run``). The current CUDA context and Warp's default device
    and streams are the same afterwards as before.
    """
    taken = [name for name in _OWN_ARGUMENTS if name in kwargs]
    if taken:
        raise TypeError(
            f"launch() takes {', '.join(taken)} from the task: leave it out, or call warp.launch yourself"
        )
    wp = _warp()
    place, handle = _place_and_stream(work, index)
    arguments = {"dim": dim, "inputs": list(inputs), "outputs": list(outputs), **kwargs}
    if not handle.simulated and place.kind != "host":
        with primary(place):
            wp.launch(kernel, stream=_stream_of(place, int(handle)), **arguments)
        return
    command = wp.launch(kernel, device=_device_of(place, True), record_cmd=True, **arguments)
    if command is not None:  # None: no threads
        run = getattr(work, "run", None) or work.task.run
        run(command.launch)


def _place_and_stream(work: Any, index: int) -> tuple[exec_place, CudaStream]:
    """Return the single place and the stream of a shard, or of one place of a task."""
    if hasattr(work, "task"):
        return work.place, work.stream
    handle = work.get_stream_at_index(index)
    return _single(work.exec_place, index), handle


def _single(place: exec_place, index: int) -> exec_place:
    """Return one place of a grid, another place as it is."""
    return place.get_place(index) if place.kind == "grid" else place


def _device_of(place: exec_place, simulated: bool) -> Any:
    """Return the Warp device on which the work of a single place is launched.

    A green context is reached through its streams; another context of somebody's needs a device of its own.
    """
    if simulated or place.kind == "host":
        return _warp().get_device("cpu")
    if _stands_alone(place):
        return mapped_device(place)
    with primary(place):  # Warp's first call looks at every device and changes the current context
        return _cuda_device(place.device_id)


@cache
def _cuda_device(ordinal: int) -> Any:
    """Return Warp's device over the primary context of a CUDA device."""
    wp = _warp()
    count = wp.get_cuda_device_count()
    if ordinal >= count:
        raise InvalidDevice(
            f"Warp {wp.__version__} sees {count} CUDA device(s), not device {ordinal}: "
            "its requirements on driver and GPU may be higher (warp.print_diagnostics() tells)"
        )
    return wp.get_cuda_device(ordinal)


def _stands_alone(place: exec_place) -> bool:
    """Return whether the place has a context that is no green one: its streams are of no use to the whole device."""
    return is_adopted(place) and not getattr(place.backing_context, "is_green", False)


def _stream_of(place: exec_place, handle: int) -> Any:
    """Return Warp's view of a stream of a place. The device's primary context is current."""
    if _stands_alone(place):
        return _kept_stream(mapped_device(place).alias, handle)
    return _kept_stream(_cuda_device(place.device_id).alias, handle)


@lru_cache(maxsize=KEPT_STREAMS)
def _kept_stream(alias: str, handle: int) -> Any:
    """Return Warp's view of a stream, the same while it is kept."""
    return _warp().Stream(_warp().get_device(alias), cuda_stream=handle)


@cache
def _warp_type(dtype: np.dtype[Any]) -> Any:
    """Return the Warp type of a NumPy type."""
    try:
        return _warp().dtype_from_numpy(dtype)
    except TypeError as error:
        raise TypeError(
            f"Warp has no type for NumPy's {dtype}: pass dtype=, a vector, matrix or struct type of the same layout"
        ) from error


def _element(numpy_type: Any, dtype: Any, shape: tuple[int, ...], index: int) -> tuple[Any, tuple[int, ...]]:
    """Return the Warp element type and the shape that is left of the data's."""
    if dtype is None:
        return _warp_type(np.dtype(numpy_type)), shape
    scalar = getattr(dtype, "_wp_scalar_type_", None)
    inner = tuple(dtype._shape_) if scalar is not None else ()
    expected = dtype.numpy_dtype() if hasattr(dtype, "numpy_dtype") else _numpy_type(scalar or dtype)
    if np.dtype(expected) != np.dtype(numpy_type):
        raise TypeError(
            f"argument {index} holds {np.dtype(numpy_type)}, {_name(dtype)} is made of {np.dtype(expected)}: "
            "convert the data, or leave dtype out"
        )
    if inner and shape[-len(inner) :] != inner:
        raise ValueError(
            f"{_name(dtype)} takes trailing dimensions {inner}: argument {index} has shape {shape}"
        )
    return dtype, shape[: len(shape) - len(inner)]


@cache
def _numpy_type(scalar: Any) -> Any:
    """Return the NumPy type of a Warp scalar type."""
    scalar = {float: _warp().float32, int: _warp().int32}.get(scalar, scalar)
    return _warp().dtype_to_numpy(scalar)


def _name(dtype: Any) -> str:
    """Return a type's name for messages."""
    return str(getattr(dtype, "__name__", dtype))


def _reshaped(shape: tuple[int, ...], wanted: tuple[int, ...], index: int) -> tuple[int, ...]:
    """Return the wanted shape if it has the same number of elements."""
    if math.prod(shape) != math.prod(wanted) or any(n < 0 for n in wanted):
        raise ValueError(
            f"shape of argument {index} must keep its {math.prod(shape)} elements {shape}: got {wanted}"
        )
    return wanted
