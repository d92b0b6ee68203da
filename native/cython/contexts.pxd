# Contexts.
from stf_places._native.data cimport logical_data
from stf_places._native.places cimport exec_place_resources
from stf_places._native.state cimport ContextState

cdef class context:
    cdef ContextState state
    cdef exec_place_resources resources
    cdef bint owns_resources
    cdef object abandoned       # weakref.finalize: finalizes a context that the program forgot
    cdef object __weakref__
    cdef int require_usable(self) except -1
    cdef object own(self, object data, str what)
    cdef ContextState taking(self, str what)
    cdef int require_no_scope(self, str what) except -1

cdef int finish(ContextState state) except -1
