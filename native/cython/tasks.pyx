# distutils: language = c++
cimport cython
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint64_t
from libcpp.vector cimport vector

from stf_places._native.callbacks cimport HostCall, hand_over, make_call, release_call, run_call
from stf_places._native.core cimport (
    Context, DataPlace, Dependency, Mode, PartAccess, TaskState, cpu_reaches, executes, is_composite, is_replicated,
    runs_on_host)
from stf_places._native.composites cimport bound_to
from stf_places._native.data cimport keep_in, logical_data
from stf_places._native.grids cimport exec_place_grid
from stf_places._native.places cimport DataKind, data_place
from stf_places._native.signals cimport stf_python_interrupt
from stf_places._native.stream_arguments cimport cuda_stream
from stf_places._native.views cimport array_of, host_array, part_of, refuse_view, stf_cai

import warnings

from stf_places.errors import NotSupported, TaskStateError


# Not cleared by the collector: __dealloc__ may have to end the task.
@cython.no_gc_clear
@cython.freelist(16)
cdef class task:
    def __init__(self):
        raise TypeError("a task is made by a context: ctx.task(place, data.read(), ...)")

    def __dealloc__(self):
        if self.owner is None or self.value.state() != TaskState.open or self.owner.value.get().closed():
            return
        try:
            warnings.warn(f"{self.label()} was never ended: use `with ctx.task(...)`, or call end()",
                          ResourceWarning, source=None, stacklevel=1)
        finally:
            try:
                self.close(True)
            except Exception:
                pass  # another thread is inside the context; finalize() reports the open task

    cdef int open(self) except -1:
        cdef Context* context = self.owner.value.get()
        if self.place is not None and self.place._affine is not None and is_composite(self.place._affine.value):
            self.bind_affine()
        if self.replicates:
            self.check_replicated()
        with nogil:
            context.start(self.value, stf_python_interrupt())
        return 0

    cdef int close(self, bint failed) except -1:
        cdef Context* context = self.owner.value.get()
        with nogil:
            context.end(self.value, failed, stf_python_interrupt())
        return 0

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, error, trace):
        if self.value.state() == TaskState.ended:
            return False
        if kind is None:
            self.close(False)
            return False
        try:
            self.close(True)
        except Exception as later:
            note_failure(error, later, f"ending {self.label()}")
        return False

    def start(self):
        self.open()
        return self

    def end(self):
        self.close(False)

    def set_exec_place(self, exec_place place not None):
        self.require_created("set_exec_place()")
        self.use_place(place)

    def set_symbol(self, name):
        self.require_created("set_symbol()")
        if not isinstance(name, str):
            raise TypeError(f"names are strings: got {type(name).__name__}")
        self.value.symbol = name.encode()

    @property
    def symbol(self):
        return self.value.symbol.decode() if not self.value.symbol.empty() else None

    @property
    def state(self):
        if self.value.state() == TaskState.open:
            return "open"
        return "created" if self.value.state() == TaskState.created else "ended"

    @property
    def exec_place(self):
        cdef exec_place place
        if self.place is None and self.value.state() == TaskState.open:
            place = exec_place.__new__(exec_place)
            place.value = self.value.resolved_place()
            return place
        return self.place

    def __len__(self):
        return self.value.dependencies.size()

    def __bool__(self):
        return True

    def index(self, logical_data data not None):
        cdef Py_ssize_t i
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            if self.dependency(i).data is data:
                return i
        raise ValueError(f"{data!r} is no dependency of {self.label()}")

    def readonly(self, Py_ssize_t index):
        return self.dependency(index).access == 1

    def get_arg(self, Py_ssize_t index, Py_ssize_t place_index=0):
        self.require_open("get_arg()")
        self.buffer_at(index, "get_arg()")
        return self.value.address(index, self.place_number(place_index))

    def get_arg_cai(self, Py_ssize_t index, Py_ssize_t place_index=0):
        self.require_open("get_arg_cai()")
        return self.view(index, self.buffer_at(index, "get_arg_cai()"), self.place_number(place_index))

    def args_cai(self):
        cdef list views = []
        cdef Py_ssize_t i
        cdef dep access
        self.require_open("args_cai()")
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            access = self.dependency(i)
            if not access.data._token:
                views.append(self.view(i, access, 0))
        if not views:
            return None
        return views[0] if len(views) == 1 else tuple(views)

    def numpy(self, Py_ssize_t index, Py_ssize_t place_index=0):
        cdef dep access
        self.require_open("numpy()")
        access = self.buffer_at(index, "numpy()")
        if self.owner.value.get().recording() and not runs_on_host(self.value.resolved_place()):
            refuse_view()
        if not executes(self.owner.runtime.value.get()[0]):
            raise NotSupported("this simulated machine moves no bytes (execute=False): there is nothing to look at")
        if not cpu_reaches(self.value, index, self.owner.runtime.value.get()[0]):
            raise NotSupported(
                f"NumPy reads host memory only, and argument {index} of {self.label()} is in a GPU's memory: run the "
                "task on exec_place.host(), or hand get_arg_cai() to a library for GPUs")
        return host_array(self.value.address(index, self.place_number(place_index)), access.data.nbytes,
                          access.access == 1, access.data, access.data.shape, access.data.dtype)

    def run(self, fn, *args):
        self.run_on(0, fn, args)

    def run_on(self, Py_ssize_t place_index, fn, tuple args not None):
        cdef Context* context = self.owner.value.get()
        cdef size_t at
        cdef HostCall call
        cdef void* argument
        if not callable(fn):
            raise TypeError(f"run() takes a function and its arguments: got {type(fn).__name__}")
        self.require_open("run()")
        at = self.place_number(place_index)
        args = tuple([array_of(<stf_cai>one) if type(one) is stf_cai and (<stf_cai>one).on_host else one for one in args])
        if not self.owner.runtime.value.get().simulated() or runs_on_host(self.value.resolved_place()):
            fn(*args)
            return
        call = make_call(self.owner, fn, args)
        argument = hand_over(call)  # release_call gives it back, whatever happens
        with nogil:
            context.run_in(self.value, at, run_call, release_call, argument)

    def shards(self, index, halo=0, *, partition=None):
        from stf_places.flow.shards import shards_of
        self.require_open("shards()")
        return shards_of(self, index, halo, partition)

    def spec_of(self, Py_ssize_t index):
        cdef dep access = self.buffer_at(index, "shards()")
        if access.dplace is not None and access.dplace.spread is not None:
            return access.dplace.spread
        return None if self.place is None or self.place._affine is None else self.place._affine.spread

    def part(self, Py_ssize_t index, Py_ssize_t place_index, size_t offset, tuple shape, tuple strides):
        self.require_open("part()")
        return part_of(self.view(index, self.dependency(index), self.place_number(place_index)), offset, shape, strides)

    def touch(self, Py_ssize_t place_index, parts):
        cdef vector[PartAccess] told
        cdef PartAccess one
        self.require_open("touch()")
        for index, offset, nbytes, used, write in parts:
            self.dependency(index)
            one.dependency = index
            one.offset = offset
            one.nbytes = nbytes
            one.used = used
            one.write = write
            told.push_back(one)
        self.value.set_parts(self.place_number(place_index), told)

    def arguments(self):
        cdef dep access
        cdef list known = []
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            access = self.dependency(i)
            known.append((access.data.shape, access.data.dtype, access.access))
        return known

    def stream_ptr(self):
        self.require_open("stream_ptr()")
        return self.stream_at(0)

    def get_grid_dims(self):
        cdef tuple dims
        if not isinstance(self.place, exec_place_grid):
            return None
        dims = tuple(self.place.dims)
        return dims + (1,) * (4 - len(dims))

    def get_stream_at_index(self, Py_ssize_t place_index):
        self.require_open("get_stream_at_index()")
        return self.stream_at(self.place_number(place_index))

    def get_stream_ptrs(self):
        cdef size_t i
        self.require_open("get_stream_ptrs()")
        return [self.stream_at(i) for i in range(self.value.stream_count())]

    def __repr__(self):
        return f"<{self.label()}: {self.state}, {self.value.dependencies.size()} dependencies>"

    # ---- Shared by the above ----

    cdef str label(self):
        if self.value.symbol.empty() and self.value.state() == TaskState.created:
            return "task"
        return self.value.label().decode()

    cdef int require_created(self, str what) except -1:
        if self.value.state() != TaskState.created:
            raise TaskStateError(f"{what} belongs before the task starts: {self.label()} is {self.state}")
        return 0

    cdef int require_open(self, str what) except -1:
        if self.value.state() != TaskState.open:
            raise TaskStateError(f"{what} belongs inside the task's body: {self.label()} is {self.state}; use it "
                                 "within `with ctx.task(...) as t:`")
        return 0

    cdef dep dependency(self, Py_ssize_t i):
        cdef Py_ssize_t count = self.value.dependencies.size()
        if not 0 <= i < count:
            raise IndexError(f"argument {i} of {self.label()} with {count} argument(s): "
                             + (f"use 0 to {count - 1}" if count else "it has none"))
        return <dep>PyTuple_GET_ITEM(self.args, i + 1 if i >= self.place_at else i)

    cdef dep buffer_at(self, Py_ssize_t index, str what):
        cdef dep access = self.dependency(index)
        if access.data._token:
            raise TypeError(f"argument {index} of {self.label()} is a token, which only orders tasks: {what} needs "
                            "an argument with a buffer")
        return access

    cdef int use_place(self, exec_place place) except -1:
        cdef DataPlace affine
        self.place = place
        self.value.place = place.value
        # A composite place is bound to each argument once the task starts.
        if place._affine is None or is_composite(place._affine.value):
            self.value.affine = affine
        else:
            self.value.affine = place._affine.value
        return 0

    # Composite memory of the place, for what names no place of its own.
    cdef int bind_affine(self) except -1:
        cdef Py_ssize_t i
        cdef dep access
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            access = self.dependency(i)
            if access.data.nbytes and (access.dplace is None or access.dplace.value.kind == DataKind.affine):
                self.value.dependencies[i].place = pages_of(access.data, self.place._affine)
        return 0

    cdef int check_replicated(self) except -1:
        cdef Py_ssize_t i
        cdef dep access
        for i in range(<Py_ssize_t>self.value.dependencies.size()):
            access = self.dependency(i)
            if access.dplace is None or not is_replicated(access.dplace.value) or access.dplace.over is None:
                continue
            known = {place.device_id for place in access.dplace.over.places}
            places = (self.place,) if not isinstance(self.place, exec_place_grid) else self.place.places
            for place in places:
                if place is not None and place.device_id >= 0 and place.device_id not in known:
                    raise ValueError(f"argument {i} of {self.label()} is replicated over devices {sorted(known)}: "
                                     f"the task runs on {place!r}; give it data_place.replicated(), for the devices "
                                     "of its task")
        return 0

    cdef size_t place_number(self, Py_ssize_t place_index) except? 0:
        if not 0 <= place_index < <Py_ssize_t>self.value.stream_count():
            raise IndexError(f"place index {place_index} of a task on {self.value.stream_count()} place(s): use 0 to "
                             f"{self.value.stream_count() - 1}")
        return place_index

    cdef object view(self, Py_ssize_t index, dep access, size_t at):
        cdef stf_cai view = stf_cai.__new__(stf_cai)
        view.ptr = self.value.address(index, at)
        view.shape = access.data.shape
        view.dtype = access.data.dtype
        view.nbytes = access.data.nbytes
        view.readonly = access.access == 1
        view.on_host = cpu_reaches(self.value, index, self.owner.runtime.value.get()[0])
        view.owner = access.data
        view.recorded = self.owner.value.get().recording() and not runs_on_host(self.value.resolved_place())
        return view

    cdef object stream_at(self, size_t index):
        return cuda_stream(self.value.stream(index), self.owner.runtime.value.get().simulated())


# Where data lies on a composite place.
cdef DataPlace pages_of(logical_data data, data_place where) except *:
    return bound_to(where, data.shape, data.dtype.itemsize, data.state.runtime, data).value


cdef int add_dependency(Task* value, dep access) except -1:
    cdef Dependency dependency
    dependency.data = access.data.data
    dependency.mode = <Mode>access.access
    if access.dplace is not None:
        dependency.place = access.dplace.value
        if access.data.nbytes and is_composite(access.dplace.value):
            dependency.place = pages_of(access.data, access.dplace)
    value.dependencies.push_back(dependency)
    return 0


cdef object wrong_argument(object argument, str what, str accepted):
    if isinstance(argument, logical_data):
        return TypeError(f"{what} needs to know how data is used: got {argument!r}; pass data.read(), data.write() "
                         "or data.rw()")
    return TypeError(f"{what} takes {accepted}: got {type(argument).__name__}")


cdef int set_up(task result, ContextState state, tuple args, object symbol, str what) except -1:
    cdef Py_ssize_t i, count = PyTuple_GET_SIZE(args)
    cdef object argument
    result.owner = state
    result.args = args
    result.place_at = count
    result.value.dependencies.reserve(count)
    for i in range(count):
        argument = <object>PyTuple_GET_ITEM(args, i)
        if type(argument) is dep:
            add_dependency(&result.value, <dep>argument)
            keep_in(state, (<dep>argument).data)
            if (<dep>argument).dplace is not None and is_replicated((<dep>argument).dplace.value):
                result.replicates = True
        elif isinstance(argument, exec_place):
            if result.place is not None:
                raise TypeError(f"a task runs on one place: got {result.place!r} and {argument!r}; to use several "
                                "at once, pass exec_place_grid.create([...])")
            result.place_at = i
            result.use_place(<exec_place>argument)
        else:
            raise wrong_argument(argument, what, "dependencies (data.read(), data.write(), data.rw()) and at "
                                                     "most one exec_place")
    if symbol is not None:
        result.set_symbol(symbol)
    return 0


cdef task make_task(ContextState state, tuple args, object symbol, object cost, int priority, int sms,
                    int waves):
    cdef task result = task.__new__(task)
    set_up(result, state, args, symbol, "task()")
    if cost is not None:
        result.value.cost_us = cost
        if not result.value.cost_us >= 0:
            raise ValueError(f"cost is a duration in microseconds, 0 or more: got {cost}")
    result.value.priority = priority
    if sms < 0:
        raise ValueError(f"sms is a number of SMs, 0 for the whole place: got {sms}")
    result.value.sms = sms
    if waves < 1:
        raise ValueError(f"waves is a number of rounds, 1 or more: got {waves}")
    result.value.waves = waves
    return result


cdef int note_failure(object error, object later, str what) except -1:
    if hasattr(error, "add_note"):
        error.add_note(f"{what} failed, too: {type(later).__name__}: {later}")
    if error.__context__ is None and later is not error:
        error.__context__ = later
    return 0
