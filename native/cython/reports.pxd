# What a context counted and traced, as Python values.
from stf_places._native.core cimport Context

cdef object statistics_of(Context* context)
cdef list trace_of(Context* context)
