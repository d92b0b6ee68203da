# Recordings: scopes of the core with the Python objects that they need.
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr

from stf_places._native.core cimport Scope, ScopeKind
from stf_places._native.state cimport ContextState

cdef class Recorded:
    cdef shared_ptr[Scope] value
    cdef ContextState state     # of its own context
    cdef ContextState around    # of the context that it stands in
    cdef bint left              # nobody launches it any more
    cdef int finish(self) except -1
    cdef int run(self) except -1
    cdef int leave(self) except -1      # to be released once its launches are done
    cdef int release(self) except -1    # waits for them
    cdef int give_back(self) except -1

# Opens one as the innermost of a context.
cdef Recorded open_recording(ContextState root, ScopeKind kind, uint64_t count, cbool logged)
# What is around it is the innermost again.
cdef int close_recording(ContextState root, Recorded made) except -1
cdef int discard(ContextState root, Recorded made) except -1
# Runs a graph that is recorded, once.
cdef int run_once(ContextState root, Recorded made) except -1
cdef int let_go_of_released(ContextState root) except -1
# Waits for what scopes have launched, and releases it.
cdef int finish_scopes(ContextState root) except -1
# Forgets what is being recorded, and the graphs that were.
cdef int abandon_scopes(ContextState root) except -1
# The recording that tasks go into, None at the root.
cdef Recorded innermost(ContextState root)
