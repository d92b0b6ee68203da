# Tasks whose work is CUDA kernels.
from libc.stdint cimport uint64_t
from libcpp.list cimport list as linked_list
from libcpp.string cimport string

from stf_places._native.data cimport dep, logical_data
from stf_places._native.state cimport ContextState
from stf_places._native.tasks cimport task

cdef class cuda_kernel(task):
    cdef int pack(self, object value, Py_ssize_t number, size_t at, void* slot, void** address,
                  linked_list[string]& wide) except -1
    cdef int pack_other(self, object value, Py_ssize_t number, void* slot, void** address,
                        linked_list[string]& wide) except -1
    cdef int pack_rare(self, object value, Py_ssize_t number, void* slot, void** address,
                       linked_list[string]& wide) except -1
    cdef uint64_t address_of_data(self, logical_data data, dep access, Py_ssize_t number, size_t at) except? 0
    cdef uint64_t address_of_array(self, object value, object interface, Py_ssize_t number) except? 0
    cdef object wrong_value(self, object value, Py_ssize_t number)

cdef cuda_kernel make_kernel_task(ContextState state, tuple args, object symbol)
