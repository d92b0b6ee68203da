# distutils: language = c++
cimport cython
from libcpp.vector cimport vector
from math import prod
from operator import index

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.grid_shapes cimport (
    MAX_RANK, axis_at, axis_names, default_axes, grid_shape, neighbours, reshaped, selection)
from stf_places._native.places cimport (
    ExecKind, ExecPlace, data_place, exec_place, exec_place_resources, ordinal)
from stf_places._native.runtime cimport RuntimeHandle, current_runtime

cdef extern from "cython/let_go.hpp" namespace "stf_places" nogil:
    void let_go[Value](Value&)

cdef extern from * nogil:
    """
    #include "core/places.hpp"
    static void stf_set_places(stf_places::ExecPlace& grid, std::vector<stf_places::ExecPlace>& places) {
      grid.kind = stf_places::ExecPlace::Kind::grid;
      grid.places = std::make_shared<const std::vector<stf_places::ExecPlace>>(std::move(places));
    }
    """
    void stf_set_places(ExecPlace&, vector[ExecPlace]&) except +raise_stf_error


# A grid of places that were looked at.
cdef exec_place_grid grid_of(tuple places, tuple shape, tuple axes):
    cdef exec_place_grid grid = exec_place_grid.__new__(exec_place_grid)
    cdef vector[ExecPlace] values
    cdef exec_place place
    values.reserve(len(places))
    for place in places:
        values.push_back(place.value)
        if place.made_on is not None:
            grid.made_on = place.made_on
    grid.places = places
    grid.axes = axes
    grid._dims = shape
    stf_set_places(grid.value, values)
    return grid


cdef str where(tuple path):
    return "places" + "".join([f"[{number}]" for number in path])


# Puts the places of nested sequences and grids into `found`, in C order, and returns their shape.
cdef tuple gathered(given, tuple path, list found):
    cdef tuple first = None
    cdef Py_ssize_t count = 0
    if isinstance(given, exec_place_grid):
        found.extend((<exec_place_grid>given).places)
        return (<exec_place_grid>given)._dims
    if isinstance(given, exec_place) and path:
        found.append(given)
        return ()
    if isinstance(given, (str, bytes)) or not hasattr(type(given), "__iter__"):
        if not path:
            raise TypeError(f"places is a sequence of exec_place objects: got {given!r} ({type(given).__name__}); give "
                            "[place], for instance")
        raise TypeError(f"a grid is made of exec_place objects: got {given!r} ({type(given).__name__}) at "
                        f"{where(path)}; for device ordinals use exec_place_grid.from_devices")
    if len(path) == MAX_RANK:
        raise ValueError(f"a grid has 1 to {MAX_RANK} axes: got a sequence at {where(path)}")
    for one in given:
        inner = gathered(one, path + (count,), found)
        if first is None:
            first = inner
        elif inner != first:
            raise ValueError(f"what is nested in a grid has one shape: got {shape_text(inner)} at "
                             f"{where(path + (count,))} beside {shape_text(first)} at {where(path + (0,))}")
        count += 1
    if not count:
        raise ValueError("a grid has 1 place or more: got none" + (f" at {where(path)}" if path else ""))
    return (count,) + first


cdef str shape_text(tuple shape):
    return f"shape {shape}" if shape else "a single place"


@cython.no_gc_clear
cdef class exec_place_grid(exec_place):
    def __init__(self):
        raise TypeError("a grid is made by exec_place_grid.from_devices(device_ids), "
                        "exec_place_grid.create(places, grid_dims) or exec_place_grid.machine()")

    def __dealloc__(self):
        # Before `places` goes, which may hold the last machine. The last reference may end a driver, so no GIL.
        if self.made_on is not None:
            with nogil:
                let_go(self.value)

    @staticmethod
    def from_devices(device_ids, axes=None):
        if isinstance(device_ids, (str, bytes)) or not hasattr(type(device_ids), "__iter__"):
            raise TypeError(f"device_ids is a sequence of device ordinals: got {device_ids!r}")
        return exec_place_grid.create([exec_place.device(dev_id) for dev_id in device_ids], axes=axes)

    @staticmethod
    def create(places, grid_dims=None, mapper=None, axes=None):
        cdef list found = []
        cdef tuple nesting = gathered(places, (), found)
        cdef tuple shape = grid_shape(grid_dims, len(found), nesting)
        cdef exec_place_grid grid = grid_of(tuple(found), shape, axis_names(axes, shape))
        return grid if mapper is None else grid.with_data(mapper)

    @staticmethod
    def machine(granularity="device"):
        cdef int count = current_runtime().value.get().device_count()
        if isinstance(granularity, str):
            if granularity == "device":
                return exec_place_grid.from_devices(range(count), ("gpu",))
            if granularity == "locality_domain":
                return exec_place_grid.create([exec_place_grid.locality_domains(device) for device in range(count)],
                                              axes=("gpu", "domain"))
            raise ValueError("granularity is 'device', 'locality_domain' or an int, the SMs of each place: got "
                             f"{granularity!r}")
        if isinstance(granularity, bool) or not hasattr(type(granularity), "__index__"):
            raise TypeError("granularity is 'device', 'locality_domain' or an int, the SMs of each place: got "
                            f"{granularity!r} ({type(granularity).__name__})")
        from stf_places.places.sm_partitions import green_places
        made = [green_places(granularity, device_id=device) for device in range(count)]
        fewest = min([len(places) for places in made])
        return exec_place_grid.create([places[:fewest] for places in made], axes=("gpu", "sm"))

    @staticmethod
    def locality_domain_count(dev_id):
        cdef RuntimeHandle runtime = current_runtime()
        cdef int device = ordinal(dev_id)
        with nogil:
            runtime.value.get().check_device(device)
        return 1

    @staticmethod
    def locality_domains(dev_id=None):
        cdef int count = current_runtime().value.get().device_count()
        devices = range(count) if dev_id is None else (dev_id,)
        places = [exec_place.device(device) for device in devices
                  for _ in range(exec_place_grid.locality_domain_count(device))]
        return exec_place_grid.create(places, axes=("domain",))

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

    def axis_number(self, axis):
        return axis_at(axis, self.axes)

    @property
    def affine_data_place(self):
        cdef exec_place place = self.places[0]
        cdef ExecKind kind = place.value.kind
        cdef int device = place.value.device  # -1: the host
        if self._affine is not None:
            return self._affine
        for place in self.places:
            if place.value.device != device:
                return None
        return data_place.host() if kind == ExecKind.host else data_place.device(device)

    def with_data(self, data):
        cdef data_place dplace = data if isinstance(data, data_place) else data_place.composite(self, data)
        cdef exec_place_grid grid = self.arranged(self._dims, self.axes)
        grid.set_affine_data_place(dplace)
        return grid

    def reshape(self, shape, axes=None):
        cdef tuple lengths = reshaped(shape, len(self.places))
        return self.arranged(lengths, axis_names(axes, lengths))

    def collapse_axes(self, *axes, name=None):
        first, end = neighbours(axes, self.axes)
        shape = self._dims[:first] + (prod(self._dims[first:end]),) + self._dims[end:]
        merged = self.axes[first] if name is None else name
        return self.arranged(shape, axis_names(self.axes[:first] + (merged,) + self.axes[end:], shape))

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
        return grid_of(tuple([self.places[number] for number in numbers]), tuple([len(ranges[axis]) for axis in kept]),
                       tuple([self.axes[axis] for axis in kept]))

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
        return (self._dims == (<exec_place_grid>other)._dims and self.axes == (<exec_place_grid>other).axes
                and self.places == (<exec_place_grid>other).places)

    def __hash__(self):
        return hash((exec_place_grid, self._dims, self.axes, self.places))

    # The data place that this object was given, if any, is its state.
    def __reduce__(self):
        return exec_place_grid.create, (self.places, self._dims, None, self.axes), self._affine

    def __setstate__(self, dplace):
        self.set_affine_data_place(dplace)

    # The same places, with the data place that they were given, along other axes.
    cdef exec_place_grid arranged(self, tuple shape, tuple axes):
        cdef exec_place_grid grid = grid_of(self.places, shape, axes)
        grid._affine = self._affine
        return grid

    cdef str text(self):
        cdef exec_place place
        cdef str axes = "" if self.axes == default_axes(len(self.axes)) else f", axes={self.axes}"
        if len(self._dims) == 1 and all([(<exec_place>one).value.kind == ExecKind.device for one in self.places]):
            return f"exec_place_grid.from_devices({[(<exec_place>one).value.device for one in self.places]}{axes})"
        texts = ", ".join([(<exec_place>one).text() for one in self.places])
        return f"exec_place_grid.create([{texts}], grid_dims={self._dims}{axes})"
