# distutils: language = c++
cimport cython
from libc.stdint cimport uint64_t
from libcpp.memory cimport shared_ptr

from stf_places._native.callbacks cimport HostCall, drain_released, hand_over, make_call, release_call, take_back
from stf_places._native.composites cimport bound_to
from stf_places._native.core cimport Context, ContextOptions, DataPlace, ExecPlace, StreamPool
from stf_places._native.cuda_kernels cimport make_kernel_task
from stf_places._native.data cimport (
    checked_dtype, checked_shape, keep_in, make_empty, make_registered, make_token)
from stf_places._native.host_calls cimport launch_on_host
from stf_places._native.places cimport async_resources, data_place, exec_place
from stf_places._native.recordings cimport abandon_scopes
from stf_places._native.reports cimport statistics_of, trace_of
from stf_places._native.runtime cimport Runtime
from stf_places._native.signals cimport stf_python_interrupt
from stf_places._native.sources cimport Source, describe
from stf_places._native.stream_arguments cimport stream_handle_on
from stf_places._native.tasks cimport make_task, note_failure
from stf_places._native.views cimport address_of

import warnings
import weakref

import numpy as np

from stf_places.errors import DeviceLost, NotSupported, TaskStateError, WrongContext

cdef tuple FILL_WIDTHS = (1, 2, 4, 8, 16)


cdef class context:
    def __cinit__(self, use_graph=False, *, stream=None, handle=None, bint trace=False):
        cdef ContextOptions options
        cdef shared_ptr[Runtime] runtime
        cdef shared_ptr[StreamPool] pool
        cdef Context* made
        if handle is not None and not isinstance(handle, async_resources):
            raise TypeError(f"handle is an async_resources: got {type(handle).__name__}")
        drain_released()
        self.resources = async_resources() if handle is None else handle
        self.owns_resources = handle is None
        self.state = ContextState.__new__(ContextState)
        self.state.runtime = self.resources.runtime
        options.trace = trace
        options.graph = bool(use_graph)
        if stream is not None:
            options.has_stream = True
            options.stream = stream_handle_on(stream, self.state.runtime)
            self.state.on_caller_stream = True
        runtime = self.state.runtime.value
        pool = self.resources.pool
        with nogil:
            made = new Context(runtime, pool, options)
        self.state.value.reset(made)
        self.abandoned = weakref.finalize(self, finalize_forgotten, self.state)

    cdef int require_usable(self) except -1:
        return self.state.require_usable()

    # Where tasks go.
    cdef ContextState taking(self, str what):
        if self.state.inner is None and self.state.scopes_only:
            raise TaskStateError(f"{what} of a task graph belongs into its recording: use it within `with graph:`")
        return self.state.head()

    cdef int require_no_scope(self, str what) except -1:
        if self.state.inner is not None:
            raise TaskStateError(f"{what} waits for work, and what a scope records runs when it ends: call it outside "
                                 "of scopes")
        return 0

    cdef object own(self, object data, str what):
        if type(data) is not logical_data:
            raise TypeError(f"{what} takes logical data: got {type(data).__name__}")
        if (<logical_data>data).state.root is self.state:
            raise WrongContext(f"{data!r} stays in the scope that it was made in (no_export): {what} belongs to data of "
                               "the context; copy it there in a task")
        if (<logical_data>data).state is not self.state:
            raise WrongContext(f"{data!r} belongs to another context: call {what} on that one")
        return data

    def logical_data(self, buf, data_place dplace=None, name=None):
        cdef Source source
        self.require_usable()
        source = describe(buf, dplace, self.state.runtime)
        return make_registered(self.state, source.keep, source.address, source.place, source.readonly,
                               source.shape, source.dtype, name)

    def logical_data_empty(self, shape, dtype=None, name=None, *, bint no_export=False):
        self.require_usable()
        return make_empty(self.state.head() if no_export else self.state, checked_shape(shape), checked_dtype(dtype),
                          name, no_export)

    def logical_data_full(self, shape, fill_value, dtype=None, data_place where=None, exec_place=None, name=None):
        self.require_usable()
        cdef tuple lengths = checked_shape(shape)
        if np.ndim(fill_value) != 0:
            raise ValueError(f"fill_value is one value: got shape {np.shape(fill_value)}; register an array with "
                             "logical_data(array)")
        value = np.full((), fill_value, dtype)
        checked_dtype(value.dtype)
        if value.dtype.itemsize not in FILL_WIDTHS:
            raise TypeError(f"elements of 1, 2, 4, 8 or 16 bytes can be filled: got {value.dtype} with "
                            f"{value.dtype.itemsize}; register an array with logical_data(array)")
        result = make_empty(self.state, lengths, value.dtype, name, False)
        fill(self.state.head(), result, value, where, exec_place)
        return result

    def logical_data_zeros(self, shape, dtype=None, **kwargs):
        return self.logical_data_full(shape, 0, np.dtype(dtype), **kwargs)

    def logical_data_ones(self, shape, dtype=None, **kwargs):
        return self.logical_data_full(shape, 1, np.dtype(dtype), **kwargs)

    def token(self):
        self.require_usable()
        return make_token(self.state, None)

    def task(self, *args, symbol=None, cost=None, int priority=0, int sms=0, int waves=1):
        self.require_usable()
        return make_task(self.taking("task()"), args, symbol, cost, priority, sms, waves)

    def cuda_kernel(self, *args, symbol=None):
        self.require_usable()
        return make_kernel_task(self.taking("cuda_kernel()"), args, symbol)

    def host_launch(self, *deps, fn, args=None, symbol=None):
        self.require_usable()
        drain_released()
        launch_on_host(self.taking("host_launch()"), deps, fn, args, symbol)

    def wait(self, ld):
        cdef logical_data data = self.own(ld, "wait()")
        cdef Context* core = self.state.value.get()
        cdef void* address
        cdef object result = None if data.shape is None else np.empty(data.shape, data.dtype)
        self.require_usable()
        self.require_no_scope("wait()")
        if data.nbytes == 0:
            with nogil:
                core.synchronize(data.data[0], stf_python_interrupt())
        else:
            address = <void*>address_of(result)
            with nogil:
                core.read_back(data.data[0], address, stf_python_interrupt())
        drain_released()
        self.state.raise_pending()
        return result

    def fence(self):
        cdef Context* core = self.state.value.get()
        cdef uint64_t handle
        self.require_no_scope("fence()")
        drain_released()
        with nogil:
            handle = core.fence()
        return handle

    def check_errors(self):
        drain_released()
        self.state.raise_pending()

    def finalize(self):
        try:
            finish(self.state)
        finally:
            if self.closed:
                self.abandoned.detach()
                if self.owns_resources:
                    self.resources.pool.reset()  # the core has its own hold on it; borrowers get an error
        drain_released()
        self.state.raise_pending()

    def __enter__(self):
        self.require_usable()
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.finalize()
            return False
        try:
            self.finalize()
        except Exception as later:
            note_failure(error, later, "finalizing the context")
        return False

    @property
    def closed(self):
        return self.state.value.get().closed()

    @property
    def place_resources(self):
        self.require_usable()
        return self.resources

    @property
    def stats(self):
        return statistics_of(self.state.value.get())

    @property
    def trace(self):
        if not self.state.value.get().tracing():
            raise ValueError("this context does not trace: make it with context(trace=True)")
        return trace_of(self.state.value.get())

    def __repr__(self):
        cdef str machine = self.state.runtime.driver.machine
        return f"<context on {machine}, {'closed' if self.closed else 'open'}>"


cdef int fill(ContextState state, logical_data data, object value, data_place where, object place) except -1:
    cdef Context* core = state.value.get()
    cdef ExecPlace exec_value
    cdef DataPlace where_value
    cdef const void* bytes_at = <const void*><uint64_t>address_of(value)
    cdef size_t width = value.dtype.itemsize
    if place is not None and not isinstance(place, exec_place):
        raise TypeError(f"exec_place is a place to run on: got {type(place).__name__}")
    if where is None and place is not None:
        where = (<exec_place>place)._affine
    elif where is not None and place is None:
        place = place_beside(where)
    if place is not None:
        exec_value = (<exec_place>place).value
    if where is not None:
        if data.nbytes != 0:
            where = bound_to(where, data.shape, data.dtype.itemsize, state.runtime)
        where_value = where.value
    if data.nbytes != 0:
        keep_in(state, data)
        with nogil:
            core.fill(data.data[0], exec_value, where_value, bytes_at, width)
    return 0


cdef object place_beside(data_place where):
    if where.kind == "host":
        return exec_place.host()
    if where.kind == "composite":
        return where.grid
    return exec_place.device(where.device_id) if where.kind == "device" else None


# Ends a context and lets go of what its work needed, as far as that work is over.
cdef int finish(ContextState state) except -1:
    cdef Context* core = state.value.get()
    if core.closed():
        return 0
    cdef bint lost = False
    try:
        with nogil:
            core.finalize(stf_python_interrupt())
    except DeviceLost:
        lost = True
        raise
    finally:
        if core.closed():
            if lost or not state.on_caller_stream:
                forget_calls(state)
            release_sources(state, lost)
    return 0


# Host functions that the driver has not called by now are never called: what they hold is let go of.
cdef int forget_calls(ContextState state) except -1:
    cdef set calls = state.calls
    state.calls = set()
    for call in calls:
        (<HostCall>call).forget()
    return 0


cdef int release_sources(ContextState state, bint lost) except -1:
    cdef Context* core = state.value.get()
    cdef dict sources = state.sources
    cdef HostCall holder
    cdef void* argument
    state.sources = {}
    if lost or not state.on_caller_stream or not sources:
        return 0
    holder = make_call(state, None, (sources,))
    argument = hand_over(holder)
    try:
        with nogil:
            core.after_all(release_call, argument)
    except BaseException:
        take_back(holder)
        state.sources = sources  # held until the last of the context's data is gone
        raise
    return 0


def finalize_forgotten(ContextState state):
    if state.value.get().closed():
        return
    outcome = "its values were written back now"
    try:
        abandon_scopes(state)
        finish(state)
    except Exception as error:
        outcome = f"and finalizing it now failed: {type(error).__name__}: {error}"
    warnings.warn(f"a context was dropped without finalize(); {outcome}. Use `with stf.context() as ctx:`",
                  ResourceWarning, stacklevel=2)
