# What callers may give as a stream, turned into the driver's handle, and handles turned into CudaStream objects.
from libc.stdint cimport uint64_t

from stf_places._native.runtime cimport RuntimeHandle

# The handle for the current machine: None is the default stream, 0.
cdef uint64_t stream_handle(object stream) except? 0
# The handle for a given machine.
cdef uint64_t stream_handle_on(object stream, RuntimeHandle runtime) except? 0
# The CudaStream of a handle; the same object each time while it is cached.
cdef object cuda_stream(uint64_t handle, bint simulated)
