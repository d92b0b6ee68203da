# Memory that callers register: where it is, what lies there, and who keeps it alive.
from libc.stdint cimport uint64_t

from stf_places._native.core cimport DataPlace
from stf_places._native.places cimport data_place
from stf_places._native.runtime cimport RuntimeHandle

cdef class Source:
    cdef uint64_t address
    cdef tuple shape
    cdef object dtype
    cdef bint readonly
    cdef DataPlace place
    cdef object keep

# Describes a NumPy array, a CUDA Array Interface object, a DeviceArray or a buffer.
cdef Source describe(object buf, data_place dplace, RuntimeHandle runtime)
