# Places as values. The C++ values are what the core takes; the Python objects add what only Python needs.
from libc.stdint cimport uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.runtime cimport RuntimeHandle

cdef extern from "core/place_contexts.hpp" namespace "stf_places" nogil:
    cdef cppclass PlaceContext:
        uint64_t handle() const
        int device() const
        int sm_count() const
        uint64_t open_stream(int) except +raise_stf_error

cdef extern from "core/places.hpp" namespace "stf_places" nogil:
    cdef enum class DataKind "stf_places::DataPlace::Kind"(uint8_t):
        affine
        host
        managed
        device
        composite
        replicated
    cdef enum class ExecKind "stf_places::ExecPlace::Kind"(uint8_t):
        current
        host
        device
        context
        grid
    cdef cppclass PageMap:
        pass
    cdef cppclass DataPlace:
        DataKind kind
        int device
        const PageMap* pages
        int home() const
        cbool operator==(const DataPlace&) const
    cdef cppclass ExecPlace:
        ExecKind kind
        int device
        uint64_t context
        unsigned generation
        shared_ptr[PlaceContext] owner
        cbool operator==(const ExecPlace&) const

cdef extern from "core/streams.hpp" namespace "stf_places" nogil:
    cdef cppclass StreamPool:
        uint64_t next(const ExecPlace&, cbool) except +raise_stf_error

cdef int ordinal(object dev_id) except -1

cdef class data_place:
    cdef DataPlace value
    cdef object spread      # Composite of a composite place, else None
    cdef object over        # the grid of a replicated place, else None

    @staticmethod
    cdef data_place of(DataPlace value)

cdef class exec_place:
    cdef object __weakref__
    cdef ExecPlace value
    cdef data_place _affine              # None unless set_affine_data_place was called on this object
    cdef RuntimeHandle made_on           # machine of a place with a context, and of a grid that has one: outlives it
    cdef object _backing                 # what `backing_context` returns
    cdef object partition                # SmPartition: the hold on the SMs of a place of green_places(), else None

    cdef exec_place copied(self)
    cdef str text(self)

cdef class exec_place_resources:
    cdef shared_ptr[StreamPool] pool
    cdef RuntimeHandle runtime

cdef class async_resources(exec_place_resources):
    pass
