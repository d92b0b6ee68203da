# context.host_launch: a Python function that waits for data, without blocking the caller.
from stf_places._native.state cimport ContextState

cdef int launch_on_host(ContextState state, tuple deps, object fn, object args, object symbol) except -1
