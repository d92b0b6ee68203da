# distutils: language = c++
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector
from operator import index

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.grid_shapes cimport MAX_RANK, grid_shape, selection
from stf_places._native.runtime cimport Driver, Runtime, RuntimeHandle, current_runtime, opened_runtime
from stf_places._native.stream_arguments cimport cuda_stream, stream_handle_on

from stf_places.errors import NotSupported

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
    static void stf_set_places(stf_places::ExecPlace& grid, std::vector<stf_places::ExecPlace> places) {
      grid.kind = stf_places::ExecPlace::Kind::grid;
      grid.places = std::make_shared<const std::vector<stf_places::ExecPlace>>(std::move(places));
    }
    static void stf_let_go(stf_places::ExecPlace& place) { const auto last = std::move(place); }
    static std::shared_ptr<stf_places::StreamPool> stf_make_pool(std::shared_ptr<stf_places::Runtime> runtime) {
      return std::make_shared<stf_places::StreamPool>(std::move(runtime));
    }
    """
    void stf_set_places(ExecPlace&, vector[ExecPlace]) except +raise_stf_error
    void stf_let_go(ExecPlace&)
    shared_ptr[StreamPool] stf_make_pool(shared_ptr[Runtime]) except +raise_stf_error


cdef int ordinal(object dev_id) except -1:
    if isinstance(dev_id, bool) or not hasattr(type(dev_id), "__index__"):
        raise TypeError(f"a device is an int, its ordinal: got {dev_id!r} ({type(dev_id).__name__})")
    number = index(dev_id)
    if not 0 <= number < 1 << 31:
        raise ValueError(f"device ordinals count from 0: got {number}")
    return number


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
        raise TypeError("a data place is made by data_place.host(), device(i), managed(), affine() or "
                        "current_device()")

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

    @property
    def kind(self):
        if self.value.kind == DataKind.device:
            return "device"
        if self.value.kind == DataKind.host:
            return "host"
        return "managed" if self.value.kind == DataKind.managed else "affine"

    @property
    def device_id(self):
        return self.value.device

    @property
    def allocation_is_stream_ordered(self):
        return self.value.kind == DataKind.device

    def allocate(self, nbytes, stream=None):
        cdef size_t count = byte_count(nbytes)
        cdef RuntimeHandle runtime = current_runtime()
        cdef uint64_t handle = stream_handle_on(stream, runtime)
        cdef uint64_t address
        with nogil:
            address = allocate_at(runtime.value.get()[0], self.value, count, handle)
        return address

    def deallocate(self, ptr, nbytes, stream=None):
        byte_count(nbytes)
        cdef uint64_t address = index(ptr)
        cdef RuntimeHandle runtime = current_runtime()
        cdef uint64_t handle = stream_handle_on(stream, runtime)
        with nogil:
            free_at(runtime.value.get()[0], self.value, address, handle)

    def __eq__(self, other):
        if not isinstance(other, data_place):
            return NotImplemented
        return self.value == (<data_place>other).value

    def __hash__(self):
        return hash((data_place, <int>self.value.kind, self.value.device))

    def __reduce__(self):
        if self.value.kind == DataKind.device:
            return data_place.device, (self.value.device,)
        return getattr(data_place, self.kind), ()

    def __repr__(self):
        argument = str(self.value.device) if self.value.kind == DataKind.device else ""
        return f"data_place.{self.kind}({argument}){machine_note()}"


cdef class exec_place:
    def __init__(self):
        raise TypeError("an execution place is made by exec_place.device(i), host(), current_device(), green_places() "
                        "or exec_place.from_context(ctx)")

    def __dealloc__(self):
        if self.machine is not None:
            with nogil:
                stf_let_go(self.value)

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
    def rest(places):
        from stf_places._native.partitions import rest
        return rest(list(places))

    # The same place as another object, whose affine data place can be set.
    cdef exec_place copied(self):
        cdef exec_place place = exec_place.__new__(exec_place)
        place.value = self.value
        place.partition = self.partition
        place.machine = self.machine
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
        return None if self.value.kind == ExecKind.grid else data_place.device(self.value.device)

    def set_affine_data_place(self, data_place dplace not None):
        if dplace.value.kind == DataKind.affine:
            raise ValueError("the data place of a place is a place with memory: got data_place.affine(), which stands "
                             "for what is being set; give data_place.device(i), host() or managed()")
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
        return self.text() + machine_note(self.machine)


cdef object faces():
    from stf_places.places import green_contexts
    return green_contexts


cdef class exec_place_grid(exec_place):
    def __init__(self):
        raise TypeError("a grid is made by exec_place_grid.from_devices(device_ids) or "
                        "exec_place_grid.create(places, grid_dims)")

    def __dealloc__(self):
        # Before `places` goes, which may hold the last machine.
        if self.machine is not None:
            with nogil:
                stf_let_go(self.value)

    @staticmethod
    def from_devices(device_ids):
        if isinstance(device_ids, (str, bytes)) or not hasattr(type(device_ids), "__iter__"):
            raise TypeError(f"device_ids is a sequence of device ordinals: got {device_ids!r}")
        return exec_place_grid.create([exec_place.device(dev_id) for dev_id in device_ids])

    @staticmethod
    def create(places, grid_dims=None, mapper=None):
        if mapper is not None:
            raise NotSupported("mapper= needs composite data places, which this version does not have: leave it out and "
                               "give each dependency a data place")
        cdef tuple given = tuple(places)
        cdef vector[ExecPlace] values
        for place in given:
            if not isinstance(place, exec_place):
                raise TypeError(f"a grid is made of exec_place objects: got {place!r} ({type(place).__name__}); for "
                                "device ordinals use exec_place_grid.from_devices")
            if isinstance(place, exec_place_grid):
                raise TypeError(f"a grid is made of single places: got {(<exec_place>place).text()}; give its .places")
            values.push_back((<exec_place>place).value)
        if not given:
            raise ValueError("a grid has 1 place or more: got none")
        cdef exec_place_grid grid = exec_place_grid.__new__(exec_place_grid)
        grid._dims = grid_shape(grid_dims, len(given))
        grid.places = given
        for place in given:
            if (<exec_place>place).machine is not None:
                grid.machine = (<exec_place>place).machine
        stf_set_places(grid.value, values)
        return grid

    @property
    def size(self):
        return len(self.places)

    @property
    def sm_count(self):
        return sum([place.sm_count for place in self.places])

    @property
    def shape(self):
        return self._dims

    @property
    def dims(self):
        return self._dims + (1,) * (MAX_RANK - len(self._dims))

    def get_place(self, idx):
        number = index(idx)
        if not 0 <= number < len(self.places):
            raise IndexError(f"places of this grid are numbered 0 to {len(self.places) - 1}, in C order: got {number}")
        return self.places[number]

    def __getitem__(self, key):
        ranges, kept = selection(key, self._dims)
        numbers = [0]
        for chosen, length in zip(ranges, self._dims):
            numbers = [number * length + one for number in numbers for one in chosen]
        if not kept:
            return self.places[numbers[0]]
        if not numbers:
            raise ValueError(f"a grid has 1 place or more: {key!r} selects none of a grid of shape {self._dims}")
        return exec_place_grid.create([self.places[number] for number in numbers],
                                      tuple(len(ranges[axis]) for axis in kept))

    def __len__(self):
        return self._dims[0]

    def __iter__(self):
        for number in range(self._dims[0]):
            yield self[number]

    def pick_stream(self, exec_place_resources resources not None, for_computation=True):
        return (<exec_place>self.places[0]).pick_stream(resources, for_computation)

    def __enter__(self):
        raise TypeError(f"a thread has one current context: a grid of {len(self.places)} place(s) cannot be entered; "
                        "enter one of its places")

    def __eq__(self, other):
        if not isinstance(other, exec_place):
            return NotImplemented
        if not isinstance(other, exec_place_grid):
            return False
        return self._dims == (<exec_place_grid>other)._dims and self.places == (<exec_place_grid>other).places

    def __hash__(self):
        return hash((exec_place_grid, self._dims, self.places))

    def __reduce__(self):
        return exec_place_grid.create, (self.places, self._dims)

    cdef str text(self):
        cdef exec_place place
        if len(self._dims) == 1 and all([(<exec_place>one).value.kind == ExecKind.device for one in self.places]):
            return f"exec_place_grid.from_devices({[(<exec_place>one).value.device for one in self.places]})"
        texts = ", ".join([(<exec_place>one).text() for one in self.places])
        return f"exec_place_grid.create([{texts}], grid_dims={self._dims})"


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
