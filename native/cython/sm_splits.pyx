# distutils: language = c++
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport move
from libcpp.vector cimport vector

from stf_places._native.drivers cimport DriverHandle, SimDriver, Status

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    cdef cppclass SmResource:
        int device
        int sm_count
        int min_partition
        int alignment
    cdef cppclass SmGroup:
        int sm_count
        int coscheduled
    cdef cppclass WorkQueues:
        int concurrency_limit
        cbool balanced
    cdef cppclass SmResources "std::span<const stf_places::SmResource>":
        SmResources(const SmResource*, size_t)
    cdef cppclass SmGroups "std::span<const stf_places::SmGroup>":
        SmGroups(const SmGroup*, size_t)
    # The part of Driver that only these functions use.
    cdef cppclass SmDriver "stf_places::Driver":
        Status device_sms(int, SmResource*)
        Status context_sms(uint64_t, SmResource*)
        Status split_sms(const SmResource&, int, int, cbool, vector[SmResource]*, SmResource*)
        Status split_sms_unequally(const SmResource&, SmGroups, vector[SmResource]*, SmResource*)
        Status create_green_context(int, SmResources, const WorkQueues*, uint64_t*)
        Status destroy_green_context(uint64_t)

cdef extern from "driver/sim/sim_driver.hpp" namespace "stf_places::sim" nogil:
    cdef cppclass SmSimDriver "stf_places::sim::SimDriver":
        vector[int] sm_ids(uint64_t)


cdef SmDriver* driver_of(DriverHandle handle) noexcept:
    return <SmDriver*>handle.driver.get()


cdef class SmSet:
    cdef SmResource resource

    def __init__(self):
        raise TypeError("SmSet is made by device_sms(), context_sms() and the splits")

    @staticmethod
    cdef SmSet wrap(const SmResource& resource):
        cdef SmSet made = SmSet.__new__(SmSet)
        made.resource = resource
        return made

    def __repr__(self):
        return f"<SmSet of device {self.device}: {self.sm_count} SMs>"

    @property
    def device(self):
        return self.resource.device

    @property
    def sm_count(self):
        return self.resource.sm_count

    @property
    def min_partition(self):
        return self.resource.min_partition

    @property
    def alignment(self):
        return self.resource.alignment


cdef tuple wrap_split(const vector[SmResource]& groups, const SmResource& left):
    return [SmSet.wrap(groups[i]) for i in range(groups.size())], SmSet.wrap(left)


def device_sms(DriverHandle handle not None, int device):
    cdef SmDriver* driver = driver_of(handle)
    cdef SmResource found
    with nogil:
        driver.device_sms(device, &found).check()
    return SmSet.wrap(found)


def context_sms(DriverHandle handle not None, uint64_t context):
    cdef SmDriver* driver = driver_of(handle)
    cdef SmResource found
    with nogil:
        driver.context_sms(context, &found).check()
    return SmSet.wrap(found)


def split_sms(DriverHandle handle not None, SmSet whole not None, int sm_count, int groups=0, cbool fine=False):
    cdef SmDriver* driver = driver_of(handle)
    cdef vector[SmResource] made
    cdef SmResource left
    with nogil:
        driver.split_sms(whole.resource, sm_count, groups, fine, &made, &left).check()
    return wrap_split(made, left)


def split_sms_unequally(DriverHandle handle not None, SmSet whole not None, groups):
    cdef SmDriver* driver = driver_of(handle)
    cdef vector[SmGroup] asked
    cdef SmGroup group
    cdef vector[SmResource] made
    cdef SmResource left
    for sm_count, coscheduled in groups:
        group.sm_count = sm_count
        group.coscheduled = coscheduled
        asked.push_back(group)
    with nogil:
        driver.split_sms_unequally(whole.resource, SmGroups(asked.data(), asked.size()), &made, &left).check()
    return wrap_split(made, left)


def create_green_context(DriverHandle handle not None, int device, sets, *, concurrency_limit=None,
                         cbool balanced=False):
    cdef SmDriver* driver = driver_of(handle)
    cdef vector[SmResource] resources
    cdef SmSet given
    cdef WorkQueues queues
    cdef const WorkQueues* asked = NULL
    cdef uint64_t made = 0
    for given in sets:
        resources.push_back(given.resource)
    if concurrency_limit is not None:
        queues.concurrency_limit = concurrency_limit
        queues.balanced = balanced
        asked = &queues
    with nogil:
        driver.create_green_context(device, SmResources(resources.data(), resources.size()), asked, &made).check()
    return made


def destroy_green_context(DriverHandle handle not None, uint64_t context):
    cdef SmDriver* driver = driver_of(handle)
    with nogil:
        driver.destroy_green_context(context).check()


def sm_ids(DriverHandle handle not None, uint64_t context):
    cdef SmSimDriver* sim = <SmSimDriver*>handle.simulated_driver()
    cdef vector[int] found
    with nogil:
        found = sim.sm_ids(context)
    return list(found)
