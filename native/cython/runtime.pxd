# The runtime in use: a driver, its devices, settings. One is current for the process; older objects keep theirs.
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr

from stf_places._native.drivers cimport Driver
from stf_places._native.errors cimport raise_stf_error

cdef extern from "core/runtime.hpp" namespace "stf_places" nogil:
    cdef cppclass RuntimeSettings:
        cbool sync_each_task
        cbool check_streams
    cdef cppclass Runtime:
        Runtime(shared_ptr[Driver], RuntimeSettings) except +raise_stf_error
        Driver& driver() const
        cbool simulated() const
        int device_count() const
        void check_device(int) except +raise_stf_error
        uint64_t primary(int) except +raise_stf_error
        int current_device() except +raise_stf_error
        cbool peers(int, int) except +raise_stf_error

cdef class RuntimeHandle:
    cdef shared_ptr[Runtime] value
    cdef readonly object driver          # drivers.DriverHandle

# Chooses and opens a machine at the first call (stf_places.machines.selection).
cdef RuntimeHandle current_runtime()
# None while no machine was opened.
cdef RuntimeHandle opened_runtime()
