# distutils: language = c++
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint64_t

import numpy as np

from stf_places.errors import NotSupported

cdef object ndarray = np.ndarray
cdef char nothing = 0  # what an empty range points to
cdef str LATER = ("work of a graph context runs when the graph is launched, so there is nothing to look at yet: put the "
                  "work in with run(fn, task.get_arg_cai(i), ...), which is recorded, or use a context on streams")


@cython.final
cdef class HostMemory:
    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.address, self.nbytes, self.readonly, flags)


cdef object host_array(uint64_t address, size_t nbytes, bint readonly, object owner, tuple shape, object dtype):
    cdef HostMemory memory = HostMemory.__new__(HostMemory)
    memory.address = <void*>address if nbytes else <void*>&nothing
    memory.nbytes = nbytes
    memory.readonly = readonly
    memory.owner = owner
    return ndarray(shape, dtype, memory)


cdef object refuse_view():
    raise NotSupported(LATER)


cdef object array_of(stf_cai view):
    if view.strides is None:
        return host_array(view.ptr, view.nbytes, view.readonly, view, view.shape, view.dtype)
    cdef size_t extent = 0
    if view.nbytes:
        extent = view.dtype.itemsize + sum([(length - 1) * stride
                                            for length, stride in zip(view.shape, view.strides)])
    cdef object memory = host_array(view.ptr, extent, view.readonly, view, (extent,), np.dtype(np.uint8))
    return ndarray(view.shape, view.dtype, memory, 0, view.strides)


cdef stf_cai part_of(stf_cai whole, size_t offset, tuple shape, tuple strides):
    cdef stf_cai part = stf_cai.__new__(stf_cai)
    part.ptr = whole.ptr + offset
    part.shape = shape
    part.strides = strides
    part.dtype = whole.dtype
    part.readonly = whole.readonly
    part.nbytes = whole.dtype.itemsize
    for length in shape:
        part.nbytes *= length
    part.on_host = whole.on_host
    part.recorded = whole.recorded
    part.owner = whole.owner
    return part


cdef uint64_t address_of(object array):
    return array.__array_interface__["data"][0]


@cython.final
cdef class stf_cai:
    def __init__(self):
        raise TypeError("stf_cai objects come from an open task: task.get_arg_cai(index) or task.args_cai()")

    @property
    def __cuda_array_interface__(self):
        return self.interface({"stream": None})

    @property
    def __array_interface__(self):
        if not self.on_host or self.recorded:
            raise AttributeError("__array_interface__: the argument is in a GPU's memory, or its task's work runs later")
        return self.interface({})

    def __array__(self, dtype=None, copy=None):
        if not self.on_host:
            raise NotSupported(
                "NumPy reads host memory only, and this argument is in a GPU's memory: run the task on "
                "exec_place.host(), or copy the value with ctx.wait(data)")
        if self.recorded:
            refuse_view()
        array = array_of(self)
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError(f"a view cannot change dtype {self.dtype} to {np.dtype(dtype)}: allow a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __repr__(self):
        return (f"stf_cai(ptr={self.ptr:#x}, shape={self.shape}, dtype={self.dtype}, "
                f"readonly={self.readonly})")

    cdef dict interface(self, dict fields):
        fields["shape"] = self.shape
        fields["typestr"] = self.dtype.str
        fields["data"] = (self.ptr, self.readonly)
        fields["strides"] = self.strides
        fields["version"] = 3
        if self.dtype.names is not None:
            fields["descr"] = self.dtype.descr
        return fields
