# distutils: language = c++
cimport cython
from libc.stdint cimport uint64_t

from stf_places._native.core cimport host_place, is_composite, is_device, is_host, is_managed, synchronize_stream
from stf_places._native.data cimport checked_dtype
from stf_places._native.places cimport data_place
from stf_places._native.runtime cimport Runtime, RuntimeHandle
from stf_places._native.signals cimport stf_python_interrupt
from stf_places._native.views cimport address_of

import numpy as np


@cython.final
cdef class Source:
    pass


cdef Source describe(object buf, data_place dplace, RuntimeHandle runtime):
    if isinstance(buf, np.ndarray):
        return from_array(buf, buf, dplace)
    cdef data_place known = known_place(buf)
    interface = getattr(buf, "__cuda_array_interface__", None)
    if interface is None and known is not None:
        interface = getattr(buf, "__array_interface__", None)  # a DeviceArray on a simulated machine
    if interface is not None:
        if known is not None and dplace is not None and known != dplace:
            raise ValueError(f"{type(buf).__name__} lies on {known!r}: got dplace={dplace!r}; leave it out")
        return from_interface(buf, interface, dplace if known is None else known, runtime)
    if hasattr(buf, "__array_interface__"):
        return from_array(np.asarray(buf), buf, dplace)
    try:
        view = memoryview(buf)
    except TypeError:
        raise TypeError(
            "logical_data() takes memory to work on, that is a NumPy array, an object with "
            f"__cuda_array_interface__ or a buffer: got {type(buf).__name__}; pass np.asarray(...) of it, or "
            "make empty data with logical_data_empty(shape)") from None
    except BufferError as error:
        raise ValueError(f"logical_data() needs C-contiguous memory: {type(buf).__name__} says {error}; pass "
                         "np.ascontiguousarray(...) of it") from None
    return from_array(np.asarray(view), buf, dplace)


cdef Source from_array(object array, object buf, data_place dplace):
    cdef Source source = Source.__new__(Source)
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise TypeError("a masked array is two arrays, data and mask: register array.data, array.mask, or both")
    source.dtype = checked_dtype(array.dtype)
    require_contiguous(array.flags.c_contiguous, array.shape, array.strides)
    if dplace is None:
        source.place = host_place()
    elif is_host(dplace.value) or is_managed(dplace.value):
        source.place = dplace.value
    else:
        raise ValueError(f"{type(buf).__name__} is host memory, so dplace is data_place.host() (the default) or "
                         f"data_place.managed(): got {dplace!r}")
    source.address = address_of(array)
    source.shape = array.shape
    source.readonly = not array.flags.writeable
    source.keep = array
    return source


cdef int require_contiguous(bint contiguous, object shape, object strides) except -1:
    if not contiguous:
        raise ValueError(
            f"logical_data() needs C-contiguous memory: got shape {shape} with strides {strides} bytes; pass "
            "np.ascontiguousarray(...) of it (a copy: results then go there)")
    return 0


cdef bint is_contiguous(tuple shape, object strides, Py_ssize_t itemsize):
    cdef Py_ssize_t expected = itemsize
    if strides is None or 0 in shape:
        return True
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


cdef object field_of(object interface, str name, object buf):
    try:
        return interface[name]
    except (KeyError, TypeError):
        raise ValueError(f"__cuda_array_interface__ has shape, typestr and data: that of {type(buf).__name__} "
                         f"lacks {name!r}") from None


cdef Source from_interface(object buf, object interface, data_place dplace, RuntimeHandle runtime):
    cdef Source source = Source.__new__(Source)
    cdef Runtime* machine = runtime.value.get()
    cdef uint64_t stream
    if interface.get("mask") is not None:
        raise TypeError(f"masked arrays are not supported: {type(buf).__name__} has a mask; register its data alone")
    source.shape = tuple(field_of(interface, "shape", buf))
    typestr = field_of(interface, "typestr", buf)
    descr = interface.get("descr")
    structured = typestr[1:2] == "V" and descr and any(name for name, *_ in descr)
    source.dtype = checked_dtype(descr if structured else typestr)
    strides = interface.get("strides")
    require_contiguous(is_contiguous(source.shape, strides, source.dtype.itemsize), source.shape, strides)
    source.address, source.readonly = field_of(interface, "data", buf)
    if dplace is not None and is_composite(dplace.value):
        if 0 not in source.shape:
            require_whole_block(buf, source.address, dplace)
    elif dplace is None or not (is_device(dplace.value) or is_managed(dplace.value) or is_host(dplace.value)):
        raise ValueError(
            f"{type(buf).__name__} does not say on which device its memory is: give dplace=data_place.device(d) "
            f"or data_place.managed(); got {dplace!r}")
    source.place = dplace.value
    source.keep = buf
    if interface.get("stream") is not None:
        stream = interface["stream"]
        with nogil:  # its contents are complete once that stream is
            synchronize_stream(machine[0], stream, stf_python_interrupt())
    return source


# Pages are counted from the start of the block.
cdef int require_whole_block(object buf, uint64_t address, data_place dplace) except -1:
    if dplace.value.pages == NULL or not hasattr(buf, "_allocation"):
        raise ValueError(f"memory on a composite data place is a DeviceArray's: got {type(buf).__name__} with "
                         f"dplace={dplace!r}; make it with DeviceArray(shape, dtype, dplace)")
    if address != buf._allocation.address:
        raise ValueError("logical data on a composite data place begins where its DeviceArray's memory does: got a "
                         "slice that begins further on; register the whole array, or copy the slice")
    return 0


cdef data_place known_place(object buf):
    place = getattr(buf, "data_place", None)
    return <data_place>place if isinstance(place, data_place) else None
