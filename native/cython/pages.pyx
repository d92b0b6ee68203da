# distutils: language = c++
from libc.stdint cimport uint64_t
from libcpp.vector cimport vector

from stf_places._native.drivers cimport DriverHandle, Status
from stf_places._native.errors cimport raise_stf_error

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    cdef cppclass Devices "std::span<const int>":
        Devices(const int*, size_t)
    # The part of Driver that only these functions use.
    cdef cppclass PageDriver "stf_places::Driver":
        Status page_granularity(int, size_t*)
        Status reserve_pages(size_t, uint64_t*)
        Status release_pages(uint64_t, size_t)
        Status map_pages(uint64_t, size_t, int)
        Status unmap_pages(uint64_t, size_t)
        Status grant_access(uint64_t, size_t, Devices)

cdef extern from "driver/sim/sim_driver.hpp" namespace "stf_places::sim" nogil:
    cdef cppclass LinkTraffic:
        int from_ "from"
        int to
        uint64_t nbytes
    cdef cppclass PageSimDriver "stf_places::sim::SimDriver":
        vector[LinkTraffic] link_traffic() except +raise_stf_error


cdef PageDriver* driver_of(DriverHandle handle) noexcept:
    return <PageDriver*>handle.driver.get()


def page_granularity(DriverHandle handle not None, int device):
    cdef PageDriver* driver = driver_of(handle)
    cdef size_t found = 0
    with nogil:
        driver.page_granularity(device, &found).check()
    return found


def reserve_pages(DriverHandle handle not None, size_t nbytes):
    cdef PageDriver* driver = driver_of(handle)
    cdef uint64_t made = 0
    with nogil:
        driver.reserve_pages(nbytes, &made).check()
    return made


def release_pages(DriverHandle handle not None, uint64_t address, size_t nbytes):
    cdef PageDriver* driver = driver_of(handle)
    with nogil:
        driver.release_pages(address, nbytes).check()


def map_pages(DriverHandle handle not None, uint64_t address, size_t nbytes, int device):
    cdef PageDriver* driver = driver_of(handle)
    with nogil:
        driver.map_pages(address, nbytes, device).check()


def unmap_pages(DriverHandle handle not None, uint64_t address, size_t nbytes):
    cdef PageDriver* driver = driver_of(handle)
    with nogil:
        driver.unmap_pages(address, nbytes).check()


def grant_access(DriverHandle handle not None, uint64_t address, size_t nbytes, devices):
    cdef PageDriver* driver = driver_of(handle)
    cdef vector[int] given = devices
    with nogil:
        driver.grant_access(address, nbytes, Devices(given.data(), given.size())).check()


def link_traffic(DriverHandle handle not None):
    cdef PageSimDriver* sim = <PageSimDriver*>handle.simulated_driver()
    cdef vector[LinkTraffic] found
    with nogil:
        found = sim.link_traffic()
    return {(one.from_, one.to): one.nbytes for one in found}
