# distutils: language = c++
cimport cython
from cpython.exc cimport PyErr_WarnEx, PyErr_WriteUnraisable
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from stf_places._native.composites cimport bound_value
from stf_places._native.errors cimport raise_stf_error
from stf_places._native.places cimport DataKind, DataPlace, data_place
from stf_places._native.runtime cimport Runtime, RuntimeHandle, current_runtime
from stf_places._native.signals cimport Interrupt, stf_python_interrupt
from stf_places._native.stream_arguments cimport stream_handle_on

cdef extern from "core/allocation.hpp" namespace "stf_places" nogil:
    uint64_t allocate_at(Runtime&, const DataPlace&, size_t, uint64_t) except +raise_stf_error
    string try_free_at(Runtime&, const DataPlace&, uint64_t, uint64_t) noexcept
    void copy_to_host(Runtime&, const StridedArray&, void*, uint64_t, const Interrupt&) except +raise_stf_error
    void copy_from_host(Runtime&, const void*, const StridedArray&, uint64_t, const Interrupt&) except +raise_stf_error
    void synchronize_at(Runtime&, const DataPlace&, uint64_t, const Interrupt&) except +raise_stf_error
    void order_streams(Runtime&, const DataPlace&, uint64_t, uint64_t) except +raise_stf_error


@cython.no_gc_clear
cdef class Allocation:
    def __init__(self, data_place place not None, tuple shape, size_t itemsize, stream=None):
        cdef RuntimeHandle runtime = current_runtime()
        cdef uint64_t handle = stream_handle_on(stream, runtime)
        cdef size_t nbytes = itemsize
        cdef uint64_t address
        if self.place is not None:
            raise RuntimeError("an Allocation is initialised once")
        for length in shape:
            nbytes *= length
        if nbytes:
            place = bound_value(place, shape, itemsize, runtime)
        with nogil:
            address = allocate_at(runtime.value.get()[0], place.value, nbytes, handle)
        self.runtime = runtime
        self.machine = runtime.value
        self.place = place
        self.nbytes = nbytes
        self.stream = handle
        self.stream_object = stream
        self.address = address

    def __dealloc__(self):
        # Without the GIL: a free enqueues, and enqueues can block.
        cdef string failure
        if self.address != 0:
            with nogil:
                failure = try_free_at(self.machine.get()[0], self.place.value, self.address, self.stream)
            if not failure.empty() and PyErr_WarnEx(ResourceWarning, failure.c_str(), 1) < 0:
                PyErr_WriteUnraisable(None)
        with nogil:
            self.machine.reset()

    @property
    def device_id(self):
        if self.place.value.kind == DataKind.composite and self.place.value.pages != NULL:
            return self.place.value.home()
        return self.place.value.device

    @property
    def simulated(self):
        return self.machine.get().simulated()

    @property
    def executes(self):
        return self.machine.get().driver().executes()

    @property
    def on_host(self):
        return self.simulated or self.place.value.kind == DataKind.host

    cdef StridedArray region(self, Py_ssize_t offset, shape, strides, size_t itemsize) except *:
        cdef StridedArray array
        array.address = self.address + <uint64_t>offset
        array.block = self.address
        array.place = self.place.value
        array.itemsize = itemsize
        for length, stride in zip(shape, strides):
            array.shape.push_back(length)
            array.strides.push_back(stride)
        return array

    def copy_to_host(self, uintptr_t host, Py_ssize_t offset, tuple shape, tuple strides, size_t itemsize):
        cdef StridedArray array = self.region(offset, shape, strides, itemsize)
        with nogil:
            copy_to_host(self.machine.get()[0], array, <void*>host, self.stream, stf_python_interrupt())

    def copy_from_host(self, uintptr_t host, Py_ssize_t offset, tuple shape, tuple strides, size_t itemsize):
        cdef StridedArray array = self.region(offset, shape, strides, itemsize)
        with nogil:
            copy_from_host(self.machine.get()[0], <const void*>host, array, self.stream, stf_python_interrupt())

    def synchronize(self):
        with nogil:
            synchronize_at(self.machine.get()[0], self.place.value, self.stream, stf_python_interrupt())

    def order_before(self, uint64_t stream):
        with nogil:
            order_streams(self.machine.get()[0], self.place.value, self.stream, stream)
