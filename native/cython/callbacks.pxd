# Python functions that the driver calls: the records that own them, and their way back to the main thread.
from cpython.ref cimport PyObject

from stf_places._native.state cimport ContextState

cdef extern from "cython/release_queue.hpp" namespace "stf_places" nogil:
    cdef cppclass ReleaseNode:
        PyObject* object

# One call. From enqueueing on, the driver owns a reference; `release_call` gives it back.
cdef class HostCall:
    cdef ReleaseNode node
    cdef ContextState state
    cdef object fn
    cdef tuple args
    cdef object result
    cdef void call(self) noexcept
    cdef void forget(self)

cdef HostCall make_call(ContextState state, object fn, tuple args)
# Takes a reference for the driver and returns the argument of its host functions.
cdef void* hand_over(HostCall call)
# Takes that reference back: the driver did not want it.
cdef void take_back(HostCall call)
# Host functions for the driver.
cdef void run_call(void* argument) noexcept nogil               # runs it
cdef void run_and_release_call(void* argument) noexcept nogil   # runs it and gives it back
cdef void release_call(void* argument) noexcept nogil           # gives it back
cdef void keep_call(void* argument) noexcept nogil              # does nothing
# Destroys what callbacks have left, if this is the main thread.
cdef int drain_released() except -1
