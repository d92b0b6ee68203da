# distutils: language = c++
cimport cython
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move

from stf_places._native.core cimport Context

from stf_places.errors import ContextClosed

# Not cleared by the collector: data and tasks still need it while they are taken down. Its containers can be.
@cython.final
@cython.no_gc_clear
cdef class ContextState:
    def __cinit__(self):
        self.next_key = 1
        self.sources = {}
        self.errors = []
        self.calls = set()
        self.levels = []
        self.scopes = []
        self.kept = []

    def __dealloc__(self):
        # The last owner of the C++ context waits for its work, callbacks included: never with the GIL.
        cdef shared_ptr[Context] last = move(self.value)
        with nogil:
            last.reset()

    cdef uint64_t hold(self, object source):
        cdef uint64_t key = self.next_key
        self.next_key += 1
        self.sources[key] = source
        return key

    cdef ContextState head(self):
        return self if self.inner is None else self.inner

    cdef int keep(self, object data) except -1:
        # Those around have taken it in as well.
        cdef ContextState scope = self
        while scope.root is not None:
            scope.kept.append(data)
            scope = scope.around
        return 0

    cdef int require_usable(self) except -1:
        if self.value.get().closed():
            raise ContextClosed("the context was finalized: make a new one")
        return 0

    cdef int raise_pending(self) except -1:
        if self.errors:
            raise self.errors.pop(0)
        return 0
