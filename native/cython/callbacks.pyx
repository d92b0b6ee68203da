# distutils: language = c++
cimport cython
from cpython.exc cimport PyErr_SetInterrupt
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libcpp cimport bool as cbool

import threading
from traceback import clear_frames

from stf_places.errors import StfError

cdef extern from "cython/release_queue.hpp" namespace "stf_places" nogil:
    cdef cppclass ReleaseQueue:
        void push(ReleaseNode*) noexcept
        cbool pending() noexcept
        void drain() noexcept
    cbool interpreter_is_finalizing() noexcept

cdef ReleaseQueue* queue = new ReleaseQueue()  # never destroyed: the driver's threads may outlive this module
cdef long main_thread = threading.main_thread().ident


@cython.final
cdef class HostCall:
    cdef void call(self) noexcept:
        cdef ContextState state = self.state  # `forget` can come meanwhile
        try:
            self.result = self.fn(*self.args)
        except KeyboardInterrupt as interrupt:
            if <long>PyThread_get_thread_ident() != main_thread:
                state.errors.append(interrupt)
                return
            # Ctrl-C met a function that a simulated machine ran within a wait: it is the wait that has to end.
            clear_frames(interrupt.__traceback__)
            state.errors.append(interrupted(self.fn, interrupt))
            PyErr_SetInterrupt()
        except BaseException as error:
            # Its frames hold arrays over memory that is theirs during the call only.
            clear_frames(error.__traceback__)
            state.errors.append(error)

    cdef void forget(self):
        self.fn = None
        self.args = None
        self.result = None
        self.state = None


cdef object interrupted(object fn, object interrupt):
    name = getattr(fn, "__qualname__", repr(fn))
    error = StfError(f"{name} was interrupted (Ctrl-C), so what it was to write is incomplete: write it again")
    error.__cause__ = interrupt
    return error


cdef HostCall make_call(ContextState state, object fn, tuple args):
    cdef HostCall call = HostCall.__new__(HostCall)
    call.node.object = <PyObject*>call
    call.state = state
    call.fn = fn
    call.args = args
    return call


cdef void* hand_over(HostCall call):
    Py_INCREF(call)
    return &call.node


cdef void take_back(HostCall call):
    Py_DECREF(call)


cdef void run_call(void* argument) noexcept nogil:
    # A thread that asks for the GIL of an interpreter that shuts down never comes back.
    if interpreter_is_finalizing():
        return
    with gil:
        (<HostCall>(<ReleaseNode*>argument).object).call()


cdef void run_and_release_call(void* argument) noexcept nogil:
    if interpreter_is_finalizing():
        return
    with gil:
        finish_call(<HostCall>(<ReleaseNode*>argument).object)
    release_call(argument)


cdef void finish_call(HostCall call) noexcept:
    # What the context has given up must not run any more.
    cdef ContextState state = call.state
    if state is not None:
        call.call()
        state.calls.discard(call)


cdef void release_call(void* argument) noexcept nogil:
    if interpreter_is_finalizing():
        return
    queue.push(<ReleaseNode*>argument)


cdef void keep_call(void* argument) noexcept nogil:
    pass


cdef int drain_released() except -1:
    if queue.pending() and <long>PyThread_get_thread_ident() == main_thread:
        queue.drain()
    return 0
