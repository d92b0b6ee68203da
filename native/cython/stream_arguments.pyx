# distutils: language = c++
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from operator import index

from stf_places._native.errors cimport raise_stf_error
from stf_places._native.runtime cimport Runtime, RuntimeHandle, current_runtime

from stf_places.errors import WrongContext

cdef extern from * nogil:
    """
    #include <limits>
    #include "core/runtime.hpp"
    static bool stf_knows_stream(stf_places::Runtime& runtime, std::uint64_t handle) {
      stf_places::ContextHandle context = 0;
      return runtime.driver().stream_context(handle, &context).ok();
    }
    """
    cbool stf_knows_stream(Runtime&, uint64_t) except +raise_stf_error

# Streams come and go, so the caches are emptied when they have grown to this many.
cdef enum:
    CACHE_LIMIT = 4096
cdef dict _real = {}
cdef dict _simulated = {}
cdef object _make = None  # stf_places.places.streams.make_stream


cdef object cuda_stream(uint64_t handle, bint simulated):
    global _make
    cdef dict cache = _simulated if simulated else _real
    stream = cache.get(handle)
    if stream is not None:
        return stream
    if _make is None:
        from stf_places.places.streams import make_stream
        _make = make_stream
    if len(cache) >= CACHE_LIMIT:
        cache.clear()
    stream = _make(handle, simulated)
    cache[handle] = stream
    return stream


cdef uint64_t from_protocol(object stream, object method) except? 0:
    pair = method() if callable(method) else method
    try:
        version, handle = pair
    except (TypeError, ValueError):
        raise TypeError(f"__cuda_stream__ returns (version, handle): {type(stream).__name__} returned {pair!r}") from None
    if version != 0:
        raise ValueError(f"version 0 of the __cuda_stream__ protocol is known: {type(stream).__name__} "
                         f"returned version {version!r}")
    return from_int(handle)


cdef uint64_t from_int(object stream) except? 0:
    number = index(stream)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"a stream handle is a number from 0 to 2**64 - 1: got {number}")
    return number


cdef uint64_t stream_handle_on(object stream, RuntimeHandle runtime) except? 0:
    if stream is None:
        return 0
    if isinstance(stream, bool) or not (hasattr(type(stream), "__cuda_stream__") or hasattr(type(stream), "__index__")):
        raise TypeError("a stream is None, an int (CUstream), a CudaStream or an object with __cuda_stream__: "
                        f"got {type(stream).__name__}")
    cdef bint simulated = runtime.value.get().simulated()
    cdef object ours = getattr(stream, "simulated", None) if isinstance(stream, int) else None
    if ours is None and hasattr(type(stream), "__cuda_stream__"):
        if simulated:
            raise WrongContext(
                "the machine in use is simulated and takes streams of its own only: got a CUDA stream "
                f"({type(stream).__name__}). Take one from place.pick_stream(resources) or from the task, or choose "
                "the real machine with STF_PLACES_DRIVER=cuda")
        return from_protocol(stream, stream.__cuda_stream__)
    if ours is not None and bool(ours) != simulated:
        raise WrongContext(f"the stream belongs to a {'simulated' if ours else 'CUDA'} machine, the machine in use is "
                           f"{'simulated' if simulated else 'CUDA'}: got {stream!r}")
    cdef uint64_t handle = from_int(stream)
    cdef Runtime* machine = runtime.value.get()
    cdef bint known = True
    if simulated and handle != 0:
        with nogil:
            known = stf_knows_stream(machine[0], handle)
        if not known:
            raise WrongContext(
                f"the machine in use is simulated and has no stream {handle}: take one from "
                "place.pick_stream(resources) or from the task, or choose the real machine with STF_PLACES_DRIVER=cuda")
    return handle


cdef uint64_t stream_handle(object stream) except? 0:
    if stream is None:
        return 0
    return stream_handle_on(stream, current_runtime())


def stream_handle_of(stream):
    return stream_handle(stream)


def cuda_stream_of(uint64_t handle, bint simulated):
    return cuda_stream(handle, simulated)
