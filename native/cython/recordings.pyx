# distutils: language = c++
cimport cython

from stf_places._native.callbacks cimport HostCall, drain_released, take_back
from stf_places._native.core cimport ScopeState
from stf_places._native.signals cimport stf_python_interrupt

cdef uint64_t recordings = 0


@cython.final
@cython.no_gc_clear
cdef class Recorded:
    def __dealloc__(self):
        # The last owner of the C++ scope waits for its launches: never with the GIL.
        with nogil:
            self.value.reset()

    cdef int finish(self) except -1:
        with nogil:
            self.value.get().finish(stf_python_interrupt())
        return 0

    cdef int run(self) except -1:
        with nogil:
            self.value.get().run(stf_python_interrupt())
        return 0

    cdef int leave(self) except -1:
        self.left = True
        with nogil:
            self.value.get().leave_behind()
        return 0

    cdef int release(self) except -1:
        with nogil:
            self.value.get().release(stf_python_interrupt())
        return self.give_back()

    # What a scope that is released does not need any more.
    cdef int give_back(self) except -1:
        cdef set calls = self.state.calls
        self.state.calls = set()
        self.state.kept = []
        for call in calls:
            (<HostCall>call).forget()
            take_back(<HostCall>call)
        return 0


cdef Recorded open_recording(ContextState root, ScopeKind kind, uint64_t count, cbool logged):
    global recordings
    cdef Recorded made = Recorded.__new__(Recorded)
    cdef ContextState around = root.head()
    let_go_of_released(root)
    with nogil:
        made.value = Scope.open(around.value, kind, count, logged)
    recordings += 1
    made.around = around
    made.state = ContextState.__new__(ContextState)
    made.state.runtime = root.runtime
    made.state.value = made.value.get().context()
    made.state.errors = root.errors
    made.state.stackable = True
    made.state.root = root
    made.state.around = around
    made.state.number = recordings
    root.inner = made.state
    root.scopes.append(made)
    return made


cdef int close_recording(ContextState root, Recorded made) except -1:
    root.inner = None if made.around is root else made.around
    return 0


cdef int let_go_of_released(ContextState root) except -1:
    cdef Recorded one
    cdef list left = []
    for one in root.scopes:
        if one.value.get().state() == ScopeState.released:
            one.give_back()
        else:
            left.append(one)
    root.scopes = left
    drain_released()
    return 0


cdef int discard(ContextState root, Recorded made) except -1:
    close_recording(root, made)
    with nogil:
        made.value.get().discard()
    let_go_of_released(root)
    return 0


cdef int run_once(ContextState root, Recorded made) except -1:
    try:
        made.finish()
    except BaseException:
        discard(root, made)
        raise
    close_recording(root, made)
    try:
        made.run()
    finally:
        made.leave()
    return 0


cdef int finish_scopes(ContextState root) except -1:
    cdef Recorded one
    while root.scopes:
        one = root.scopes[0]  # a graph before the loops in it
        one.release()
        root.scopes.pop(0)
    return 0


cdef int abandon_scopes(ContextState root) except -1:
    cdef Recorded one
    root.levels = []
    for one in reversed(root.scopes):
        if one.value.get().state() == ScopeState.recording:
            discard(root, one)
    root.inner = None
    finish_scopes(root)
    return 0


cdef Recorded innermost(ContextState root):
    cdef Recorded one
    for one in reversed(root.scopes):
        if one.state is root.inner:
            return one
    return None
