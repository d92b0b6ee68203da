# Logical data and dependencies.
from libc.stdint cimport uint64_t

from stf_places._native.core cimport Data, DataPlace
from stf_places._native.places cimport data_place
from stf_places._native.state cimport ContextState

cdef class dep

cdef class logical_data:
    cdef ContextState state
    cdef Data* data
    cdef uint64_t source_key    # 0: no source
    cdef bint _token
    cdef bint _no_export
    cdef uint64_t kept_in       # the last scope that keeps it, by number
    cdef readonly bint readonly
    cdef readonly tuple shape   # None for tokens
    cdef readonly object dtype  # None for tokens
    cdef readonly size_t nbytes
    cdef str _symbol
    cdef object __weakref__
    cdef dep use(self, int access, data_place dplace)
    cdef ContextState scope_for(self, str what)

cdef class dep:
    cdef readonly logical_data data
    cdef readonly data_place dplace
    cdef int access             # 1 read, 2 write, 3 both

# Data of a context around a scope live as long as the scope.
cdef int keep_in(ContextState state, logical_data data) except -1
# Bytes of an array; checks that the dtype can be moved as bytes.
cdef size_t nbytes_of(tuple shape, object dtype) except? 0
cdef object checked_dtype(object dtype)
cdef tuple checked_shape(object shape)
cdef object checked_name(object name)
# Data without a source.
cdef logical_data make_empty(ContextState state, tuple shape, object dtype, object name, bint no_export)
cdef logical_data make_token(ContextState state, object name)
# Data over the caller's memory, which `source` keeps alive.
cdef logical_data make_registered(ContextState state, object source, uint64_t address, DataPlace place,
                                  bint readonly, tuple shape, object dtype, object name)
