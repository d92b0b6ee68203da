# Grids of places, as values.
from stf_places._native.places cimport exec_place

cdef class exec_place_grid(exec_place):
    cdef readonly tuple places           # exec_place objects in C order
    cdef readonly tuple axes             # the name of each axis
    cdef tuple _dims                     # one length an axis, not padded

    cdef exec_place_grid arranged(self, tuple shape, tuple axes)
