# Memory of a task's arguments as Python sees it: NumPy views of host memory, and the CUDA Array Interface.
from libc.stdint cimport uint64_t

# Exports a range of memory as a buffer and keeps `owner` alive for as long as a view of it lives.
cdef class HostMemory:
    cdef void* address
    cdef Py_ssize_t nbytes
    cdef bint readonly
    cdef object owner

cdef class stf_cai:
    cdef readonly uint64_t ptr
    cdef readonly tuple shape
    cdef readonly tuple strides  # bytes; None: C order
    cdef readonly object dtype
    cdef readonly bint readonly
    cdef readonly size_t nbytes  # of the elements
    cdef bint on_host
    cdef bint recorded   # memory of a task whose work runs later
    cdef object owner
    cdef dict interface(self, dict fields)

# The NumPy array of a view that the CPU reaches, whenever its memory may be used.
cdef object array_of(stf_cai view)
# Why a task's data cannot be looked at while it is recorded.
cdef object refuse_view()
# A view of parts of an argument: its first element lies `offset` bytes into it.
cdef stf_cai part_of(stf_cai whole, size_t offset, tuple shape, tuple strides)
# A NumPy array over host memory; `owner` is its base's reference.
cdef object host_array(uint64_t address, size_t nbytes, bint readonly, object owner, tuple shape, object dtype)
# The address of a NumPy array's first element.
cdef uint64_t address_of(object array)
