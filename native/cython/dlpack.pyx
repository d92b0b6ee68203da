# distutils: language = c++
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport PyObject, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

# The layout of DLPack's unversioned structures (dlpack.h, DLManagedTensor).
cdef struct DLDevice:
    int32_t device_type
    int32_t device_id

cdef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

cdef struct DLTensor:
    void* data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides
    uint64_t byte_offset

cdef struct DLManagedTensor:
    DLTensor dl_tensor
    void* manager_ctx
    void (*deleter)(DLManagedTensor*) noexcept


cdef void drop_owner(void* owner) noexcept with gil:
    Py_XDECREF(<PyObject*>owner)


# Called by the consumer, on any thread, with or without the GIL.
cdef void delete_tensor(DLManagedTensor* tensor) noexcept nogil:
    if tensor == NULL:
        return
    if Py_IsInitialized():
        drop_owner(tensor.manager_ctx)
    free(tensor.dl_tensor.shape)
    free(tensor)


# A consumed capsule is renamed: then its tensor is the consumer's.
cdef void delete_capsule(object capsule) noexcept:
    cdef DLManagedTensor* tensor
    if PyCapsule_IsValid(capsule, "dltensor"):
        tensor = <DLManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
        tensor.deleter(tensor)


def make_capsule(owner, uintptr_t address, tuple shape, tuple strides, int code, int bits, tuple device):
    cdef Py_ssize_t rank = len(shape)
    cdef DLDevice where
    cdef DLManagedTensor* tensor
    cdef Py_ssize_t axis
    where.device_type = device[0]
    where.device_id = device[1]
    cdef list lengths = [<int64_t>length for length in shape], steps = [<int64_t>step for step in strides]
    tensor = <DLManagedTensor*>malloc(sizeof(DLManagedTensor))
    cdef int64_t* numbers = <int64_t*>malloc((2 * rank + 1) * sizeof(int64_t))
    if tensor == NULL or numbers == NULL:
        free(tensor)
        free(numbers)
        raise MemoryError("no host memory for a DLPack capsule")
    for axis in range(rank):
        numbers[axis] = lengths[axis]
        numbers[rank + axis] = steps[axis]
    tensor.dl_tensor.data = <void*>address
    tensor.dl_tensor.device = where
    tensor.dl_tensor.ndim = rank
    tensor.dl_tensor.dtype.code = code
    tensor.dl_tensor.dtype.bits = bits
    tensor.dl_tensor.dtype.lanes = 1
    tensor.dl_tensor.shape = numbers
    tensor.dl_tensor.strides = numbers + rank
    tensor.dl_tensor.byte_offset = 0
    tensor.deleter = delete_tensor
    tensor.manager_ctx = <void*>owner
    Py_INCREF(owner)
    try:
        return PyCapsule_New(tensor, "dltensor", delete_capsule)
    except BaseException:
        delete_tensor(tensor)
        raise
