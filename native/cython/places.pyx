# distutils: language = c++
cimport cython
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move
from operator import index

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.runtime cimport Driver, Runtime, RuntimeHandle, current_runtime, opened_runtime
from stf_places._native.stream_arguments cimport cuda_stream, stream_handle_on

cdef extern from "cython/let_go.hpp" namespace "stf_places" nogil:
    void let_go[Value](Value&)

cdef extern from "core/allocation.hpp" namespace "stf_places" nogil:
    uint64_t allocate_at(Runtime&, const DataPlace&, size_t, uint64_t) except +raise_stf_error
    void free_at(Runtime&, const DataPlace&, uint64_t, uint64_t) except +raise_stf_error

cdef extern from "core/activation.hpp" namespace "stf_places" nogil:
    void activate(const void*, const shared_ptr[Runtime]&, uint64_t) except +raise_stf_error
    void deactivate(const void*) except +raise_stf_error

cdef extern from "core/places.hpp" namespace "stf_places" nogil:
    void require_usable(const ExecPlace&, const Driver&) except +raise_stf_error

cdef extern from * nogil:
    """
    #include "core/places.hpp"
    #include "core/streams.hpp"
    static std::shared_ptr<stf_places::StreamPool> stf_make_pool(std::shared_ptr<stf_places::Runtime> runtime) {
      return std::make_shared<stf_places::StreamPool>(std::move(runtime));
    }
    """
    shared_ptr[StreamPool] stf_make_pool(shared_ptr[Runtime]) except +raise_stf_error


cdef int ordinal(object dev_id) except -1:
    if isinstance(dev_id, bool) or not hasattr(type(dev_id), "__index__"):
        raise TypeError(f"a device is an int, its ordinal: got {dev_id!r} ({type(dev_id).__name__})")
    number = index(dev_id)
    if not 0 <= number < 1 << 31:
        raise ValueError(f"device ordinals count from 0: got {number}")
    return number


# Drivers so far know no locality domains, so a device is one.
cdef int device_of_domain(object dev_id, object domain) except -1:
    cdef int device = ordinal(dev_id)
    if isinstance(domain, bool) or not hasattr(type(domain), "__index__"):
        raise TypeError(f"a locality domain is an int, counted from 0: got {domain!r} ({type(domain).__name__})")
    number = index(domain)
    current_runtime().value.get().check_device(device)
    if number != 0:
        raise IndexError(f"device {device} has 1 locality domain, number 0: got {number}")
    return device


cdef size_t byte_count(object nbytes) except? 0:
    if isinstance(nbytes, bool) or not hasattr(type(nbytes), "__index__"):
        raise TypeError(f"nbytes is an int: got {nbytes!r} ({type(nbytes).__name__})")
    number = index(nbytes)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"nbytes is from 0 to 2**63 - 1: got {number}")
    return number


cdef int device_in_use() except -1:
    cdef Runtime* runtime = current_runtime().value.get()
    cdef int device
    with nogil:
        device = runtime.current_device()
    return device


# What repr says behind a place, as a comment, so that the text still reads back.
cdef str machine_note(RuntimeHandle own=None):
    cdef RuntimeHandle runtime = opened_runtime() if own is None else own
    if runtime is None or not runtime.value.get().simulated():
        return ""
    return f"  # simulated {runtime.driver.machine}"


cdef class data_place:
    def __init__(self):
        raise TypeError("a data place is made by data_place.host(), device(i), managed(), affine(), "
                        "current_device(), composite(grid, spec) or replicated()")

    @staticmethod
    cdef data_place of(DataPlace value):
        cdef data_place place = data_place.__new__(data_place)
        place.value = value
        return place

    @staticmethod
    def device(dev_id):
        cdef DataPlace value
        value.kind = DataKind.device
        value.device = ordinal(dev_id)
        return data_place.of(value)

    @staticmethod
    def host():
        cdef DataPlace value
        value.kind = DataKind.host
        return data_place.of(value)

    @staticmethod
    def managed():
        cdef DataPlace value
        value.kind = DataKind.managed
        return data_place.of(value)

    @staticmethod
    def affine():
        cdef DataPlace value
        return data_place.of(value)

    @staticmethod
    def current_device():
        return data_place.device(device_in_use())

    @staticmethod
    def green_ctx(view):
        return data_place.device(faces().view_device(view))

    @staticmethod
    def locality_domain(dev_id, domain):
        return data_place.device(device_of_domain(dev_id, domain))

    @staticmethod
    def composite(grid, spec):
        from stf_places.partitions.composites import Composite
        cdef data_place place = data_place.__new__(data_place)
        place.spread = Composite.of(grid, spec)
        place.value.kind = DataKind.composite
        check_composite(place)
        return place

    @staticmethod
    def replicated(grid=None):
        cdef data_place place = data_place.__new__(data_place)
        if grid is not None:
            from stf_places.partitions.composites import checked_grid
            place.over = checked_grid(grid, "replicated data")
        place.value.kind = DataKind.replicated
        return place

    @property
    def kind(self):
        return KINDS[<int>self.value.kind]

    @property
    def device_id(self):
        return self.value.device

    @property
    def grid(self):
        return self.over if self.spread is None else self.spread.grid

    @property
    def spec(self):
        return None if self.spread is None else self.spread.spec

    @property
    def allocation_is_stream_ordered(self):
        return self.value.kind == DataKind.device

    def allocate(self, nbytes, stream=None):
        cdef size_t count = byte_count(nbytes)
        cdef RuntimeHandle runtime = current_runtime()
        cdef uint64_t handle = stream_handle_on(stream, runtime)
        cdef DataPlace where = bytes_on(self, count, runtime)
        cdef uint64_t address
        with nogil:
            address = allocate_at(runtime.value.get()[0], where, count, handle)
        return address

    def deallocate(self, ptr, nbytes, stream=None):
        cdef size_t count = byte_count(nbytes)
        cdef uint64_t address = index(ptr)
        cdef RuntimeHandle runtime = current_runtime()
        cdef uint64_t handle = stream_handle_on(stream, runtime)
        cdef DataPlace where = bytes_on(self, count, runtime)
        with nogil:
            free_at(runtime.value.get()[0], where, address, handle)

    # A composite place that is bound to a shape is the same value as before.
    def __eq__(self, other):
        if not isinstance(other, data_place):
            return NotImplemented
        if self.value.kind != DataKind.composite:
            return self.value == (<data_place>other).value and self.over == (<data_place>other).over
        return self.spread == (<data_place>other).spread

    def __hash__(self):
        return hash((data_place, <int>self.value.kind, self.value.device, self.spread, self.over))

    def __reduce__(self):
        if self.value.kind == DataKind.device:
            return data_place.device, (self.value.device,)
        if self.spread is not None:
            return data_place.composite, (self.spread.grid, self.spread.spec)
        return getattr(data_place, self.kind), (() if self.over is None else (self.over,))

    def __repr__(self):
        argument = str(self.value.device) if self.value.kind == DataKind.device else ""
        if self.grid is not None:
            argument = repr(self.grid).partition("  #")[0]
        if self.spread is not None:
            argument += f", {self.spread.spec!r}"
        return f"data_place.{self.kind}({argument}){machine_note()}"


cdef tuple KINDS = ("affine", "host", "managed", "device", "composite", "replicated")


# Where memory of so many bytes without a shape lies.
cdef DataPlace bytes_on(data_place place, size_t nbytes, RuntimeHandle runtime) except *:
    from stf_places._native import composites
    cdef data_place bound = place
    if place.value.kind == DataKind.composite and nbytes:
        bound = composites.bound(place, (nbytes,), 1, runtime)
    return bound.value


# Devices that do not reach each other are refused early, where a machine is open that can be asked.
cdef int check_composite(data_place place) except -1:
    from stf_places._native import composites
    cdef RuntimeHandle runtime = opened_runtime()
    if runtime is not None:
        composites.check_peers(place, runtime)
    return 0


# Not cleared by the collector: what is behind the value goes before its machine, in __dealloc__.
@cython.no_gc_clear
cdef class exec_place:
    def __init__(self):
        raise TypeError("an execution place is made by exec_place.device(i), host(), current_device(), green_places() "
                        "or exec_place.from_context(ctx)")

    def __dealloc__(self):
        if self.made_on is not None:
            with nogil:
                let_go(self.value)

    @staticmethod
    def device(dev_id):
        cdef exec_place place = exec_place.__new__(exec_place)
        place.value.kind = ExecKind.device
        place.value.device = ordinal(dev_id)
        return place

    @staticmethod
    def host():
        cdef exec_place place = exec_place.__new__(exec_place)
        place.value.kind = ExecKind.host
        return place

    @staticmethod
    def current_device():
        return exec_place.device(device_in_use())

    @staticmethod
    def from_context(ctx, dev_id=-1):
        return faces().place_from_context(ctx, dev_id)

    @staticmethod
    def green_ctx(view, use_green_ctx_data_place=False):
        cdef exec_place place = (<exec_place?>faces().view_place(view)).copied()
        if use_green_ctx_data_place:
            place.set_affine_data_place(data_place.device(place.value.device))
        return place

    @staticmethod
    def locality_domain(dev_id, domain):
        return exec_place.device(device_of_domain(dev_id, domain))

    @staticmethod
    def rest(places):
        from stf_places._native.partitions import rest
        if not hasattr(type(places), "__iter__"):
            raise TypeError(f"rest() takes an iterable of places: got {places!r}; for one place give [place]")
        return rest(list(places))

    # The same place as another object, whose affine data place can be set.
    cdef exec_place copied(self):
        cdef exec_place place = exec_place.__new__(exec_place)
        place.value = self.value
        place.partition = self.partition
        place.made_on = self.made_on
        place._backing = self._backing
        return place

    @property
    def kind(self):
        if self.value.kind == ExecKind.host:
            return "host"
        return "grid" if self.value.kind == ExecKind.grid else "device"

    @property
    def device_id(self):
        return self.value.device

    @property
    def size(self):
        return 1

    @property
    def dims(self):
        return (1, 1, 1, 1)

    @property
    def sm_count(self):
        if self.value.kind == ExecKind.host:
            return 0
        if self.partition is not None:
            return self.partition.sm_count
        from stf_places._native.partitions import sm_count_of
        return sm_count_of(self)

    @property
    def backing_context(self):
        if self.partition is not None and (self._backing is None or self._backing.is_closed):
            self._backing = faces().GreenContext(self.partition)
        return self._backing

    @property
    def affine_data_place(self):
        if self._affine is not None:
            return self._affine
        if self.value.kind == ExecKind.host:
            return data_place.host()
        return data_place.device(self.value.device)

    def set_affine_data_place(self, data_place dplace not None):
        if dplace.value.kind == DataKind.affine or dplace.value.kind == DataKind.replicated:
            raise ValueError(f"the data place of a place is one place with memory: got data_place.{dplace.kind}(); "
                             "give data_place.device(i), host(), managed() or composite(grid, spec)")
        self._affine = dplace

    def get_place(self, idx):
        if index(idx) != 0:
            raise IndexError(f"a single place has the index 0 only: got {idx}")
        return self

    def pick_stream(self, exec_place_resources resources not None, for_computation=True):
        cdef cbool computation = bool(for_computation)
        cdef uint64_t handle
        cdef StreamPool* pool = resources.pool.get()
        if pool == NULL:
            raise ValueError("the resources were released with their context: take streams before finalize()")
        with nogil:
            handle = pool.next(self.value, computation)
        return cuda_stream(handle, resources.runtime.value.get().simulated())

    def __enter__(self):
        if self.value.kind == ExecKind.host:
            return self
        cdef RuntimeHandle runtime = current_runtime()
        cdef uint64_t context = self.value.context
        cdef const void* owner = <const void*>self
        with nogil:
            require_usable(self.value, runtime.value.get().driver())
            if context == 0:
                context = runtime.value.get().primary(self.value.device)
            activate(owner, runtime.value, context)
        return self

    def __exit__(self, kind, error, traceback):
        cdef const void* owner = <const void*>self
        if self.value.kind != ExecKind.host:
            with nogil:
                deactivate(owner)
        return False

    def __eq__(self, other):
        if not isinstance(other, exec_place):
            return NotImplemented
        return self.value == (<exec_place>other).value

    def __hash__(self):
        return hash((exec_place, <int>self.value.kind, self.value.device, self.value.context, self.value.generation))

    def __reduce__(self):
        if self.value.kind == ExecKind.device:
            return exec_place.device, (self.value.device,)
        if self.value.kind == ExecKind.host:
            return exec_place.host, ()
        raise TypeError(f"{self.text()} is bound to this process and cannot be pickled")

    cdef str text(self):
        if self.value.kind == ExecKind.context:
            size = f"{self.sm_count} SMs of " if self.partition is not None else ""
            return f"<exec_place: {size}device {self.value.device}, context {self.value.context:#x}>"
        argument = str(self.value.device) if self.value.kind == ExecKind.device else ""
        return f"exec_place.{self.kind}({argument})"

    def __repr__(self):
        return self.text() + machine_note(self.made_on)


cdef object faces():
    from stf_places.places import green_contexts
    return green_contexts


cdef class exec_place_resources:
    def __init__(self):
        cdef RuntimeHandle runtime = current_runtime()
        self.runtime = runtime
        self.pool = stf_make_pool(runtime.value)

    def __dealloc__(self):
        # Destroying streams calls the driver, so not with the GIL.
        cdef shared_ptr[StreamPool] last = move(self.pool)
        with nogil:
            last.reset()


cdef class async_resources(exec_place_resources):
    pass
