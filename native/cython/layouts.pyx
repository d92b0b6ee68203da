# distutils: language = c++
cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libcpp.utility cimport move
from libcpp.vector cimport vector

from stf_places._native.views cimport address_of

from operator import index

import numpy as np


cdef int64_t number(object given, str name) except? -1:
    try:
        value = index(given)
    except TypeError:
        raise TypeError(f"{name} is an int: got {given!r}") from None
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{name} fits into 64 bits: got {value}")
    return value


cdef size_t count_of(object given, str name) except? 0:
    cdef int64_t value = number(given, name)
    if value < 1:
        raise ValueError(f"{name} is 1 byte or more: got {value}")
    return value


cdef LayoutAxis axis_of(object given, Py_ssize_t at) except *:
    try:
        length, block, places = given
        places = tuple(places)
    except (TypeError, ValueError):
        raise TypeError(f"an axis is (length, block, places of its parts): got {given!r} for axis {at}") from None
    cdef LayoutAxis axis
    axis.length = number(length, "the length of an axis")
    axis.block = number(block, "the block of an axis")
    axis.places.clear()
    for place in places:
        axis.places.push_back(number(place, "the place of a part"))
    return axis


cdef int check_array(object array, str name, tuple shape) except -1:
    if not isinstance(array, np.ndarray) or array.dtype != np.int64:
        kind = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} is a NumPy array of int64: got {kind}")
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {shape}: got {array.shape}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"{name} is C-contiguous and aligned: got strides {array.strides} for shape {array.shape}")
    return 0


@cython.final
cdef class LayoutHandle:
    def __cinit__(self, axes, place_count):
        cdef vector[LayoutAxis] given
        for at, axis in enumerate(axes):
            given.push_back(axis_of(axis, at))
        cdef int64_t count = number(place_count, "place_count")
        with nogil:
            self.layout.reset(new Layout(move(given), count))

    def owners(self, coords, out):
        rank = self.layout.get().rank()
        rows = coords.shape[0] if isinstance(coords, np.ndarray) and coords.ndim else 0
        check_array(coords, "coords", (rows, rank))
        check_array(out, "out", (rows,))
        if not out.flags.writeable:
            raise ValueError("out is written to: got a read-only array")
        if np.may_share_memory(coords, out):
            raise ValueError("out is written while coords is read: got arrays that share memory")
        cdef const int64_t* source = <const int64_t*>address_of(coords)
        cdef int64_t* target = <int64_t*>address_of(out)
        cdef size_t count = rows
        with nogil:
            self.layout.get().owners(source, count, target)

    def ranges(self, axis, part):
        if index(axis) < 0:
            raise IndexError(f"axes count from 0: got {axis}")
        cdef size_t axis_ = number(axis, "axis")
        cdef int64_t part_ = number(part, "part")
        cdef AxisRanges found
        with nogil:
            found = self.layout.get().ranges(axis_, part_)
        return found.start, found.stride, found.length, found.count, found.stop, found.step

    def parts_of(self, place):
        cdef int64_t place_ = number(place, "place")
        cdef vector[int64_t] parts
        with nogil:
            parts = self.layout.get().parts_of(place_)
        return tuple(parts) if parts.size() else None

    def elements(self):
        cdef vector[int64_t] counts
        with nogil:
            counts = self.layout.get().elements()
        return np.array(<list>counts, dtype=np.int64)

    def pages(self, itemsize, page):
        cdef size_t itemsize_ = count_of(itemsize, "itemsize")
        cdef size_t page_ = count_of(page, "page")
        cdef vector[PageRun] runs
        with nogil:
            runs = self.layout.get().pages(itemsize_, page_)
        result = np.empty((runs.size(), 3), dtype=np.int64)
        cdef int64_t[:, ::1] rows = result
        cdef size_t i
        for i in range(runs.size()):
            rows[i, 0] = runs[i].place
            rows[i, 1] = runs[i].first
            rows[i, 2] = runs[i].count
        return result

    def misplaced(self, itemsize, page):
        cdef size_t itemsize_ = count_of(itemsize, "itemsize")
        cdef size_t page_ = count_of(page, "page")
        cdef int64_t nbytes
        with nogil:
            nbytes = self.layout.get().misplaced(itemsize_, page_)
        return nbytes
