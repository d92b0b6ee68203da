# What a place made of some SMs holds of them.
from libc.stdint cimport uint64_t
from libcpp.memory cimport shared_ptr

from stf_places._native.runtime cimport RuntimeHandle

cdef extern from "core/sm_pool.hpp" namespace "stf_places" nogil:
    cdef cppclass Partition:
        pass

cdef class SmPartition:
    cdef RuntimeHandle runtime
    cdef uint64_t stream                 # of open_stream
    cdef shared_ptr[Partition] value
