# Memory that a program asked for itself, released when the last reference goes.
from libc.stdint cimport int64_t, uint64_t
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from stf_places._native.places cimport DataPlace, data_place
from stf_places._native.runtime cimport Runtime, RuntimeHandle

cdef extern from "core/allocation.hpp" namespace "stf_places" nogil:
    cdef cppclass StridedArray:
        uint64_t address
        uint64_t block
        DataPlace place
        vector[int64_t] shape
        vector[int64_t] strides
        size_t itemsize

cdef class Allocation:
    cdef shared_ptr[Runtime] machine     # the memory's own machine, also after another one is in use
    cdef RuntimeHandle runtime
    cdef readonly data_place place
    cdef readonly uint64_t address       # 0 for no bytes
    cdef readonly size_t nbytes
    cdef readonly uint64_t stream
    cdef object stream_object            # kept alive: the memory goes back in this stream's order

    cdef StridedArray region(self, Py_ssize_t offset, shape, strides, size_t itemsize) except *
