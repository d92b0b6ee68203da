"""Arrays in the memory of a data place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from stf_places._native.dlpack import make_capsule
from stf_places._native.memory import Allocation
from stf_places._native.places import data_place as _DataPlace
from stf_places.errors import NotSupported
from stf_places.places.strided import Key, Strided, checked_shape

__all__ = ["DeviceArray"]

# DLPack's device types and type codes (dlpack.h).
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13
_DL_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
# Streams by number in the array API standard: 1 is the legacy default stream, -1 asks for no order.
_LEGACY_STREAM, _NO_ORDER = 1, -1


def _checked_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if found.hasobject:
        raise TypeError(f"a device array holds plain bytes: dtype {found} refers to Python objects")
    if found.itemsize == 0:
        raise TypeError(
            f"a device array has elements of one byte or more: dtype {found} has none; give a size"
        )
    return found


class DeviceArray:
    """Hold an array in memory of a data place.

    Parameters
    ----------
    size : int or sequence of int
        Number of elements, or the shape; C order.
    dtype : dtype-like
        Any NumPy dtype without Python objects.
    dplace : data_place
        Where; not affine.
    stream : None, int, CudaStream or object with ``__cuda_stream__``
        The stream whose order the memory and the copies follow. None: the device's default stream, and every
        stream may use the array at once.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind, or the dtype cannot lie in device memory.
    ValueError
        If a length is negative, the array has 2**63 bytes or more, or the place is affine.
    InvalidDevice
        If the machine has no such device.
    OutOfMemory
        If the place has no room.

    Notes
    -----
    The elements are not initialised. Slices are views that keep the whole block. The block is given back
    once, when the last array, view or DLPack consumer of it goes, on the machine that it was made on and in
    the order of its stream; work on other streams has to be complete by then. The array keeps the stream
    object; a stream given as an int has to outlive it.

    `__cuda_array_interface__` describes the memory: the array has to outlive what borrows it. `__dlpack__`
    carries a reference: the memory lives as long as the consumer's tensor.

    Examples
    --------
    >>> import numpy as np
    >>> from stf_places.machines import use_machine
    >>> from stf_places.places import DeviceArray, data_place
    >>> with use_machine("sim:tiny"):
    ...     array = DeviceArray.from_host(np.arange(6.0).reshape(2, 3), data_place.device(0))
    ...     array[:, 1].copy_to_host()
    array([1., 4.])
    """

    __slots__ = ("__weakref__", "_allocation", "_dtype", "_layout")

    def __init__(self, size: object, dtype: DTypeLike, dplace: _DataPlace, stream: object = None) -> None:
        if not isinstance(dplace, _DataPlace):
            raise TypeError(f"dplace is a data_place: got {dplace!r} ({type(dplace).__name__})")
        self._dtype = _checked_dtype(dtype)
        self._layout = Strided.contiguous(checked_shape(size), self._dtype.itemsize)
        if dplace.kind in ("affine", "replicated"):
            raise ValueError(
                f"an array needs one place with memory: got data_place.{dplace.kind}(), which depends on the places of "
                "a task; give data_place.device(i), host(), managed() or composite(grid, spec)"
            )
        self._allocation = Allocation(dplace, self._layout.shape, self._dtype.itemsize, stream)

    @staticmethod
    def from_host(host_array: ArrayLike, dplace: _DataPlace, stream: object = None) -> DeviceArray:
        """Return a new array with a copy of host data.

        Parameters
        ----------
        host_array : array-like
            The data; its shape and dtype become the array's.
        dplace : data_place
            Where; not affine.
        stream : None, int, CudaStream or object with ``__cuda_stream__``
            As for `DeviceArray`.

        Raises
        ------
        TypeError, ValueError, InvalidDevice, OutOfMemory
            As `DeviceArray`.
        DriverError
            If the copy fails.
        """
        host = np.asarray(host_array)
        array = DeviceArray(host.shape, host.dtype, dplace, stream)
        array.copy_to_device(host)
        return array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """One length an axis."""
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """One stride an axis, in bytes."""
        return self._layout.strides

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._layout.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._layout.nbytes

    @property
    def data_place(self) -> _DataPlace:
        """The place that holds the memory."""
        return self._allocation.place

    @property
    def ptr(self) -> int:
        """Address of the first element, 0 when the block is empty."""
        return self._allocation.address + self._layout.offset if self._allocation.nbytes else 0

    def __len__(self) -> int:
        """Return the length of the first axis."""
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __getitem__(self, key: Key) -> DeviceArray:
        """Return a view; ints drop their axis, slices keep it.

        Raises
        ------
        IndexError
            If an int is out of range, or there are more indices than axes.
        TypeError
            If an index is no int, slice or ``...``.
        """
        view = DeviceArray.__new__(DeviceArray)
        view._dtype = self._dtype
        view._layout = self._layout.select(key)
        view._allocation = self._allocation
        return view

    def __repr__(self) -> str:
        """Return what it is and where it lies."""
        return f"<DeviceArray shape={self.shape} dtype={self.dtype} on {self.data_place!r}>"

    def copy_to_host(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a copy in host memory, behind what precedes on the array's stream.

        Returns
        -------
        numpy.ndarray
            C-contiguous, of the array's shape and dtype. Zeros on a simulated machine that moves no bytes.

        Raises
        ------
        DriverError
            If the copy fails.
        """
        make = np.empty if self._allocation.executes else np.zeros
        host = make(self.shape, self._dtype)
        if self.size:
            layout = self._layout
            self._allocation.copy_to_host(
                host.ctypes.data, layout.offset, layout.shape, layout.strides, layout.itemsize
            )
        return host

    def copy_to_device(self, host_array: ArrayLike) -> None:
        """Copy host data into this array, behind what precedes on its stream, and wait.

        Parameters
        ----------
        host_array : array-like
            As many bytes as this array, in C order; sequences are converted to the array's dtype.

        Raises
        ------
        ValueError
            If the number of bytes is another.
        DriverError
            If the copy fails.
        """
        dtype = None if hasattr(host_array, "dtype") else self._dtype
        host = np.ascontiguousarray(host_array, dtype)
        if host.nbytes != self.nbytes:
            raise ValueError(
                f"the source has as many bytes as the array, {self.nbytes} (shape {self.shape}, "
                f"{self.dtype}): got {host.nbytes} (shape {np.shape(host_array)}, {host.dtype})"
            )
        if self.size:
            layout = self._layout
            self._allocation.copy_from_host(
                host.ctypes.data, layout.offset, layout.shape, layout.strides, layout.itemsize
            )

    def _interface(self) -> dict[str, Any]:
        interface = {
            "shape": self.shape,
            "typestr": self._dtype.str,
            "data": (self.ptr, False),
            "strides": None if self._layout.is_contiguous else self.strides,
            "version": 3,
        }
        if self._dtype.names is not None:
            interface["descr"] = self._dtype.descr
        return interface

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory as the CUDA Array Interface (version 3) describes it; nothing is kept alive by it.

        On a simulated machine the address is the host's: NumPy reads it through ``__array_interface__``, and
        CUDA libraries must not be given it.
        """
        return {**self._interface(), "stream": self._allocation.stream or None}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory as NumPy's interface describes it, where the CPU may use it.

        Raises
        ------
        AttributeError
            If the memory is a device's.
        """
        self._require_host(AttributeError)
        self._allocation.synchronize()
        return self._interface()

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the memory as a NumPy array, where the CPU may use it.

        Raises
        ------
        NotSupported
            If the memory is a device's.
        ValueError
            If ``copy=False`` and another dtype is asked for.
        """
        self._require_host(NotSupported)
        host = np.asarray(_HostView(self))
        if dtype is not None and np.dtype(dtype) != self._dtype:
            if copy is False:
                raise ValueError(
                    f"a change of dtype needs a copy: got copy=False, {self._dtype} to {np.dtype(dtype)}"
                )
            return host.astype(dtype)
        return host.copy() if copy else host

    def _require_host(self, error: type[Exception]) -> None:
        if not self._allocation.on_host:
            raise error(
                f"the CPU cannot use memory of {self.data_place!r}: copy_to_host() returns a NumPy array "
                "with a copy"
            )
        if not self._allocation.executes:
            raise error("this simulated machine moves no bytes (execute=False): the array has no values")

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and the device's ordinal; the CPU on a simulated machine."""
        if self._allocation.simulated:
            return (_DL_CPU, 0)
        if self._allocation.device_id >= 0:
            return (_DL_CUDA, self._allocation.device_id)
        return (_DL_CUDA_HOST if self.data_place.kind == "host" else _DL_CUDA_MANAGED, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Export the array as a ``"dltensor"`` capsule that keeps the memory alive.

        Parameters
        ----------
        stream : int, optional
            The consumer's stream, which is made to wait for the array's: None and 1 are the legacy default
            stream, 2 the per-thread one, other numbers a ``CUstream``; -1 asks for no order. On a simulated
            machine, and with None for memory that the CPU can use, the array's stream is waited for instead.
        max_version : tuple of int, optional
            Accepted; the capsule is unversioned.
        dl_device : tuple of int, optional
            Only the array's own device.
        copy : bool, optional
            True is refused.

        Raises
        ------
        BufferError
            If the dtype has no counterpart in DLPack, another device or a copy is asked for, or the machine
            moves no bytes.
        ValueError
            If the stream is 0, which the standard leaves without a meaning, or below -1.
        TypeError
            If the stream is no int.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"the array lies on DLPack device {device}: got dl_device={tuple(dl_device)}")
        if copy:
            raise BufferError(
                "the export shares memory: for copy=True use copy_to_host() or DeviceArray.from_host"
            )
        code = _DL_CODES.get(self._dtype.kind)
        if code is None or not self._dtype.isnative or self._dtype.names is not None:
            raise BufferError(
                f"DLPack has native integers, floats, complex numbers and bool: got dtype {self._dtype}"
            )
        if not self._allocation.executes:
            self._require_host(BufferError)
        self._order_before(stream)
        itemsize = self._dtype.itemsize
        strides = tuple(stride // itemsize for stride in self.strides)
        return make_capsule(self._allocation, self.ptr, self.shape, strides, code, 8 * itemsize, device)

    def _order_before(self, stream: int | None) -> None:
        """Put the consumer's stream behind the array's."""
        if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int)):
            raise TypeError(f"stream is None or an int in __dlpack__: got {stream!r}")
        if stream == 0 or (stream is not None and stream < _NO_ORDER):
            raise ValueError(f"stream is None, -1, 1, 2 or a stream's handle in __dlpack__: got {stream}")
        if self._allocation.nbytes == 0:
            return
        if self._allocation.simulated or (stream is None and self._allocation.device_id < 0):
            self._allocation.synchronize()  # the consumer may be the CPU, which waits for no stream
        elif stream != _NO_ORDER:
            self._allocation.order_before(_LEGACY_STREAM if stream is None else stream)


class _HostView:
    """Hand NumPy the interface alone, so that it does not call `DeviceArray.__array__` again."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: DeviceArray) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__
