# What a context shares with its data and tasks: the C++ context, and the Python objects that must outlive work.
from libc.stdint cimport uint64_t
from libcpp.memory cimport shared_ptr

from stf_places._native.core cimport Context
from stf_places._native.runtime cimport RuntimeHandle

cdef class ContextState:
    cdef shared_ptr[Context] value
    cdef RuntimeHandle runtime
    cdef bint on_caller_stream
    cdef uint64_t next_key
    cdef dict sources   # key of a data -> the object whose memory it uses; entries leave when that use is over
    cdef list errors    # exceptions of host callbacks, oldest first, until somebody is told
    cdef set calls      # host functions that have not run yet; of a scope: all that it calls
    cdef bint stackable
    cdef ContextState root    # of a scope: the outermost context; else None
    cdef ContextState around  # of a scope: the one that it stands in
    cdef ContextState inner   # of an outermost context: the innermost scope that is open, None without one
    cdef list levels          # of an outermost context: scopes that are open, the innermost last
    cdef list scopes          # and those that were recorded and are not released
    cdef list kept            # of a scope: data of contexts around that it uses
    cdef uint64_t number      # tells scopes apart
    cdef bint scopes_only     # tasks belong into scopes
    cdef ContextState head(self)
    cdef int keep(self, object data) except -1
    cdef uint64_t hold(self, object source)
    cdef int raise_pending(self) except -1
    cdef int require_usable(self) except -1
