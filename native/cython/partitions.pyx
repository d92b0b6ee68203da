# distutils: language = c++
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from cpython.ref cimport Py_INCREF

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.places cimport ExecPlace, PlaceContext, exec_place, ordinal
from stf_places._native.runtime cimport Driver, Runtime, RuntimeHandle, current_runtime
from stf_places._native.signals cimport Interrupt, stf_python_interrupt

from stf_places.errors import PartitionError

ctypedef void (*Release)(void*) noexcept nogil

cdef extern from "core/places.hpp" namespace "stf_places" nogil:
    ExecPlace place_on(shared_ptr[PlaceContext]) except +raise_stf_error
    void require_usable(const ExecPlace&, const Driver&) except +raise_stf_error

cdef extern from "cython/let_go.hpp" namespace "stf_places" nogil:
    void let_go[Value](Value&)

cdef extern from "cython/partitions.hpp" namespace "stf_places" nogil:
    cdef cppclass Request:
        vector[int] counts
        cbool as_many
        cbool exact
        cbool fine
        int coscheduled
        cbool has_queues
        int concurrency_limit
        cbool balanced
        string text
    cdef cppclass Plan:
        cbool fits
        vector[int] sm_counts
        int remainder
        vector[int] nearest
        string reason
    cdef cppclass Made:
        vector[shared_ptr[Partition]] places
        Plan plan
    const shared_ptr[PlaceContext]& context_of(const Partition&)
    ExecPlace cpp_place_of "stf_places::place_of"(const Partition&) except +raise_stf_error
    Plan plan_partitions(Runtime&, int, const Request&, const shared_ptr[Partition]&,
                         const Interrupt&) except +raise_stf_error
    Made make_partitions(Runtime&, int, const Request&, const shared_ptr[Partition]&,
                         const Interrupt&) except +raise_stf_error
    Made repartition_places(Runtime&, const vector[shared_ptr[Partition]]&, const Request&,
                            const Interrupt&) except +raise_stf_error
    cdef cppclass SplitOrigin:
        pass
    SplitOrigin origin_of(const Made&)
    shared_ptr[Partition] remainder_of(Runtime&, const SplitOrigin&, const Interrupt&) except +raise_stf_error
    shared_ptr[Partition] rest_of(Runtime&, const vector[shared_ptr[Partition]]&, const Interrupt&) except +raise_stf_error
    shared_ptr[PlaceContext] adopt_context(Runtime&, uint64_t, int, Release, void*) except +raise_stf_error
    int device_sm_count(Runtime&, int) except +raise_stf_error
    int known_sm_count(const ExecPlace&)
    void release_object(void*) noexcept


cdef class SmPartition:
    def __init__(self):
        raise TypeError("an SmPartition is held by a place of green_places()")

    def __dealloc__(self):
        with nogil:
            let_go(self.value)

    @property
    def handle(self):
        return context_of(self.value.get()[0]).get().handle()

    @property
    def device_id(self):
        return context_of(self.value.get()[0]).get().device()

    @property
    def sm_count(self):
        return context_of(self.value.get()[0]).get().sm_count()

    @property
    def machine(self):
        return self.runtime

    # The same one each time.
    def open_stream(self):
        cdef PlaceContext* context = context_of(self.value.get()[0]).get()
        if self.stream == 0:
            with nogil:
                self.stream = context.open_stream(0)
        return self.stream


# The SMs out of which places were made, for what is left of them.
cdef class SmSplit:
    cdef RuntimeHandle runtime
    cdef SplitOrigin origin

    def __init__(self):
        raise TypeError("an SmSplit comes with the places of green_places()")

    def __dealloc__(self):
        with nogil:
            let_go(self.origin)

    def remainder(self):
        cdef Runtime* runtime = self.runtime.value.get()
        cdef shared_ptr[Partition] found
        with nogil:
            found = remainder_of(runtime[0], self.origin, stf_python_interrupt())
        return None if found.get() == NULL else place_of(found, self.runtime)


cdef exec_place place_of(const shared_ptr[Partition]& partition, RuntimeHandle runtime):
    cdef SmPartition hold = SmPartition.__new__(SmPartition)
    cdef exec_place place = exec_place.__new__(exec_place)
    hold.runtime = runtime
    hold.value = partition
    place.value = cpp_place_of(partition.get()[0])
    place.partition = hold
    place.made_on = runtime
    return place


# Another object for the place of a partition.
def on_partition(SmPartition hold not None):
    cdef exec_place place = place_of(hold.value, hold.runtime)
    require_here(place)
    return place


cdef Request request_of(list counts, bint as_many, bint exact, bint fine, int coscheduled, queues, str text) except *:
    cdef Request request
    request.counts = counts
    request.as_many = as_many
    request.exact = exact
    request.fine = fine
    request.coscheduled = coscheduled
    request.has_queues = queues is not None
    request.concurrency_limit, request.balanced = queues or (0, False)
    request.text = text.encode()
    return request


cdef tuple plan_of(Plan& plan):
    return (bool(plan.fits), tuple(plan.sm_counts), plan.remainder, tuple(plan.nearest),
            plan.reason.decode("utf-8", "replace"))


cdef SmPartition partition_of(place, str what):
    if not isinstance(place, exec_place):
        raise TypeError(f"{what} takes places of green_places(): got {place!r} ({type(place).__name__})")
    hold = (<exec_place>place).partition
    if hold is None:
        raise PartitionError(f"{what} takes places of green_places(): got {place!r}, which is none")
    return hold


cdef shared_ptr[Partition] within_of(place) except *:
    cdef shared_ptr[Partition] none
    cdef SmPartition hold
    if place is None:
        return none
    hold = partition_of(place, "within=")
    require_here(place)
    return hold.value


cdef vector[shared_ptr[Partition]] partitions_of(list places, str what) except *:
    cdef vector[shared_ptr[Partition]] found
    if not places:
        raise PartitionError(f"{what} takes one place or more: got none")
    for place in places:
        found.push_back(partition_of(place, what).value)
        require_here(place)
    return found


# A place is used on its own machine, and before it is replaced.
cdef int require_here(exec_place place) except -1:
    require_usable(place.value, current_runtime().value.get().driver())
    return 0


cdef RuntimeHandle runtime_of(list places):
    return (<SmPartition>(<exec_place>places[0]).partition).runtime


cdef tuple made_of(Made& made, RuntimeHandle runtime):
    cdef SmSplit split = SmSplit.__new__(SmSplit)
    split.runtime = runtime
    split.origin = origin_of(made)
    return [place_of(one, runtime) for one in made.places], plan_of(made.plan), split


def plan(device_id, list counts, bint as_many, bint exact, bint fine, int coscheduled, queues, within, str text):
    cdef RuntimeHandle runtime = current_runtime()
    cdef Request request = request_of(counts, as_many, exact, fine, coscheduled, queues, text)
    cdef int device = ordinal(device_id)
    cdef shared_ptr[Partition] parent = within_of(within)
    cdef Plan found
    with nogil:
        runtime.value.get().check_device(device)
        found = plan_partitions(runtime.value.get()[0], device, request, parent, stf_python_interrupt())
    return plan_of(found)


def make(device_id, list counts, bint as_many, bint exact, bint fine, int coscheduled, queues, within, str text):
    cdef RuntimeHandle runtime = current_runtime()
    cdef Request request = request_of(counts, as_many, exact, fine, coscheduled, queues, text)
    cdef int device = ordinal(device_id)
    cdef shared_ptr[Partition] parent = within_of(within)
    cdef Made made
    with nogil:
        runtime.value.get().check_device(device)
        made = make_partitions(runtime.value.get()[0], device, request, parent, stf_python_interrupt())
    return made_of(made, runtime)


def repartition(list places, list counts, bint as_many, bint exact, bint fine, int coscheduled, queues, str text):
    cdef vector[shared_ptr[Partition]] leaving = partitions_of(places, "repartition()")
    cdef RuntimeHandle runtime = runtime_of(places)
    cdef Request request = request_of(counts, as_many, exact, fine, coscheduled, queues, text)
    cdef Made made
    with nogil:
        made = repartition_places(runtime.value.get()[0], leaving, request, stf_python_interrupt())
    return made_of(made, runtime)


def rest(list places):
    cdef vector[shared_ptr[Partition]] given = partitions_of(places, "rest()")
    cdef RuntimeHandle runtime = runtime_of(places)
    cdef shared_ptr[Partition] found
    with nogil:
        found = rest_of(runtime.value.get()[0], given, stf_python_interrupt())
    return place_of(found, runtime)


# A place on a context of another owner. `keeps` is held until neither places nor streams use the context.
def adopt(uint64_t handle, int device, keeps, backing):
    cdef RuntimeHandle runtime = current_runtime()
    cdef exec_place place = exec_place.__new__(exec_place)
    cdef shared_ptr[PlaceContext] context
    cdef Release release = NULL
    if keeps is not None:
        release = release_object
        Py_INCREF(keeps)
    with nogil:
        context = adopt_context(runtime.value.get()[0], handle, device, release, <void*>keeps)
    place.value = place_on(context)
    place.made_on = runtime
    place._backing = backing
    return place


# Keeps a context from being destroyed, without holding its SMs.
cdef class ContextKeeper:
    cdef RuntimeHandle runtime
    cdef shared_ptr[PlaceContext] context

    def __dealloc__(self):
        with nogil:
            let_go(self.context)


def keep_context(exec_place place not None):
    cdef ContextKeeper keeper = ContextKeeper.__new__(ContextKeeper)
    keeper.runtime = place.made_on
    keeper.context = place.value.owner
    return keeper


# Raises unless the place can be used on the machine in use.
def require_usable_here(exec_place place not None):
    require_here(place)


# Whether the place stands on a context of another owner.
def is_adopted(exec_place place not None):
    return place.made_on is not None and place.partition is None


def context_handle(exec_place place not None):
    return place.value.context


def sm_count_of(exec_place place not None):
    cdef RuntimeHandle runtime = current_runtime()
    cdef int found
    with nogil:
        found = known_sm_count(place.value)
        if found == 0:
            found = device_sm_count(runtime.value.get()[0], place.value.device)
    return found
