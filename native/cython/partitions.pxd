# What a place made of some SMs holds of them.
from libcpp.memory cimport shared_ptr

from stf_places._native.runtime cimport RuntimeHandle

cdef extern from "core/sm_pool.hpp" namespace "stf_places" nogil:
    cdef cppclass Partition:
        pass

# Released without calling the driver, so with the GIL.
cdef class SmPartition:
    cdef RuntimeHandle runtime
    cdef shared_ptr[Partition] value
