# distutils: language = c++
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from stf_places._native.core cimport Context, synchronize_stream
from stf_places._native.drivers cimport KernelLaunch
from stf_places._native.runtime cimport Runtime
from stf_places._native.signals cimport stf_python_interrupt
from stf_places._native.tasks cimport set_up
from stf_places._native.views cimport stf_cai

import ctypes

import numpy as np

cdef extern from "Python.h":
    unsigned long long PyLong_AsUnsignedLongLongMask(object) except? -1

cdef enum:
    WORDS = 2    # of 8 bytes: the widest value that is no structure
    LOCAL = 32   # arguments that need no allocation
cdef tuple GRID_LIMITS = (0x7FFFFFFF, 65535, 65535)
cdef tuple BLOCK_LIMITS = (1024, 1024, 64)
cdef int BLOCK_THREADS = 1024

# How a value is put down, by its exact type; other types take longer.
cdef enum:
    AS_INT = 1   # 64 bits, whether signed or not
    AS_BITS      # the low bytes of an integer
    AS_DOUBLE
    AS_FLOAT
cdef dict FORMS = dict.fromkeys(
    (bool, np.byte, np.ubyte, np.short, np.ushort, np.intc, np.uintc, np.int_, np.uint, np.longlong, np.ulonglong),
    AS_BITS)
FORMS.update({int: AS_INT, float: AS_DOUBLE, np.float64: AS_DOUBLE, np.float32: AS_FLOAT})

cdef object numpy_scalar = np.generic
cdef tuple CTYPES = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer)
cdef tuple NOT_ON_A_DEVICE = (ctypes.py_object, ctypes.c_longdouble, np.longdouble, np.clongdouble)


# Not cleared by the collector, like its base.
@cython.final
@cython.no_gc_clear
cdef class cuda_kernel(task):
    def __init__(self):
        raise TypeError("a cuda_kernel is made by a context: ctx.cuda_kernel(place, data.read(), ...)")

    def launch(self, kernel, grid, block, args, shmem=0, *, Py_ssize_t place_index=0):
        cdef Context* context = self.owner.value.get()
        cdef KernelLaunch asked
        cdef uint64_t[LOCAL * WORDS] local
        cdef void* local_at[LOCAL]
        cdef vector[uint64_t] more
        cdef vector[void*] more_at
        cdef uint64_t* slots = local
        cdef void** addresses = local_at
        cdef list kept = []
        cdef tuple values
        cdef Py_ssize_t i, count
        cdef size_t at
        self.require_open("launch()")
        at = self.place_number(place_index)
        asked.function = function_of(kernel)
        read_extents(grid, "grid", GRID_LIMITS, &asked.grid[0])
        read_block(block, &asked.block[0])
        asked.shared_bytes = read_shmem(shmem)
        if not isinstance(args, (tuple, list)):
            raise TypeError("args is a list or tuple of the kernel's arguments, [x] for one: got "
                            f"{type(args).__name__}")
        values = tuple(args)
        count = PyTuple_GET_SIZE(values)
        if count > LOCAL:
            more.resize(count * WORDS)
            more_at.resize(count)
            slots = more.data()
            addresses = more_at.data()
        for i in range(count):
            self.pack(<object>PyTuple_GET_ITEM(values, i), i, at, slots + i * WORDS, addresses + i, kept)
        asked.parameters = addresses
        if not isinstance(kernel, int):
            # A graph runs it later. Keys of the context's other sources are positive.
            self.owner.sources[-<Py_ssize_t><void*>kernel] = kernel
        with nogil:
            context.launch_in(self.value, at, asked)

    # Puts down one argument: in `slot`, or where it is too wide in an object that `kept` gets.
    cdef int pack(self, object value, Py_ssize_t number, size_t at, void* slot, void** address,
                  list kept) except -1:
        cdef object kind = type(value)
        cdef object form
        cdef int known
        address[0] = slot
        if kind is logical_data:
            (<uint64_t*>slot)[0] = self.address_of_data(<logical_data>value, None, number, at)
            return 0
        if kind is dep:
            (<uint64_t*>slot)[0] = self.address_of_data((<dep>value).data, <dep>value, number, at)
            return 0
        if kind is stf_cai:
            (<uint64_t*>slot)[0] = (<stf_cai>value).ptr
            return 0
        form = FORMS.get(kind)
        if form is None:
            return self.pack_other(value, number, slot, address, kept)
        known = form
        if known == AS_INT:
            put_int(value, number, slot)
        elif known == AS_BITS:
            (<uint64_t*>slot)[0] = PyLong_AsUnsignedLongLongMask(value)
        elif known == AS_DOUBLE:
            (<double*>slot)[0] = value
        else:
            (<float*>slot)[0] = value
        return 0

    cdef int pack_other(self, object value, Py_ssize_t number, void* slot, void** address, list kept) except -1:
        cdef double complex both
        if isinstance(value, NOT_ON_A_DEVICE):
            raise self.wrong_value(value, number)
        if isinstance(value, int):
            return put_int(value, number, slot)
        if isinstance(value, float):
            (<double*>slot)[0] = value
            return 0
        if isinstance(value, complex):
            both = value
            (<double complex*>slot)[0] = both
            return 0
        if isinstance(value, numpy_scalar):
            if value.dtype.kind in "OSU" or value.dtype.hasobject:
                raise self.wrong_value(value, number)
            return put_bytes(value.tobytes(), slot, address, kept)
        if isinstance(value, CTYPES):
            return put_bytes(contents_of(value), slot, address, kept)
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            raise self.wrong_value(value, number)
        (<uint64_t*>slot)[0] = self.address_of_array(value, interface, number)
        return 0

    # The argument that is this very `access`, else the first with the data.
    cdef uint64_t address_of_data(self, logical_data data, dep access, Py_ssize_t number, size_t at) except? 0:
        cdef Py_ssize_t i, found = -1
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            if self.value.dependencies[i].data != data.data:
                continue
            if access is None or self.dependency(i) is access:
                found = i
                break
            if found < 0:
                found = i
        if found < 0:
            raise TypeError(f"argument {number}: {data!r} is no dependency of {self.label()}; name it where the task "
                            "is made, as in ctx.cuda_kernel(place, data.rw())")
        self.buffer_at(found, "launch()")
        return self.value.address(found, at)

    cdef uint64_t address_of_array(self, object value, object interface, Py_ssize_t number) except? 0:
        cdef uint64_t address, stream
        cdef Runtime* machine = self.owner.runtime.value.get()
        cdef size_t i
        if interface.get("mask") is not None:
            raise TypeError(f"argument {number}: masked arrays are not supported: got {type(value).__name__}; pass its "
                            "data and its mask")
        address = interface["data"][0]
        if interface.get("stream") is None or machine.simulated():
            return address
        stream = interface["stream"]
        for i in range(self.value.stream_count()):
            if self.value.stream(i) == stream:
                return address
        with nogil:  # its contents are complete once that stream is
            synchronize_stream(machine[0], stream, stf_python_interrupt())
        return address

    cdef object wrong_value(self, object value, Py_ssize_t number):
        cdef str where = ""
        if hasattr(type(value), "__array_interface__") and getattr(value, "ndim", 0) > 0:
            where = "; an array in host memory becomes data of the context: ctx.logical_data(array)"
        return TypeError(
            f"argument {number} of the kernel: got {type(value).__name__}; what can be passed is data of the task, an "
            "object with __cuda_array_interface__, a NumPy scalar, a ctypes value, bool, int (64 bits), float (double) "
            f"or complex{where}")


cdef cuda_kernel make_kernel_task(ContextState state, tuple args, object symbol):
    cdef cuda_kernel result = cuda_kernel.__new__(cuda_kernel)
    set_up(result, state, args, symbol, "cuda_kernel()")
    return result


cdef uint64_t function_of(object kernel) except 0:
    cdef object handle = kernel
    if type(kernel) is not int:
        handle = getattr(kernel, "handle", None)
        if handle is None:
            raise TypeError("kernel is a cuda.core Kernel, or an int (CUfunction or CUkernel): got "
                            f"{type(kernel).__name__}; of other objects pass the handle as an int")
        handle = int(handle)
    if not 0 < handle < 1 << 64:
        raise ValueError(f"a kernel's handle is a number from 1 to 2**64 - 1: got {handle}")
    return handle


cdef int read_extents(object given, str what, tuple limits, unsigned* extents) except -1:
    cdef tuple asked = numbers_of(given, what)
    cdef Py_ssize_t i, count = PyTuple_GET_SIZE(asked)
    cdef object extent
    if not 1 <= count <= 3:
        raise ValueError(f"{what} has 1 to 3 axes: got {given!r}")
    for i in range(count):
        extent = asked[i]
        if not 1 <= extent <= limits[i]:
            raise ValueError(f"{what} is 1 to {limits[i]} along axis {i}: got {given!r}")
        extents[i] = extent
    return 0


cdef tuple numbers_of(object given, str what):
    if type(given) is int:
        return (given,)
    try:
        if not isinstance(given, (tuple, list)) and hasattr(type(given), "__index__") and not hasattr(given, "__len__"):
            return (PyNumber_Index(given),)
        return tuple([PyNumber_Index(one) for one in given])
    except TypeError:
        raise TypeError(f"{what} is an int, or a sequence of 1 to 3: got {given!r}") from None


cdef int read_block(object given, unsigned* extents) except -1:
    read_extents(given, "block", BLOCK_LIMITS, extents)
    if extents[0] * extents[1] * extents[2] > BLOCK_THREADS:
        raise ValueError(f"a block has up to {BLOCK_THREADS} threads: got {given!r}")
    return 0


cdef unsigned read_shmem(object given) except? 0:
    if type(given) is not int and not hasattr(type(given), "__index__"):
        raise TypeError(f"shmem is a number of bytes: got {type(given).__name__}")
    cdef object nbytes = PyNumber_Index(given)
    if not 0 <= nbytes < 1 << 32:
        raise ValueError(f"shmem is a number of bytes from 0 to 2**32 - 1: got {nbytes}")
    return nbytes


cdef int put_int(object value, Py_ssize_t number, void* slot) except -1:
    try:
        (<int64_t*>slot)[0] = value
        return 0
    except OverflowError:
        pass
    if not 0 <= value < 1 << 64:
        raise OverflowError(f"argument {number} of the kernel: an int is passed with 64 bits: got {value}")
    (<uint64_t*>slot)[0] = value
    return 0


cdef int put_bytes(bytes value, void* slot, void** address, list kept) except -1:
    if PyBytes_GET_SIZE(value) <= WORDS * 8:
        memcpy(slot, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        return 0
    kept.append(value)
    address[0] = PyBytes_AS_STRING(value)
    return 0


cdef bytes contents_of(object value):
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        return PyBytes_FromStringAndSize(<char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
