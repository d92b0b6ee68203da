# The classes of native/core as Cython sees them. Every call that can throw goes through raise_stf_error.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from stf_places._native.drivers cimport KernelLaunch
from stf_places._native.errors cimport raise_stf_error
from stf_places._native.places cimport DataPlace, ExecPlace, StreamPool
from stf_places._native.runtime cimport Runtime
from stf_places._native.signals cimport Interrupt

ctypedef void (*HostFunction)(void*) noexcept nogil

cdef extern from "core/data.hpp" namespace "stf_places" nogil:
    cdef enum class Mode "stf_places::AccessMode"(uint8_t):
        none
        read
        write
        rw
    cdef cppclass DataOptions:
        string name
        size_t nbytes
        cbool token
        cbool read_only
        cbool no_export
        uint64_t source
        DataPlace source_place
    cdef cppclass Data:
        void set_name(string)
        void set_read_only() except +raise_stf_error
        string label() const

cdef extern from "core/task.hpp" namespace "stf_places" nogil:
    cdef enum class TaskState "stf_places::Task::State"(uint8_t):
        created
        open
        ended
    cdef cppclass Dependency:
        Data* data
        Mode mode
        DataPlace place
    cdef cppclass Dependencies:
        void push_back(const Dependency&)
        void reserve(size_t)
        size_t size() const
        Dependency& operator[](size_t)
    cdef cppclass PartAccess:
        size_t dependency
        size_t offset
        size_t nbytes
        size_t used
        cbool write
    cdef cppclass Task:
        Dependencies dependencies
        ExecPlace place
        DataPlace affine
        string symbol
        double cost_us
        int sms
        int waves
        int priority
        TaskState state() const
        string label() const
        uint64_t address(size_t, size_t) const
        void set_parts(size_t, vector[PartAccess]) except +raise_stf_error
        size_t stream_count() const
        uint64_t stream(size_t) const
        const ExecPlace& resolved_place() const

cdef extern from "core/trace.hpp" namespace "stf_places" nogil:
    cdef cppclass TraceRecord:
        string kind
        string symbol
        string place
        int device
        int stream
        double start_us
        double end_us
        size_t nbytes

cdef extern from "core/points.hpp" namespace "stf_places" nogil:
    cdef cppclass Statistics:
        uint64_t tasks
        uint64_t events_recorded
        uint64_t waits
        uint64_t waits_skipped
        uint64_t copies
        uint64_t bytes_copied
        uint64_t allocations
        uint64_t reused_blocks
        uint64_t evictions
        uint64_t graphs_launched
        uint64_t graphs_instantiated

cdef extern from "core/context.hpp" namespace "stf_places" nogil:
    cdef cppclass ContextOptions:
        cbool has_stream
        uint64_t stream
        cbool trace
        cbool graph
    cdef cppclass PlaceStatistics:
        string place
        uint64_t tasks
        uint64_t bytes_in
        uint64_t bytes_out
    cdef cppclass Context:
        Context(shared_ptr[Runtime], shared_ptr[StreamPool], ContextOptions) except +raise_stf_error
        cbool closed() const
        cbool recording() const
        Data* create(DataOptions) except +raise_stf_error
        @staticmethod
        cbool drop(const shared_ptr[Context]&, Data*, HostFunction, void*) noexcept
        void read_back(Data&, void*, const Interrupt&) except +raise_stf_error
        void synchronize(Data&, const Interrupt&) except +raise_stf_error
        void fill(Data&, const ExecPlace&, const DataPlace&, const void*, size_t) except +raise_stf_error
        void push(Data&, Mode, const DataPlace&) except +raise_stf_error
        void start(Task&, const Interrupt&) except +raise_stf_error
        void end(Task&, cbool, const Interrupt&) except +raise_stf_error
        # A host callback in two steps, so that task.address(i) can be read in between; end(task, True) gives up.
        void open_callback(Task&, const Interrupt&) except +raise_stf_error
        void enqueue_callback(Task&, HostFunction, HostFunction, void*, const Interrupt&) except +raise_stf_error
        void run_in(Task&, size_t, HostFunction, HostFunction, void*) except +raise_stf_error
        void launch_in(Task&, size_t, const KernelLaunch&) except +raise_stf_error
        uint64_t fence() except +raise_stf_error
        void finalize(const Interrupt&) except +raise_stf_error
        void after_all(HostFunction, void*) except +raise_stf_error
        Statistics statistics() const
        vector[PlaceStatistics] place_statistics() except +raise_stf_error
        const vector[TraceRecord]& trace_records() const
        cbool tracing() const

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    cdef enum class LoopType "stf_places::LoopCondition::Type"(uint8_t):
        float32
        float64
        int32
        int64
    cdef enum class LoopCompare "stf_places::LoopCondition::Compare"(uint8_t):
        less
        less_equal
        greater
        greater_equal
    cdef cppclass LoopTerm "stf_places::LoopCondition::Term":
        LoopType type
        LoopCompare compare
        cbool negate
        double real
        int64_t whole

cdef extern from "core/graph_log.hpp" namespace "stf_places" nogil:
    cdef cppclass GraphGroup "stf_places::GraphDescription::Group":
        int parent
        int part
        string kind
        string label
    cdef cppclass GraphNode "stf_places::GraphDescription::Node":
        uint64_t id
        int group
        int body
        string kind
        string label
        string place
    cdef cppclass GraphDescription:
        vector[GraphGroup] groups
        vector[GraphNode] nodes
        vector[pair[uint64_t, uint64_t]] edges

cdef extern from "core/scope.hpp" namespace "stf_places" nogil:
    cdef cppclass ConditionTerm:
        Data* data
        LoopTerm term
    cdef enum class ScopeKind "stf_places::Scope::Kind"(uint8_t):
        graph
        while_loop
        repeat
    cdef enum class ScopeState "stf_places::Scope::State"(uint8_t):
        recording
        ready
        released
    cdef cppclass Scope:
        @staticmethod
        shared_ptr[Scope] open(const shared_ptr[Context]&, ScopeKind, uint64_t, cbool) except +raise_stf_error
        const shared_ptr[Context]& context() const
        ScopeState state() const
        int device() const
        const string& settle_body(const Interrupt&) except +raise_stf_error
        void continue_while(const vector[ConditionTerm]&, cbool, uint64_t, const Interrupt&) except +raise_stf_error
        uint64_t condition(const Interrupt&) except +raise_stf_error
        void set_kernel(uint64_t)
        const string& obstacle() const
        void set_obstacle(string)
        uint64_t recorded() const
        void spoil(string)
        void require_no_open_task() except +raise_stf_error
        void finish(const Interrupt&) except +raise_stf_error
        void discard() noexcept
        void run(const Interrupt&) except +raise_stf_error
        cbool idle() except +raise_stf_error
        void release(const Interrupt&) except +raise_stf_error
        void leave_behind() except +raise_stf_error
        uint64_t graph() except +raise_stf_error
        uint64_t executable() except +raise_stf_error
        GraphDescription describe() except +raise_stf_error
        uint64_t stream() except +raise_stf_error

cdef extern from "cython/flow.hpp" namespace "stf_places" nogil:
    DataPlace host_place()
    cbool is_host(const DataPlace&)
    cbool is_managed(const DataPlace&)
    cbool is_device(const DataPlace&)
    cbool is_affine(const DataPlace&)
    cbool is_composite(const DataPlace&)
    cbool is_replicated(const DataPlace&)
    cbool runs_on_host "stf_places::is_host"(const ExecPlace&)
    cbool cpu_reaches(const Task&, size_t, const Runtime&)
    cbool executes(const Runtime&)
    void synchronize_stream(const Runtime&, uint64_t, const Interrupt&) except +raise_stf_error
