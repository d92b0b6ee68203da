# distutils: language = c++
from cpython.pycapsule cimport PyCapsule_New
from libcpp.string cimport string

from stf_places import errors as classes

cdef extern from "driver/status.hpp" namespace "stf_places" nogil:
    cdef enum class ErrorKind(int):
        driver
        device_lost
        not_supported
        out_of_memory
        context_closed
        wrong_context
        task_state
        poisoned
        read_only
        invalid_device
        conflict
        partition
        value
        index
        interrupted
    cdef cppclass Failure:
        int raw
        string call
        string name
    cdef cppclass Error:
        Error(ErrorKind, const string&) except +
        Error(ErrorKind, const string&, Failure) except +

cdef extern from "cython/current_exception.hpp" namespace "stf_places" nogil:
    cdef enum Source "stf_places::CurrentException::Source":
        from_core "stf_places::CurrentException::core"
        from_memory "stf_places::CurrentException::memory"
    cdef cppclass CurrentException:
        Source source
        ErrorKind kind
        string text
        Failure failure

cdef extern from *:
    """
    static void stf_throw(int kind, const std::string& text, const std::string& call, int code,
                          const std::string& name) {
      if (kind == -1) throw std::bad_alloc();
      if (kind == -2) throw std::runtime_error(text);
      stf_places::Failure failure;
      failure.raw = code;
      failure.call = call;
      failure.name = name;
      throw stf_places::Error(static_cast<stf_places::ErrorKind>(kind), text, failure);
    }
    """
    void stf_throw(int, const string&, const string&, int, const string&) except +raise_stf_error nogil

# By name of ErrorKind. Those that carry the failed call come first.
cdef dict FROM_DRIVER = {
    <int>ErrorKind.driver: classes.DriverError,
    <int>ErrorKind.device_lost: classes.DeviceLost,
    <int>ErrorKind.not_supported: classes.NotSupported,
    <int>ErrorKind.out_of_memory: classes.OutOfMemory,
    <int>ErrorKind.invalid_device: classes.InvalidDevice,
}
cdef dict FROM_CORE = {
    <int>ErrorKind.context_closed: classes.ContextClosed,
    <int>ErrorKind.wrong_context: classes.WrongContext,
    <int>ErrorKind.task_state: classes.TaskStateError,
    <int>ErrorKind.poisoned: classes.PoisonedData,
    <int>ErrorKind.read_only: classes.ReadOnlyError,
    <int>ErrorKind.conflict: classes.DataRace,
    <int>ErrorKind.partition: classes.PartitionError,
    <int>ErrorKind.value: ValueError,
    <int>ErrorKind.index: IndexError,
}
cdef dict NAMES = {
    "driver": <int>ErrorKind.driver, "device_lost": <int>ErrorKind.device_lost,
    "not_supported": <int>ErrorKind.not_supported, "out_of_memory": <int>ErrorKind.out_of_memory,
    "context_closed": <int>ErrorKind.context_closed, "wrong_context": <int>ErrorKind.wrong_context,
    "task_state": <int>ErrorKind.task_state, "poisoned": <int>ErrorKind.poisoned,
    "read_only": <int>ErrorKind.read_only, "invalid_device": <int>ErrorKind.invalid_device,
    "conflict": <int>ErrorKind.conflict, "partition": <int>ErrorKind.partition,
    "value": <int>ErrorKind.value, "index": <int>ErrorKind.index,
    "interrupted": <int>ErrorKind.interrupted, "bad_alloc": -1, "std_exception": -2,
}


cdef str text_of(const string& text):
    return text.decode("utf-8", "replace")


cdef int translate(const CurrentException* current) except -1:
    cdef str text = text_of(current.text)
    if current.source == from_memory:
        raise MemoryError(text)
    if current.source != from_core:
        raise RuntimeError(text)
    cdef int kind = <int>current.kind
    if kind == <int>ErrorKind.interrupted:
        raise KeyboardInterrupt()
    if kind in FROM_DRIVER:
        raise FROM_DRIVER[kind](
            text, call=text_of(current.failure.call), code=current.failure.raw, name=text_of(current.failure.name))
    raise FROM_CORE[kind](text)


# What raise_error.hpp calls.
translator = PyCapsule_New(<void*>&translate, "stf_places._native.errors.translator", NULL)


def throw(kind, text, *, call="", code=0, name=""):
    if kind not in NAMES:
        raise ValueError(f"kinds are {', '.join(NAMES)}: got {kind!r}")
    cdef int number = NAMES[kind]
    cdef string text_ = text.encode(), call_ = call.encode(), name_ = name.encode()
    cdef int code_ = code
    with nogil:
        stf_throw(number, text_, call_, code_, name_)
