# distutils: language = c++
cimport cython
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string

from stf_places._native.callbacks cimport HostCall, hand_over, make_call, release_call, take_back
from stf_places._native.composites cimport bound_to
from stf_places._native.core cimport Context, DataOptions, HostFunction, Mode, host_place, is_composite

import enum
import operator

import numpy as np

from stf_places.errors import NotSupported, ReadOnlyError, TaskStateError


class AccessMode(enum.IntFlag):
    NONE = 0
    READ = 1
    WRITE = 2
    RW = 3


cdef tuple MODES = (AccessMode.NONE, AccessMode.READ, AccessMode.WRITE, AccessMode.RW)
cdef tuple VERBS = ("", "read", "write", "rw")


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class dep:
    def __init__(self):
        raise TypeError("a dependency is made from data: data.read(), data.write() or data.rw()")

    @property
    def mode(self):
        return MODES[self.access]

    def __repr__(self):
        cdef str place = "" if self.dplace is None else repr(self.dplace)
        return f"{self.data!r}.{VERBS[self.access]}({place})"


# Not cleared by the collector: __dealloc__ needs the context.
@cython.final
@cython.no_gc_clear
cdef class logical_data:
    # NumPy's scalars leave comparisons with data to the data.
    __array_ufunc__ = None

    def __init__(self):
        raise TypeError(
            "logical data is made by a context: ctx.logical_data(array), ctx.logical_data_empty(shape), "
            "ctx.logical_data_full(shape, value) or ctx.token()")

    def __dealloc__(self):
        cdef shared_ptr[Context]* context
        cdef HostCall holder = None
        cdef HostFunction release = NULL
        cdef void* argument = NULL
        cdef cbool source_in_use
        if self.data == NULL:
            return
        context = &self.state.value
        if self.source_key != 0 and self.source_key in self.state.sources:
            holder = make_call(None, None, (self.state.sources.pop(self.source_key),))
            argument = hand_over(holder)
            release = release_call
        # This can run in any thread and inside a collection: the core queues what it cannot do at once, and
        # the enqueues that it does must not keep the GIL.
        with nogil:
            source_in_use = Context.drop(context[0], self.data, release, argument)
        if holder is not None and not source_in_use:
            take_back(holder)

    cdef dep use(self, int access, data_place dplace):
        cdef dep result
        if access != 1 and self.readonly:
            raise ReadOnlyError(
                f"{VERBS[access]}() needs a writable source: {self!r} was registered from read-only memory; "
                "use read(), or register a writable copy")
        result = dep.__new__(dep)
        result.data = self
        result.dplace = dplace
        result.access = access
        return result

    def read(self, data_place dplace=None):
        return self.use(1, dplace)

    def write(self, data_place dplace=None):
        return self.use(2, dplace)

    def rw(self, data_place dplace=None):
        return self.use(3, dplace)

    def empty_like(self):
        if self._token:
            return make_token(self.state, None)
        return make_empty(self.state, self.shape, self.dtype, None, self._no_export)

    def push(self, mode, data_place dplace=None):
        cdef ContextState head = self.scope_for("push()")
        cdef int access = int(AccessMode(mode))
        cdef Context* core
        cdef DataPlace place
        if not 1 <= access <= 3:
            raise ValueError("push() takes what the scope does with the data: AccessMode.READ, WRITE or RW")
        if access != 1 and self.readonly:
            self.use(access, dplace)
        if dplace is not None:
            place = dplace.value
            if self.nbytes and is_composite(place):
                place = bound_to(dplace, self.shape, self.dtype.itemsize, self.state.runtime, self).value
        core = head.value.get()
        keep_in(head, self)
        with nogil:
            core.push(self.data[0], <Mode>access, place)

    def set_read_only(self):
        if not self.state.stackable:
            raise NotSupported("set_read_only() is for data of a stackable_context: elsewhere use read()")
        with nogil:
            self.data.set_read_only()
        self.readonly = True

    cdef ContextState scope_for(self, str what):
        cdef ContextState root = self.state if self.state.root is None else self.state.root
        if not root.stackable:
            raise NotSupported(f"{what} is for data of a stackable_context, in one of its scopes")
        if root.inner is None:
            raise TaskStateError(f"{what} belongs inside a scope: use it within `with ctx.graph_scope():`")
        return root.inner

    def set_symbol(self, name):
        cdef string text = checked_name(name).encode()
        self.data.set_name(text)
        self._symbol = name

    @property
    def symbol(self):
        return self._symbol

    @property
    def stackable(self):
        return self.state.stackable

    @property
    def token(self):
        return self._token

    @property
    def ndim(self):
        return 0 if self.shape is None else len(self.shape)

    @property
    def size(self):
        cdef Py_ssize_t result = 0 if self._token else 1
        if self.shape is not None:
            for length in self.shape:
                result *= length
        return result

    def __lt__(self, threshold):
        return condition_of(self, "<", threshold)

    def __le__(self, threshold):
        return condition_of(self, "<=", threshold)

    def __gt__(self, threshold):
        return condition_of(self, ">", threshold)

    def __ge__(self, threshold):
        return condition_of(self, ">=", threshold)

    # Without it, a class with comparisons has no hash; == and != are those of object as well.
    def __hash__(self):
        return object.__hash__(self)

    def __repr__(self):
        cdef list parts = ["token"] if self._token else [f"shape={self.shape}", f"dtype={self.dtype}"]
        if self._symbol is not None:
            parts.append(f"symbol={self._symbol!r}")
        if self.readonly:
            parts.append("readonly=True")
        return f"logical_data({', '.join(parts)})"


cdef object condition_of(logical_data data, str op, object threshold):
    from stf_places.flow.conditions import cond
    return cond(data, op, threshold)


cdef int keep_in(ContextState state, logical_data data) except -1:
    if data.kept_in != state.number:
        data.kept_in = state.number
        state.keep(data)
    return 0


cdef logical_data data_of(object value, str verb):
    if type(value) is not logical_data:
        raise TypeError(
            f"{verb}() takes logical data: got {type(value).__name__}; register it with ctx.logical_data first")
    return <logical_data>value


def read(ld, data_place dplace=None):
    return data_of(ld, "read").use(1, dplace)


def write(ld, data_place dplace=None):
    return data_of(ld, "write").use(2, dplace)


def rw(ld, data_place dplace=None):
    return data_of(ld, "rw").use(3, dplace)


cdef object checked_dtype(object dtype):
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"elements are moved as bytes, so Python objects cannot be: got dtype {dtype}; use numbers")
    if dtype.itemsize == 0:
        raise TypeError(f"elements need a size: got dtype {dtype!r} with 0 bytes; give a length, as in 'S8'")
    return dtype


cdef tuple checked_shape(object shape):
    cdef list lengths
    if isinstance(shape, (str, bytes)):
        raise TypeError(f"shape is an int or a sequence of ints: got {shape!r}")
    try:
        lengths = [operator.index(shape)]
    except TypeError:
        try:
            lengths = [operator.index(length) for length in shape]
        except TypeError:
            raise TypeError(f"shape is an int or a sequence of ints: got {shape!r}") from None
    for length in lengths:
        if length < 0:
            raise ValueError(f"lengths are not negative: got shape {tuple(lengths)}")
    return tuple(lengths)


cdef size_t nbytes_of(tuple shape, object dtype) except? 0:
    cdef object total = dtype.itemsize
    for length in shape:
        total *= length
    if total >= 1 << 63:
        raise ValueError(f"at most 2**63 - 1 bytes: got shape {shape} of {dtype}, which is {total} bytes")
    return total


cdef object checked_name(object name):
    if not isinstance(name, str):
        raise TypeError(f"names are strings: got {type(name).__name__}")
    return name


cdef logical_data make_data(ContextState state, DataOptions& options, object source, object name):
    cdef Context* context = state.value.get()
    cdef logical_data result = logical_data.__new__(logical_data)
    if name is not None:
        options.name = checked_name(name).encode()
    result.state = state
    with nogil:
        result.data = context.create(options)
    if source is not None:
        result.source_key = state.hold(source)
    result._symbol = name
    result.readonly = options.read_only
    result.nbytes = options.nbytes
    result._no_export = options.no_export
    return result


cdef logical_data make_token(ContextState state, object name):
    cdef DataOptions options
    cdef logical_data result
    options.token = True
    result = make_data(state, options, None, name)
    result._token = True
    return result


cdef logical_data make_empty(ContextState state, tuple shape, object dtype, object name, bint no_export):
    return make_registered_or_empty(state, None, 0, host_place(), False, shape, dtype, name, no_export)


cdef logical_data make_registered(ContextState state, object source, uint64_t address, DataPlace place,
                                  bint readonly, tuple shape, object dtype, object name):
    return make_registered_or_empty(state, source, address, place, readonly, shape, dtype, name, False)


cdef logical_data make_registered_or_empty(ContextState state, object source, uint64_t address, DataPlace place,
                                           bint readonly, tuple shape, object dtype, object name,
                                           bint no_export):
    cdef DataOptions options
    cdef logical_data result
    options.nbytes = nbytes_of(shape, dtype)
    # Data without bytes only order tasks: to the core they are tokens.
    options.token = options.nbytes == 0
    options.read_only = readonly
    options.no_export = no_export
    options.source = address if options.nbytes != 0 else 0
    options.source_place = place
    result = make_data(state, options, source, name)
    result.shape = shape
    result.dtype = dtype
    return result
