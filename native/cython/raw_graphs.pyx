# distutils: language = c++
from cpython.exc cimport PyErr_WriteUnraisable
from cpython.ref cimport PyObject, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from stf_places._native.drivers cimport DriverHandle, HostFunction, Status

cdef extern from "Python.h":
    PyObject* PyObject_CallNoArgs(PyObject*) noexcept

cdef extern from "driver/driver.hpp" namespace "stf_places" nogil:
    cdef cppclass Handles "std::span<const uint64_t>":
        Handles(const uint64_t*, size_t)
    cdef enum LoopType "stf_places::LoopCondition::Type":
        pass
    cdef enum LoopCompare "stf_places::LoopCondition::Compare":
        pass
    cdef cppclass LoopTerm "stf_places::LoopCondition::Term":
        uint64_t value
        LoopType type
        LoopCompare compare
        cbool negate
        double real
        int64_t whole
    cdef cppclass LoopCondition "stf_places::LoopCondition":
        LoopTerm terms[8]
        uint32_t size
        cbool any
        uint64_t counter
        uint64_t count
    # The part of Driver that only these functions use.
    cdef cppclass GraphDriver "stf_places::Driver":
        Status create_graph(uint64_t*)
        Status destroy_graph(uint64_t)
        Status begin_capture(uint64_t, uint64_t)
        Status join_capture(uint64_t, uint64_t)
        Status set_capture_dependencies(uint64_t, Handles)
        Status capture_dependencies(uint64_t, vector[uint64_t]*)
        Status add_empty_node(uint64_t, Handles, uint64_t*)
        Status end_capture(uint64_t, Handles)
        Status add_graph_node(uint64_t, Handles, uint64_t, uint64_t*)
        Status create_condition(uint64_t, uint64_t, uint64_t*)
        Status add_loop_node(uint64_t, Handles, uint64_t, uint64_t, uint64_t*, uint64_t*)
        Status add_condition_node(uint64_t, Handles, uint64_t, const LoopCondition&, uint64_t, uint64_t, uint64_t*)
        Status graph_nodes(uint64_t, vector[uint64_t]*, vector[pair[uint64_t, uint64_t]]*)
        Status instantiate_graph(uint64_t, uint64_t*)
        Status update_graph_exec(uint64_t, uint64_t, cbool*)
        Status launch_graph(uint64_t, uint64_t)
        Status destroy_graph_exec(uint64_t)
        Status host_function(uint64_t, HostFunction, void*)

cdef extern from "driver/sim/sim_driver.hpp" namespace "stf_places::sim" nogil:
    cdef cppclass GraphSimDriver "stf_places::sim::SimDriver":
        size_t live_graphs()


cdef tuple TYPES = ("float32", "float64", "int32", "int64")
cdef tuple COMPARISONS = ("<", "<=", ">", ">=")


cdef GraphDriver* driver_of(DriverHandle handle) noexcept:
    return <GraphDriver*>handle.driver.get()


cdef void run_kept(void* argument) noexcept with gil:
    # By the C interface, because the hook gets an exception only while it is set.
    cdef PyObject* result = PyObject_CallNoArgs(<PyObject*>argument)
    if result == NULL:
        PyErr_WriteUnraisable(<object>argument)
    else:
        Py_XDECREF(result)


def create_graph(DriverHandle handle not None):
    cdef GraphDriver* driver = driver_of(handle)
    cdef uint64_t made = 0
    with nogil:
        driver.create_graph(&made).check()
    return made


def destroy_graph(DriverHandle handle not None, uint64_t graph):
    cdef GraphDriver* driver = driver_of(handle)
    with nogil:
        driver.destroy_graph(graph).check()


def begin_capture(DriverHandle handle not None, uint64_t graph, uint64_t origin):
    cdef GraphDriver* driver = driver_of(handle)
    with nogil:
        driver.begin_capture(graph, origin).check()


def join_capture(DriverHandle handle not None, uint64_t origin, uint64_t stream):
    cdef GraphDriver* driver = driver_of(handle)
    with nogil:
        driver.join_capture(origin, stream).check()


def set_capture_dependencies(DriverHandle handle not None, uint64_t stream, nodes):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] given = nodes
    with nogil:
        driver.set_capture_dependencies(stream, Handles(given.data(), given.size())).check()


def capture_dependencies(DriverHandle handle not None, uint64_t stream):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] found
    with nogil:
        driver.capture_dependencies(stream, &found).check()
    return found


def add_empty_node(DriverHandle handle not None, uint64_t graph, after):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] given = after
    cdef uint64_t made = 0
    with nogil:
        driver.add_empty_node(graph, Handles(given.data(), given.size()), &made).check()
    return made


def end_capture(DriverHandle handle not None, uint64_t origin, joined):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] given = joined
    with nogil:
        driver.end_capture(origin, Handles(given.data(), given.size())).check()


def add_graph_node(DriverHandle handle not None, uint64_t graph, after, uint64_t child):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] given = after
    cdef uint64_t made = 0
    with nogil:
        driver.add_graph_node(graph, Handles(given.data(), given.size()), child, &made).check()
    return made


def create_condition(DriverHandle handle not None, uint64_t graph, uint64_t context):
    cdef GraphDriver* driver = driver_of(handle)
    cdef uint64_t made = 0
    with nogil:
        driver.create_condition(graph, context, &made).check()
    return made


def add_loop_node(DriverHandle handle not None, uint64_t graph, after, uint64_t condition, uint64_t context):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] given = after
    cdef uint64_t body = 0
    cdef uint64_t made = 0
    with nogil:
        driver.add_loop_node(graph, Handles(given.data(), given.size()), condition, context, &body, &made).check()
    return made, body


cdef LoopCondition condition_of(terms, cbool any_of, uint64_t counter, uint64_t count) except *:
    cdef LoopCondition when
    when.any = any_of
    when.counter = counter
    when.count = count
    when.size = len(terms)
    for at, (value, dtype, compare, threshold, negate) in enumerate(terms[:8]):
        when.terms[at].value = value
        when.terms[at].type = <LoopType><int>TYPES.index(dtype)
        when.terms[at].compare = <LoopCompare><int>COMPARISONS.index(compare)
        when.terms[at].negate = negate
        if dtype.startswith("float"):
            when.terms[at].real = threshold
        else:
            when.terms[at].whole = threshold
    return when


def add_condition_node(DriverHandle handle not None, uint64_t graph, after, uint64_t condition, uint64_t context,
                       terms=(), *, cbool any_of=False, uint64_t counter=0, uint64_t count=0, uint64_t kernel=0):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] given = after
    cdef LoopCondition when = condition_of(terms, any_of, counter, count)
    cdef uint64_t made = 0
    with nogil:
        driver.add_condition_node(graph, Handles(given.data(), given.size()), condition, when, kernel, context,
                                  &made).check()
    return made


def graph_nodes(DriverHandle handle not None, uint64_t graph):
    cdef GraphDriver* driver = driver_of(handle)
    cdef vector[uint64_t] nodes
    cdef vector[pair[uint64_t, uint64_t]] edges
    with nogil:
        driver.graph_nodes(graph, &nodes, &edges).check()
    return nodes, edges


def instantiate_graph(DriverHandle handle not None, uint64_t graph):
    cdef GraphDriver* driver = driver_of(handle)
    cdef uint64_t made = 0
    with nogil:
        driver.instantiate_graph(graph, &made).check()
    return made


def update_graph_exec(DriverHandle handle not None, uint64_t exec_, uint64_t graph):
    cdef GraphDriver* driver = driver_of(handle)
    cdef cbool fits = False
    with nogil:
        driver.update_graph_exec(exec_, graph, &fits).check()
    return fits


def launch_graph(DriverHandle handle not None, uint64_t exec_, uint64_t stream):
    cdef GraphDriver* driver = driver_of(handle)
    with nogil:
        driver.launch_graph(exec_, stream).check()


def destroy_graph_exec(DriverHandle handle not None, uint64_t exec_):
    cdef GraphDriver* driver = driver_of(handle)
    with nogil:
        driver.destroy_graph_exec(exec_).check()


def record_host_function(DriverHandle handle not None, uint64_t stream, function):
    cdef GraphDriver* driver = driver_of(handle)
    cdef void* argument = <void*>function
    with nogil:
        driver.host_function(stream, run_kept, argument).check()


def live_graphs(DriverHandle handle not None):
    cdef GraphSimDriver* sim = <GraphSimDriver*>handle.simulated_driver()
    cdef size_t found
    with nogil:
        found = sim.live_graphs()
    return found
