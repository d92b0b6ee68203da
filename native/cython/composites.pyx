# distutils: language = c++
from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.grids cimport exec_place_grid
from stf_places._native.layouts cimport PageRun
from stf_places._native.places cimport DataKind, DataPlace, data_place, exec_place
from stf_places._native.runtime cimport Runtime, RuntimeHandle

from stf_places.errors import PartitionError

cdef extern from "cython/composites.hpp" namespace "stf_places" nogil:
    void require_peers_of(Runtime&, const vector[int]&) except +raise_stf_error
    size_t page_size_of(Runtime&, const vector[int]&) except +raise_stf_error
    DataPlace place_of_runs(Runtime&, const vector[PageRun]&, const vector[int]&, size_t) except +raise_stf_error
    uint64_t number_of(const Runtime&)


cdef vector[int] devices_of(data_place place) except *:
    cdef vector[int] devices
    for one in (<exec_place_grid>place.spread.grid).places:
        devices.push_back((<exec_place>one).value.device)
    return devices


cdef data_place bound_to(data_place place, tuple shape, size_t itemsize, RuntimeHandle runtime, object data=None):
    if place.value.kind != DataKind.composite:
        return place
    cdef dict known = place.spread.bound
    cdef tuple key = (number_of(runtime.value.get()[0]), shape, itemsize)
    cdef object found = known.get(key)
    if found is None:
        try:
            found = bind(place, shape, itemsize, runtime)
        except PartitionError as error:
            what = f"data of shape {shape}" if data is None else repr(data)
            where = repr(place).partition("  #")[0]
            raise PartitionError(f"{what} cannot lie on {where}: {error}; or give a dependency a data place of its "
                                 "own, as in data.read(data_place.device(0))") from error
        from stf_places.partitions.composites import keep
        keep(known, key, found)
    return <data_place>found


cdef data_place bind(data_place place, tuple shape, size_t itemsize, RuntimeHandle runtime):
    cdef vector[int] devices = devices_of(place)
    cdef vector[PageRun] runs
    cdef PageRun run
    cdef size_t page
    cdef data_place bound = data_place.__new__(data_place)
    cdef Runtime* machine = runtime.value.get()
    with nogil:
        page = page_size_of(machine[0], devices)
    cdef const int64_t[:, :] rows = place.spread.page_rows(shape, itemsize, page)
    cdef Py_ssize_t i
    for i in range(rows.shape[0]):
        run.place = rows[i, 0]
        run.first = rows[i, 1]
        run.count = rows[i, 2]
        runs.push_back(run)
    with nogil:
        bound.value = place_of_runs(machine[0], runs, devices, page)
    return bound


cdef data_place bound_value(data_place place, tuple shape, size_t itemsize, RuntimeHandle runtime):
    cdef data_place pages = bound_to(place, shape, itemsize, runtime)
    cdef data_place value
    if pages.value.kind != DataKind.composite:
        return pages
    value = data_place.__new__(data_place)
    value.value = pages.value
    value.spread = place.spread
    return value


def bound(data_place place not None, tuple shape not None, itemsize, RuntimeHandle runtime not None):
    return bound_value(place, shape, itemsize, runtime)


def check_peers(data_place place not None, RuntimeHandle runtime not None):
    cdef vector[int] devices = devices_of(place)
    with nogil:
        require_peers_of(runtime.value.get()[0], devices)
