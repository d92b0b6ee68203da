# Tasks.
from stf_places._native.core cimport Task
from stf_places._native.data cimport dep
from stf_places._native.places cimport exec_place
from stf_places._native.state cimport ContextState

cdef class task:
    cdef Task value
    cdef ContextState owner
    cdef tuple args             # as given to context.task; keeps the data alive
    cdef Py_ssize_t place_at    # index of the place in args, or a number beyond all of them
    cdef exec_place place       # None: none given
    cdef bint replicates        # an argument is on a replicated place
    cdef int open(self) except -1
    cdef int close(self, bint failed) except -1
    cdef str label(self)
    cdef int require_created(self, str what) except -1
    cdef int require_open(self, str what) except -1
    cdef dep dependency(self, Py_ssize_t index)
    cdef dep buffer_at(self, Py_ssize_t index, str what)
    cdef int use_place(self, exec_place place) except -1
    cdef int bind_affine(self) except -1
    cdef int check_replicated(self) except -1
    cdef size_t place_number(self, Py_ssize_t place_index) except? 0
    cdef object view(self, Py_ssize_t index, dep access, size_t at)
    cdef object stream_at(self, size_t index)

# Gives a new task what `what` was called with: dependencies and at most one place.
cdef int set_up(task result, ContextState state, tuple args, object symbol, str what) except -1
cdef task make_task(ContextState state, tuple args, object symbol, object cost, int priority, int sms,
                    int waves)
# Puts one dependency of `context.task` or `host_launch` on a C++ task.
cdef int add_dependency(Task* value, dep access) except -1
# The TypeError for an argument that is none of what `what` takes.
cdef object wrong_argument(object argument, str what, str accepted)
# Adds to `error` that `later` went wrong while it was being dealt with; `error` is what the caller sees.
cdef int note_failure(object error, object later, str what) except -1
