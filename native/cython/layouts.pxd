# Layouts of arrays over places; the handle shares its layout with composite data places.
from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from stf_places._native.errors cimport raise_stf_error

cdef extern from "core/layouts.hpp" namespace "stf_places" nogil:
    cdef cppclass LayoutAxis:
        int64_t length
        int64_t block
        vector[int64_t] places
    cdef cppclass AxisRanges:
        int64_t start
        int64_t stride
        int64_t length
        int64_t count
        int64_t stop
        int64_t step
    cdef cppclass PageRun:
        int64_t place
        int64_t first
        int64_t count
    cdef cppclass Layout:
        Layout(vector[LayoutAxis], int64_t) except +raise_stf_error
        size_t rank() const
        int64_t place_count() const
        int64_t size() const
        void owners(const int64_t*, size_t, int64_t*) except +raise_stf_error
        AxisRanges ranges(size_t, int64_t) except +raise_stf_error
        vector[int64_t] parts_of(int64_t) except +raise_stf_error
        vector[int64_t] elements() except +raise_stf_error
        vector[PageRun] pages(size_t, size_t) except +raise_stf_error
        int64_t misplaced(size_t, size_t) except +raise_stf_error

cdef class LayoutHandle:
    cdef shared_ptr[Layout] layout
