# distutils: language = c++
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from libcpp.list cimport list as linked_list
from libcpp.string cimport string
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
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    unsigned long long PyLong_AsUnsignedLongLongMask(object) except? -1

cdef enum:
    WORDS = 2    # of 8 bytes: the widest value that is no structure
    LOCAL = 32   # arguments that need no allocation
cdef unsigned[3] GRID_LIMITS = [0x7FFFFFFF, 65535, 65535]
cdef unsigned[3] BLOCK_LIMITS = [1024, 1024, 64]
cdef int BLOCK_THREADS = 1024

# How a value is put down, by its exact type, where that is not int or float; other types take longer.
cdef enum:
    AS_BITS = 1  # the low bytes of an integer
    AS_DOUBLE
    AS_FLOAT
cdef dict FORMS = dict.fromkeys(
    (bool, np.byte, np.ubyte, np.short, np.ushort, np.intc, np.uintc, np.int_, np.uint, np.longlong, np.ulonglong),
    AS_BITS)
FORMS.update({np.float64: AS_DOUBLE, np.float32: AS_FLOAT})

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
        cdef linked_list[string] wide
        cdef object values
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
        values = args if type(args) is list or type(args) is tuple else tuple(args)
        count = len(values)
        if count > LOCAL:
            more.resize(count * WORDS)
            more_at.resize(count)
            slots = more.data()
            addresses = more_at.data()
        for i in range(count):
            self.pack(values[i], i, at, slots + i * WORDS, addresses + i, wide)
        asked.parameters = addresses
        if type(kernel) is not int:
            # A graph runs it later. Keys of the context's other sources are positive.
            self.owner.sources[-<Py_ssize_t><void*>kernel] = kernel
        with nogil:
            context.launch_in(self.value, at, asked)

    # Puts down one argument: in `slot`, or where it is too wide at the end of `wide`.
    cdef int pack(self, object value, Py_ssize_t number, size_t at, void* slot, void** address,
                  linked_list[string]& wide) except -1:
        address[0] = slot
        if type(value) is logical_data:
            (<uint64_t*>slot)[0] = self.address_of_data(<logical_data>value, None, number, at)
        elif type(value) is float:
            (<double*>slot)[0] = value
        elif type(value) is int:
            put_int(value, number, slot)
        elif type(value) is stf_cai:
            (<uint64_t*>slot)[0] = (<stf_cai>value).ptr
        elif type(value) is dep:
            (<uint64_t*>slot)[0] = self.address_of_data((<dep>value).data, <dep>value, number, at)
        else:
            self.pack_other(value, number, slot, address, wide)
        return 0

    cdef int pack_other(self, object value, Py_ssize_t number, void* slot, void** address,
                        linked_list[string]& wide) except -1:
        cdef object known = FORMS.get(type(value))
        cdef int form = 0 if known is None else known
        if form == AS_BITS:
            (<uint64_t*>slot)[0] = PyLong_AsUnsignedLongLongMask(value)
        elif form == AS_DOUBLE:
            (<double*>slot)[0] = value
        elif form == AS_FLOAT:
            (<float*>slot)[0] = value
        else:
            self.pack_rare(value, number, slot, address, wide)
        return 0

    cdef int pack_rare(self, object value, Py_ssize_t number, void* slot, void** address,
                       linked_list[string]& wide) except -1:
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
            return put_bytes(value.tobytes(), slot, address, wide)
        if isinstance(value, CTYPES):
            return put_bytes(contents_of(value), slot, address, wide)
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            raise self.wrong_value(value, number)
        (<uint64_t*>slot)[0] = self.address_of_array(value, interface, number)
        return 0

    # The argument that is this very `access`, else the first with the data.
    cdef uint64_t address_of_data(self, logical_data data, dep access, Py_ssize_t number, size_t at) except? 0:
        cdef Py_ssize_t i, found = -1
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            if self.dependency(i).data is not data:  # as it was given: a scope works with its own
                continue
            if access is None or self.dependency(i) is access:
                found = i
                break
            if found < 0:
                found = i
        if found < 0:
            raise TypeError(f"argument {number}: {data!r} is no dependency of {self.label()}; name it where the task "
                            "is made, as in ctx.cuda_kernel(place, data.rw())")
        if data._token:
            self.buffer_at(found, "launch()")  # which says what is wrong
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
    cdef int overflow = 0
    cdef long long number
    if type(kernel) is not int:
        handle = getattr(kernel, "handle", None)
        if handle is None:
            raise TypeError("kernel is a cuda.core Kernel, or an int (CUfunction or CUkernel): got "
                            f"{type(kernel).__name__}; of other objects pass the handle as an int")
        handle = int(handle)
    number = PyLong_AsLongLongAndOverflow(handle, &overflow)
    if overflow == 0 and number > 0:
        return number
    if not 0 < handle < 1 << 64:
        raise ValueError(f"a kernel's handle is a number from 1 to 2**64 - 1: got {handle}")
    return handle


cdef int read_extents(object given, str what, const unsigned* limits, unsigned* extents) except -1:
    cdef tuple asked
    cdef Py_ssize_t i, count
    if type(given) is int:
        extents[0] = read_extent(given, 0, limits[0], given, what)
        return 0
    asked = numbers_of(given, what)
    count = PyTuple_GET_SIZE(asked)
    if not 1 <= count <= 3:
        raise ValueError(f"{what} has 1 to 3 axes: got {given!r}")
    for i in range(count):
        extents[i] = read_extent(asked[i], i, limits[i], given, what)
    return 0


cdef unsigned read_extent(object extent, Py_ssize_t axis, unsigned limit, object given, str what) except 0:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(extent, &overflow)
    if overflow != 0 or not 1 <= number <= limit:
        raise ValueError(f"{what} is 1 to {limit} along axis {axis}: got {given!r}")
    return number


cdef tuple numbers_of(object given, str what):
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
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(nbytes, &overflow)
    if overflow != 0 or not 0 <= number <= 0xFFFFFFFF:
        raise ValueError(f"shmem is a number of bytes from 0 to 2**32 - 1: got {nbytes}")
    return number


cdef int put_int(object value, Py_ssize_t number, void* slot) except -1:
    cdef int overflow = 0
    (<int64_t*>slot)[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow == 0:
        return 0
    if not 0 <= value < 1 << 64:
        raise OverflowError(f"argument {number} of the kernel: an int is passed with 64 bits: got {value}")
    (<uint64_t*>slot)[0] = value
    return 0


cdef int put_bytes(bytes value, void* slot, void** address, linked_list[string]& wide) except -1:
    if PyBytes_GET_SIZE(value) <= WORDS * 8:
        memcpy(slot, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        return 0
    wide.push_back(string(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)))
    address[0] = <void*>wide.back().data()
    return 0


cdef bytes contents_of(object value):
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        return PyBytes_FromStringAndSize(<char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
