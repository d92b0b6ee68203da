# The seam as Cython sees it, and the handle that Python code holds.
from libc.stdint cimport uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.signals cimport Interrupt

cdef extern from "driver/status.hpp" namespace "stf_places" nogil:
    cdef enum class Code(int):
        not_ready
        out_of_memory
        invalid_value
        invalid_device
        not_supported
        device_lost
        conflict
        forked
        interrupted
        failed
    cdef cppclass Status:
        Status()
        cbool ok() noexcept
        cbool is_ "is"(Code) noexcept
        void check() except +raise_stf_error

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    ctypedef void (*HostFunction)(void*) noexcept
    cdef enum class LocationKind "stf_places::Location::Kind"(uint8_t):
        host
        device
        managed
    cdef cppclass Location:
        LocationKind kind
        int device
    cdef cppclass DeviceProperties:
        string name
        int sm_count
        int compute_major
        int compute_minor
        size_t total_memory
        double memory_bandwidth
        int copy_engines
        cbool memory_pools
        cbool managed_memory
        string uuid
    cdef cppclass Link:
        cbool peer
        double bandwidth
        double latency_us
    cdef cppclass Access:
        uint64_t address
        size_t nbytes
        cbool write
    cdef cppclass Work:
        pass
    cdef cppclass KernelLaunch:
        uint64_t function
        unsigned[3] grid
        unsigned[3] block
        unsigned shared_bytes
        void** parameters
    cdef cppclass Driver:
        cbool simulated() noexcept
        cbool executes() noexcept
        cbool deterministic() noexcept
        Status version(int*)
        Status device_count(int*)
        Status device_properties(int, DeviceProperties*)
        Status memory_info(int, size_t*, size_t*)
        Status link(int, int, Link*)
        Status enable_peer_access(int, int)
        Status primary_context(int, uint64_t*)
        Status current_context(uint64_t*)
        Status set_current_context(uint64_t)
        Status context_device(uint64_t, int*)
        Status create_stream(uint64_t, int, uint64_t*)
        Status destroy_stream(uint64_t)
        Status query_stream(uint64_t)
        Status synchronize_stream(uint64_t, const Interrupt&)
        Status stream_context(uint64_t, uint64_t*)
        Status stream_capturing(uint64_t, cbool*)
        Status query_default_streams(uint64_t)
        Status create_event(uint64_t, cbool, uint64_t*)
        Status destroy_event(uint64_t)
        Status record_event(uint64_t, uint64_t)
        Status wait_event(uint64_t, uint64_t)
        Status query_event(uint64_t)
        Status synchronize_event(uint64_t, const Interrupt&)
        Status elapsed_us(uint64_t, uint64_t, double*)
        Status allocate_device(int, size_t, uint64_t, uint64_t*)
        Status free_device(int, uint64_t, uint64_t)
        Status trim_device(int)
        Status allocate_host(size_t, uint64_t*)
        Status free_host(uint64_t)
        Status allocate_managed(size_t, int, uint64_t*)
        Status free_managed(uint64_t)
        Status copy(uint64_t, Location, uint64_t, Location, size_t, uint64_t)
        Status fill(uint64_t, Location, const void*, size_t, size_t, uint64_t)
        Status host_function(uint64_t, HostFunction, void*)
        Status launch(const KernelLaunch&, uint64_t, const Work&)
        Status host_work(uint64_t, HostFunction, HostFunction, void*, const Work&)
        Status begin_body(uint64_t, const Interrupt&)
        Status end_body(uint64_t, const Work&)

cdef extern from "driver/sim/sim_driver.hpp" namespace "stf_places::sim" nogil:
    cdef cppclass DeviceSpec:
        string name
        int sm_count
        int compute_major
        int compute_minor
        int min_partition
        int alignment
        int aligned_sms
        int resplit_loss
        size_t memory
        double bandwidth
        int copy_engines
        size_t page
    cdef cppclass LinkSpec:
        int from_ "from"
        int to
        cbool peer
        double bandwidth
        double latency_us
    cdef cppclass CallCosts:
        double event_record
        double event_wait
        double kernel_launch
        double kernel_latency
        double copy_submit
        double host_function
        double allocate
        double synchronize
        double query
        double green_context
        double page_map
        double page_access
        double piece_access
        double graph_node
        double graph_instantiate_node
        double graph_launch
        double graph_launch_node
        double graph_launch_edge
        double graph_round
    cdef cppclass MachineSpec:
        string name
        int driver_version
        vector[DeviceSpec] devices
        vector[LinkSpec] links
        CallCosts costs
    cdef cppclass Options:
        cbool execute
        cbool chaos
        uint64_t seed
        cbool check_conflicts
        cbool measure_bodies
    cdef cppclass TimelineEntry:
        string kind
        string symbol
        int device
        uint64_t stream
        double start_us
        double end_us
        size_t nbytes
        int sms
    cdef enum class FaultKind(int):
        allocation
        copy
        launch
        event
        host_function
        green_context
    cdef cppclass SimDriver(Driver):
        const MachineSpec& spec()
        double now_us()
        void advance_us(double) except +raise_stf_error
        void order_fault(FaultKind, uint64_t, Code) except +raise_stf_error
        vector[string] conflicts() except +raise_stf_error
        void record_timeline(cbool)
        vector[TimelineEntry] timeline() except +raise_stf_error
        size_t used_memory(int) except +raise_stf_error
        size_t live_allocations()
        uint64_t operations()
        Status drain()

cdef extern from "cython/owned_work.hpp" namespace "stf_places" nogil:
    cdef cppclass OwnedWork:
        string symbol
        double cost_us
        int sms
        int waves
        vector[Access] accesses
        Work view()
    string driver_name(const Driver&)
    string driver_machine(const Driver&)
    shared_ptr[SimDriver] as_sim(const shared_ptr[Driver]&)

cdef class DriverHandle:
    cdef shared_ptr[Driver] driver
    cdef shared_ptr[SimDriver] sim       # empty unless simulated

    @staticmethod
    cdef DriverHandle wrap(shared_ptr[Driver] driver)
    cdef SimDriver* simulated_driver(self) except NULL
