# distutils: language = c++
from cpython.exc cimport PyErr_WriteUnraisable
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from stf_places._native.machine_specs cimport machine_spec_of
from stf_places._native.signals cimport stf_python_interrupt

from stf_places import errors as classes

cdef extern from "Python.h":
    PyObject* PyObject_CallNoArgs(PyObject*) noexcept

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    Status make_cuda_driver(shared_ptr[Driver]*)

cdef extern from "driver/sim/sim_driver.hpp" namespace "stf_places::sim" nogil:
    Status make_sim_driver(const MachineSpec&, const Options&, shared_ptr[SimDriver]*)

cdef dict CODES = {
    "out_of_memory": <int>Code.out_of_memory, "invalid_value": <int>Code.invalid_value,
    "not_supported": <int>Code.not_supported, "device_lost": <int>Code.device_lost, "failed": <int>Code.failed,
}
cdef dict FAULT_KINDS = {
    "allocation": <int>FaultKind.allocation, "copy": <int>FaultKind.copy, "launch": <int>FaultKind.launch,
    "event": <int>FaultKind.event, "host_function": <int>FaultKind.host_function,
    "green_context": <int>FaultKind.green_context,
}


cdef str text_of(const string& text):
    return text.decode("utf-8", "replace")


cdef int chosen(dict table, what, given) except -1:
    if given not in table:
        raise ValueError(f"{what} is one of {', '.join(table)}: got {given!r}")
    return table[given]


cdef Location location_of(where) except *:
    cdef Location location
    location.kind = LocationKind.host
    location.device = -1
    if where == "managed":
        location.kind = LocationKind.managed
    elif where != "host" and where != -1:
        location.kind = LocationKind.device
        location.device = where
    return location


cdef OwnedWork work_of(str symbol, double cost_us, int sms, int waves, accesses) except *:
    cdef OwnedWork work
    cdef Access access
    work.symbol = symbol.encode()
    work.cost_us = cost_us
    work.sms = sms
    work.waves = waves
    for address, nbytes, write in accesses:
        access.address = address
        access.nbytes = nbytes
        access.write = write
        work.accesses.push_back(access)
    return work


cdef void run_callable(void* argument) noexcept with gil:
    # By the C interface, because the hook gets an exception only while it is set.
    cdef PyObject* result = PyObject_CallNoArgs(<PyObject*>argument)
    if result == NULL:
        PyErr_WriteUnraisable(<object>argument)
    else:
        Py_XDECREF(result)


cdef void drop_callable(void* argument) noexcept with gil:
    Py_DECREF(<object>argument)


cdef void run_and_drop_callable(void* argument) noexcept nogil:
    run_callable(argument)
    drop_callable(argument)


cdef class DriverHandle:
    def __init__(self):
        raise TypeError("DriverHandle is made by cuda_driver() and sim_driver()")

    def __dealloc__(self):
        # Without the GIL: the last reference waits for host functions, and those may want it.
        with nogil:
            self.sim.reset()
            self.driver.reset()

    @staticmethod
    cdef DriverHandle wrap(shared_ptr[Driver] driver):
        cdef DriverHandle handle = DriverHandle.__new__(DriverHandle)
        handle.sim = as_sim(driver)
        handle.driver = move(driver)
        return handle

    cdef SimDriver* simulated_driver(self) except NULL:
        if self.sim.get() == NULL:
            raise classes.NotSupported(f"only a simulated machine has this: the driver is {self.name!r}")
        return self.sim.get()

    def __repr__(self):
        return f"<DriverHandle {self.name}: {self.machine}>"

    # What it is.
    @property
    def name(self):
        return text_of(driver_name(self.driver.get()[0]))

    @property
    def machine(self):
        return text_of(driver_machine(self.driver.get()[0]))

    @property
    def simulated(self):
        return self.driver.get().simulated()

    @property
    def executes(self):
        return self.driver.get().executes()

    @property
    def deterministic(self):
        return self.driver.get().deterministic()

    def version(self):
        cdef int found = 0
        with nogil:
            self.driver.get().version(&found).check()
        return found

    # Devices.
    def device_count(self):
        cdef int found = 0
        with nogil:
            self.driver.get().device_count(&found).check()
        return found

    def device_properties(self, int device):
        cdef DeviceProperties found
        with nogil:
            self.driver.get().device_properties(device, &found).check()
        return {
            "name": text_of(found.name), "sm_count": found.sm_count, "compute_major": found.compute_major,
            "compute_minor": found.compute_minor, "total_memory": found.total_memory,
            "memory_bandwidth": found.memory_bandwidth, "copy_engines": found.copy_engines,
            "memory_pools": found.memory_pools, "managed_memory": found.managed_memory,
            "uuid": text_of(found.uuid),
        }

    def memory_info(self, int device):
        cdef size_t free = 0, total = 0
        with nogil:
            self.driver.get().memory_info(device, &free, &total).check()
        return free, total

    def link(self, int from_, int to):
        cdef Link found
        with nogil:
            self.driver.get().link(from_, to, &found).check()
        return {"peer": found.peer, "bandwidth": found.bandwidth, "latency_us": found.latency_us}

    def enable_peer_access(self, int device, int peer):
        with nogil:
            self.driver.get().enable_peer_access(device, peer).check()

    # Contexts.
    def primary_context(self, int device):
        cdef uint64_t found = 0
        with nogil:
            self.driver.get().primary_context(device, &found).check()
        return found

    def current_context(self):
        cdef uint64_t found = 0
        self.driver.get().current_context(&found).check()
        return found

    def set_current_context(self, uint64_t context):
        with nogil:
            self.driver.get().set_current_context(context).check()

    def context_device(self, uint64_t context):
        cdef int found = 0
        with nogil:
            self.driver.get().context_device(context, &found).check()
        return found

    # Streams.
    def create_stream(self, uint64_t context, int priority=0):
        cdef uint64_t made = 0
        with nogil:
            self.driver.get().create_stream(context, priority, &made).check()
        return made

    def destroy_stream(self, uint64_t stream):
        with nogil:
            self.driver.get().destroy_stream(stream).check()

    def query_stream(self, uint64_t stream):
        cdef Status status
        with nogil:
            status = self.driver.get().query_stream(stream)
        return is_ready(status)

    def synchronize_stream(self, uint64_t stream):
        with nogil:
            self.driver.get().synchronize_stream(stream, stf_python_interrupt()).check()

    def stream_context(self, uint64_t stream):
        cdef uint64_t found = 0
        with nogil:
            self.driver.get().stream_context(stream, &found).check()
        return found

    def stream_capturing(self, uint64_t stream):
        cdef cbool found = False
        with nogil:
            self.driver.get().stream_capturing(stream, &found).check()
        return found

    def query_default_streams(self, uint64_t context):
        cdef Status status
        with nogil:
            status = self.driver.get().query_default_streams(context)
        return is_ready(status)

    # Events.
    def create_event(self, uint64_t context, cbool timing=False):
        cdef uint64_t made = 0
        with nogil:
            self.driver.get().create_event(context, timing, &made).check()
        return made

    def destroy_event(self, uint64_t event):
        with nogil:
            self.driver.get().destroy_event(event).check()

    def record_event(self, uint64_t event, uint64_t stream):
        with nogil:
            self.driver.get().record_event(event, stream).check()

    def wait_event(self, uint64_t stream, uint64_t event):
        with nogil:
            self.driver.get().wait_event(stream, event).check()

    def query_event(self, uint64_t event):
        cdef Status status
        with nogil:
            status = self.driver.get().query_event(event)
        return is_ready(status)

    def synchronize_event(self, uint64_t event):
        with nogil:
            self.driver.get().synchronize_event(event, stf_python_interrupt()).check()

    def elapsed_us(self, uint64_t from_, uint64_t to):
        cdef double found = 0
        with nogil:
            self.driver.get().elapsed_us(from_, to, &found).check()
        return found

    # Memory.
    def allocate_device(self, int device, size_t nbytes, uint64_t stream):
        cdef uint64_t made = 0
        with nogil:
            self.driver.get().allocate_device(device, nbytes, stream, &made).check()
        return made

    def free_device(self, int device, uint64_t address, uint64_t stream):
        with nogil:
            self.driver.get().free_device(device, address, stream).check()

    def trim_device(self, int device):
        with nogil:
            self.driver.get().trim_device(device).check()

    def allocate_host(self, size_t nbytes):
        cdef uint64_t made = 0
        with nogil:
            self.driver.get().allocate_host(nbytes, &made).check()
        return made

    def free_host(self, uint64_t address):
        with nogil:
            self.driver.get().free_host(address).check()

    def allocate_managed(self, size_t nbytes, int device=-1):
        cdef uint64_t made = 0
        with nogil:
            self.driver.get().allocate_managed(nbytes, device, &made).check()
        return made

    def free_managed(self, uint64_t address):
        with nogil:
            self.driver.get().free_managed(address).check()

    def copy(self, uint64_t to, to_at, uint64_t from_, from_at, size_t nbytes, uint64_t stream):
        cdef Location target = location_of(to_at), source = location_of(from_at)
        with nogil:
            self.driver.get().copy(to, target, from_, source, nbytes, stream).check()

    def fill(self, uint64_t to, at, bytes value, size_t count, uint64_t stream):
        cdef Location target = location_of(at)
        cdef string bytes_ = value
        with nogil:
            self.driver.get().fill(to, target, bytes_.data(), bytes_.size(), count, stream).check()

    # Work.
    def host_function(self, uint64_t stream, function):
        cdef void* argument = <void*>function
        cdef Status status
        Py_INCREF(function)
        with nogil:
            status = self.driver.get().host_function(stream, run_and_drop_callable, argument)
        if not status.ok():
            Py_DECREF(function)
        status.check()

    def launch(self, uint64_t function, uint64_t stream, *, grid=(1, 1, 1), block=(1, 1, 1), unsigned shared_bytes=0,
               uint64_t parameters=0, str symbol="", double cost_us=-1, int sms=0, int waves=1, accesses=()):
        cdef OwnedWork work = work_of(symbol, cost_us, sms, waves, accesses)
        cdef KernelLaunch kernel
        kernel.function = function
        for axis in range(3):
            kernel.grid[axis] = grid[axis]
            kernel.block[axis] = block[axis]
        kernel.shared_bytes = shared_bytes
        kernel.parameters = <void**><uintptr_t>parameters
        with nogil:
            self.driver.get().launch(kernel, stream, work.view()).check()

    def host_work(self, uint64_t stream, function=None, *, str symbol="", double cost_us=-1, int sms=0, int waves=1,
                  accesses=()):
        cdef OwnedWork work = work_of(symbol, cost_us, sms, waves, accesses)
        cdef void* argument = <void*>function
        if function is None:
            with nogil:
                self.driver.get().host_work(stream, NULL, NULL, NULL, work.view()).check()
            return
        Py_INCREF(function)
        with nogil:
            self.driver.get().host_work(stream, run_callable, drop_callable, argument, work.view()).check()

    def begin_body(self, uint64_t stream):
        with nogil:
            self.driver.get().begin_body(stream, stf_python_interrupt()).check()

    def end_body(self, uint64_t stream, *, str symbol="", double cost_us=-1, int sms=0, int waves=1, accesses=()):
        cdef OwnedWork work = work_of(symbol, cost_us, sms, waves, accesses)
        with nogil:
            self.driver.get().end_body(stream, work.view()).check()

    # What only a simulated machine can do. All without the GIL: a host function that another thread is running
    # for the machine wants it.
    @property
    def spec_name(self):
        return text_of(self.simulated_driver().spec().name)

    def now_us(self):
        cdef SimDriver* sim = self.simulated_driver()
        cdef double found
        with nogil:
            found = sim.now_us()
        return found

    def advance_us(self, double us):
        cdef SimDriver* sim = self.simulated_driver()
        with nogil:
            sim.advance_us(us)

    def order_fault(self, kind, uint64_t nth, code):
        cdef SimDriver* sim = self.simulated_driver()
        cdef FaultKind fault = <FaultKind>chosen(FAULT_KINDS, "kind", kind)
        cdef Code failure = <Code>chosen(CODES, "code", code)
        with nogil:
            sim.order_fault(fault, nth, failure)

    def conflicts(self):
        cdef SimDriver* sim = self.simulated_driver()
        cdef vector[string] found
        with nogil:
            found = sim.conflicts()
        return [text_of(text) for text in found]

    def record_timeline(self, cbool on=True):
        cdef SimDriver* sim = self.simulated_driver()
        with nogil:
            sim.record_timeline(on)

    def timeline(self):
        cdef SimDriver* sim = self.simulated_driver()
        cdef vector[TimelineEntry] found
        with nogil:
            found = sim.timeline()
        return [
            {"kind": text_of(entry.kind), "symbol": text_of(entry.symbol), "device": entry.device,
             "stream": entry.stream, "start_us": entry.start_us, "end_us": entry.end_us, "nbytes": entry.nbytes,
             "sms": entry.sms}
            for entry in found
        ]

    def used_memory(self, int device):
        cdef SimDriver* sim = self.simulated_driver()
        cdef size_t found
        with nogil:
            found = sim.used_memory(device)
        return found

    def live_allocations(self):
        cdef SimDriver* sim = self.simulated_driver()
        cdef size_t found
        with nogil:
            found = sim.live_allocations()
        return found

    def operations(self):
        cdef SimDriver* sim = self.simulated_driver()
        cdef uint64_t found
        with nogil:
            found = sim.operations()
        return found

    def drain(self):
        cdef SimDriver* sim = self.simulated_driver()
        with nogil:
            sim.drain().check()


cdef is_ready(Status& status):
    if status.is_(Code.not_ready):
        return False
    status.check()
    return True


def cuda_driver():
    cdef shared_ptr[Driver] driver
    with nogil:
        make_cuda_driver(&driver).check()
    return DriverHandle.wrap(driver)


def sim_driver(dict spec, *, cbool execute=True, cbool chaos=False, uint64_t seed=0, cbool check_conflicts=True,
               cbool measure_bodies=False):
    cdef MachineSpec machine = machine_spec_of(spec)
    cdef Options options
    cdef shared_ptr[SimDriver] driver
    options.execute = execute
    options.chaos = chaos
    options.seed = seed
    options.check_conflicts = check_conflicts
    options.measure_bodies = measure_bodies
    with nogil:
        make_sim_driver(machine, options, &driver).check()
    return DriverHandle.wrap(<shared_ptr[Driver]>driver)
