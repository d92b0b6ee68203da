# distutils: language = c++
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from stf_places._native.callbacks cimport (
    HostCall, hand_over, keep_call, make_call, release_call, run_and_release_call, run_call)
from stf_places._native.core cimport (
    Context, Task, executes, is_affine, is_host)
from stf_places._native.data cimport checked_name, dep, keep_in
from stf_places._native.runtime cimport Runtime
from stf_places._native.signals cimport stf_python_interrupt
from stf_places._native.tasks cimport add_dependency, wrong_argument
from stf_places._native.views cimport host_array


cdef int launch_on_host(ContextState state, tuple deps, object fn, object args, object symbol) except -1:
    cdef Context* context = state.value.get()
    cdef Runtime* runtime = state.runtime.value.get()
    cdef Task task
    cdef HostCall call
    if not callable(fn):
        raise TypeError(f"host_launch() needs fn=, a function to call: got {type(fn).__name__}")
    cdef tuple extra = positional(args)
    fill_task(state, &task, deps, symbol)
    with nogil:
        context.open_callback(task, stf_python_interrupt())
    try:
        call = make_call(state, fn, arrays_of(&task, deps) + extra if executes(runtime[0]) else extra)
    except BaseException:
        with nogil:
            context.end(task, True, stf_python_interrupt())
        raise
    enqueue(context, runtime, &task, call)
    return 0


cdef int enqueue(Context* context, Runtime* runtime, Task* task, HostCall call) except -1:
    cdef void* argument = hand_over(call)
    cdef bint runs = executes(runtime[0])
    # What a scope calls, it calls at each launch; its context gives the call back.
    cdef bint repeats = call.state.root is not None
    if runs or repeats:
        call.state.calls.add(call)
    try:
        with nogil:
            if repeats:
                context.enqueue_callback(task[0], run_call if runs else keep_call, release_call, argument,
                                         stf_python_interrupt())
            else:
                context.enqueue_callback(task[0], run_and_release_call if runs else release_call, release_call,
                                         argument, stf_python_interrupt())
    except BaseException:
        call.state.calls.discard(call)
        raise
    return 0


cdef tuple positional(object args):
    if args is None:
        return ()
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is a tuple of what fn gets behind the arrays: got {type(args).__name__}; write "
                        "args=(value,) for one")
    return tuple(args)


cdef int fill_task(ContextState state, Task* task, tuple deps, object symbol) except -1:
    cdef Py_ssize_t i, count = PyTuple_GET_SIZE(deps)
    cdef object argument
    cdef dep access
    task.dependencies.reserve(count)
    for i in range(count):
        argument = <object>PyTuple_GET_ITEM(deps, i)
        if type(argument) is not dep:
            raise wrong_argument(argument, "host_launch()", "dependencies (data.read(), data.write(), data.rw())")
        access = <dep>argument
        if access.dplace is not None and not is_host(access.dplace.value) and not is_affine(access.dplace.value):
            raise ValueError(f"a host function works on host memory: got {access!r}; leave the data place out")
        add_dependency(task, access)
        keep_in(state, access.data)
    if symbol is not None:
        task.symbol = checked_name(symbol).encode()
    return 0


# The arrays that fn gets, over memory that stays where it is until fn has returned. They do not keep the data
# alive: data dropped meanwhile is freed behind the call.
cdef tuple arrays_of(Task* task, tuple deps):
    cdef list arrays = []
    cdef Py_ssize_t i
    cdef dep access
    for i in range(PyTuple_GET_SIZE(deps)):
        access = <dep>PyTuple_GET_ITEM(deps, i)
        if not access.data._token:
            arrays.append(host_array(task.address(i, 0), access.data.nbytes, access.access == 1, None,
                                     access.data.shape, access.data.dtype))
    return tuple(arrays)
