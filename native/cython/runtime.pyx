# distutils: language = c++
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move

from stf_places._native.drivers cimport Driver, DriverHandle
from stf_places._native.errors cimport raise_stf_error

cdef extern from * nogil:
    """
    #include "core/runtime.hpp"
    static std::shared_ptr<stf_places::Runtime> stf_make_runtime(
        std::shared_ptr<stf_places::Driver> driver, stf_places::RuntimeSettings settings) {
      return std::make_shared<stf_places::Runtime>(std::move(driver), settings);
    }
    """
    shared_ptr[Runtime] stf_make_runtime(shared_ptr[Driver], RuntimeSettings) except +raise_stf_error

cdef RuntimeHandle _current = None


cdef class RuntimeHandle:
    def __init__(self):
        raise TypeError("a runtime is made by make_runtime(driver, sync_each_task, check_streams)")

    def __dealloc__(self):
        # Closing a driver waits and calls into it, so not with the GIL.
        cdef shared_ptr[Runtime] last = move(self.value)
        with nogil:
            last.reset()

    @property
    def simulated(self):
        return self.value.get().simulated()

    @property
    def device_count(self):
        return self.value.get().device_count()

    def peers(self, int device, int peer):
        cdef Runtime* runtime = self.value.get()
        cdef bint answer
        with nogil:
            runtime.check_device(device)
            runtime.check_device(peer)
            answer = runtime.peers(device, peer)
        return answer


def make_runtime(DriverHandle driver not None, bint sync_each_task=False, bint check_streams=False):
    cdef RuntimeHandle handle = RuntimeHandle.__new__(RuntimeHandle)
    cdef RuntimeSettings settings
    cdef shared_ptr[Driver] shared = driver.driver
    settings.sync_each_task = sync_each_task
    settings.check_streams = check_streams
    with nogil:
        handle.value = stf_make_runtime(shared, settings)
    handle.driver = driver
    return handle


cdef RuntimeHandle current_runtime():
    if _current is None:
        from stf_places.machines.selection import open_default
        open_default()
    return _current


cdef RuntimeHandle opened_runtime():
    return _current


def current():
    return current_runtime()


def current_or_none():
    return _current


def set_current(RuntimeHandle handle):
    global _current
    _current = handle
