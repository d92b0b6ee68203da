# distutils: language = c++
cimport cython
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from stf_places._native.contexts cimport context
from stf_places._native.core cimport (
    ConditionTerm, GraphDescription, LoopCompare, LoopType, Scope, ScopeKind, ScopeState)
from stf_places._native.data cimport keep_in, logical_data
from stf_places._native.recordings cimport (
    Recorded, close_recording, discard, finish_scopes, innermost, let_go_of_released, open_recording,
    run_once)
from stf_places._native.signals cimport stf_python_interrupt
from stf_places._native.state cimport ContextState

import operator

from stf_places.errors import NotSupported, TaskStateError, WrongContext

cdef class Level:
    """What `with` opens and closes: a recording, or a part of one."""
    cdef ContextState root  # not its context, which has to be let go of when the program does
    cdef Recorded made      # None: a part of the recording around
    cdef str what
    cdef bint logged        # may be asked for a description
    cdef bint entered
    cdef Recorded before    # the recording that it is a part of
    cdef uint64_t recorded  # in that, when it began

    def __init__(self):
        raise TypeError("scopes are made by a stackable_context: ctx.graph_scope(), while_loop() or repeat(count)")

    cdef int begin(self) except -1:
        self.root.require_usable()
        if self.entered:
            raise TaskStateError(f"{self.what} is entered once: make a new one")
        self.open()
        self.entered = True
        self.root.levels.append(self)
        return 0

    cdef int open(self) except -1:
        if self.root.inner is None:
            self.made = open_recording(self.root, ScopeKind.graph, 0, self.logged)
        else:
            self.before = innermost(self.root)
            self.before.value.get().require_no_open_task()
            self.recorded = self.before.value.get().recorded()
        return 0

    # Takes the level off the stack, with those that were left open inside.
    cdef int end(self, bint whole) except -1:
        cdef Level last
        cdef str left = None
        if self not in self.root.levels:
            raise TaskStateError(f"{self.what} {'has ended already' if self.entered else 'was not entered'}")
        while True:
            last = self.root.levels.pop()
            if last is self:
                break
            left = last.what
            last.drop()
        if left is not None and whole:
            self.drop()
            raise TaskStateError(f"{left} is still open inside {self.what}: scopes end in the reverse order; what both "
                                 "recorded was discarded")
        if whole:
            self.close()
        else:
            self.drop()
        return 0

    cdef int close(self) except -1:
        if self.made is not None:
            run_once(self.root, self.made)
        return 0

    cdef int drop(self) except -1:
        if self.made is None:
            # What stands in a recording of others cannot be taken out of it.
            if self.before.value.get().recorded() != self.recorded:
                self.before.value.get().spoil(f"{self.what} inside it was left by an exception".encode())
        elif self.made.value.get().state() == ScopeState.recording:
            discard(self.root, self.made)
        return 0

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, kind, error, trace):
        self.end(kind is None)
        return False


@cython.final
cdef class graph_scope(Level):
    pass


# What push() begins.
@cython.final
cdef class Pushed(Level):
    pass


cdef class Loop(Level):
    cdef Recorded graph      # of a loop at the root: a graph around it
    cdef ScopeKind kind
    cdef uint64_t count
    cdef str reason          # why the host drives it; None until it has ended

    cdef int open(self) except -1:
        if self.root.inner is None:
            self.graph = open_recording(self.root, ScopeKind.graph, 0, False)
        try:
            self.made = open_recording(self.root, self.kind, self.count, False)
        except BaseException:
            if self.graph is not None:
                discard(self.root, self.graph)
            raise
        return 0

    # Decides who drives the loop, and brings the kernel that the device needs for it.
    cdef uint64_t settle(self) except? 0:
        cdef Scope* scope = self.made.value.get()
        cdef string why
        cdef uint64_t kernel = 0
        with nogil:
            why = scope.settle_body(stf_python_interrupt())
        if why.empty() and not self.root.runtime.value.get().simulated():
            from stf_places.flow.condition_kernels import condition_kernel
            try:
                kernel = condition_kernel(self.root.runtime.driver, scope.device())
            except ImportError as error:
                scope.set_obstacle(str(error).encode())
        return kernel

    cdef int close(self) except -1:
        try:
            self.made.value.get().set_kernel(self.settle())
            self.made.finish()
        except BaseException:
            self.drop()
            raise
        self.reason = self.made.value.get().obstacle().decode()
        self.made.left = True  # a part of what is around it
        close_recording(self.root, self.made)
        if self.graph is not None:
            run_once(self.root, self.graph)
        return 0

    cdef int drop(self) except -1:
        discard(self.root, self.made)
        if self.graph is not None:
            discard(self.root, self.graph)
        return 0

    cdef str ended_reason(self):
        if self.reason is None:
            raise TaskStateError(f"who drives {self.what} is known once it has ended: ask after its `with`")
        return self.reason

    @property
    def on_device(self):
        return self.ended_reason() == ""

    @property
    def host_reason(self):
        return self.ended_reason() or None


@cython.final
cdef class while_loop(Loop):
    def continue_while(self, *condition):
        from stf_places.flow.conditions import cond
        cdef vector[ConditionTerm] terms
        cdef Scope* scope = self.made.value.get()
        cdef cbool any_of
        cdef uint64_t kernel
        if not self.root.levels or self.root.levels[-1] is not self:
            raise TaskStateError("continue_while() belongs inside its loop, behind the loop's tasks")
        expression = condition[0] if len(condition) == 1 else cond(*condition)
        if not isinstance(expression, cond):
            raise TypeError("continue_while() takes a condition such as residual > 1e-6, or data, operator and threshold: "
                            f"got {type(expression).__name__}")
        for term in expression.terms:
            terms.push_back(self.converted(term))
        any_of = expression.any
        kernel = self.settle()
        with nogil:
            scope.continue_while(terms, any_of, kernel, stf_python_interrupt())

    cdef ConditionTerm converted(self, object term) except *:
        cdef ConditionTerm result
        cdef logical_data data = term.ld
        if (data.state if data.state.root is None else data.state.root) is not self.root:
            raise WrongContext(f"{data!r} belongs to another context: a loop asks data of its own")
        keep_in(self.made.state, data)
        result.data = data.data
        result.term.type = {"f4": LoopType.float32, "f8": LoopType.float64, "i4": LoopType.int32,
                            "i8": LoopType.int64}[data.dtype.str[1:]]
        result.term.compare = {"<": LoopCompare.less, "<=": LoopCompare.less_equal, ">": LoopCompare.greater,
                               ">=": LoopCompare.greater_equal}[term.op]
        result.term.negate = term.negate
        if data.dtype.kind == "f":
            result.term.real = term.threshold
        else:
            result.term.whole = term.threshold
        return result

    @property
    def cond_handle(self):
        cdef Scope* scope = self.made.value.get()
        cdef uint64_t handle
        if self.root.runtime.value.get().simulated():
            raise NotSupported("a kernel of your own sets cond_handle, and a simulated machine runs no kernels: use "
                               "continue_while()")
        with nogil:
            handle = scope.condition(stf_python_interrupt())
        return handle


@cython.final
cdef class repeat(Loop):
    pass


cdef class LaunchableGraph:
    cdef Recorded made          # None once it was reset
    cdef ContextState root
    cdef object __weakref__

    def __init__(self):
        raise TypeError("a launchable graph is recorded: ctx.push(), tasks, then ctx.pop_prologue_shared()")

    def __dealloc__(self):
        if self.made is not None:
            try:
                self.made.leave()
            except Exception:
                pass  # released with the context

    cdef Recorded live(self):
        if self.made is None:
            raise TaskStateError("the graph was reset: record a new one")
        if not self.valid:
            raise TaskStateError("the graph's context was finalized: record a new one in a new context")
        return self.made

    cdef Recorded ready(self):
        return self.live()

    def launch(self):
        cdef Recorded made = self.ready()
        if self.root.inner is not None:
            raise TaskStateError("a graph is launched outside of scopes: launch() runs it at once")
        made.run()

    def reset(self):
        cdef Recorded made = self.made
        self.made = None
        if made is not None:
            made.leave()

    @property
    def valid(self):
        return (self.made is not None and self.made.value.get().state() != ScopeState.released
                and not self.root.value.get().closed())

    @property
    def graph(self):
        return self.ready().value.get().graph()

    @property
    def exec_graph(self):
        return self.ready().value.get().executable()

    @property
    def stream(self):
        return self.ready().value.get().stream()

    def describe(self):
        cdef GraphDescription found
        cdef Scope* scope = self.ready().value.get()
        with nogil:
            found = scope.describe()
        return (
            [(one.parent, one.part, one.kind.decode(), one.label.decode()) for one in found.groups],
            [(one.id, one.group, one.body, one.kind.decode(), one.label.decode(), one.place.decode())
             for one in found.nodes],
            [(one.first, one.second) for one in found.edges],
        )

    def __repr__(self):
        return f"<{type(self).__name__}: {'valid' if self.valid else 'reset'}>"


@cython.final
cdef class launchable_graph_scope(LaunchableGraph):
    cdef Level level

    def __enter__(self):
        if self.level is not None:
            raise TaskStateError("launchable_graph_scope() is entered once: make a new one")
        self.root.require_usable()
        require_root(self.root, "launchable_graph_scope()")
        self.level = level_of(Level, self.root, "launchable_graph_scope()", True)
        self.level.begin()
        self.made = self.level.made
        return self

    cdef Recorded ready(self):
        cdef Recorded made
        if self.level is None:
            raise TaskStateError("launchable_graph_scope() was not entered: use `with ... as graph:`")
        made = self.live()
        if made.value.get().state() == ScopeState.recording:
            end_prologue(self.root, self.level)
        return made

    def __exit__(self, kind, error, trace):
        if self.made is not None and self.made.value.get().state() == ScopeState.recording:
            self.level.end(False)
        self.reset()
        return False


# Ends a recording that stays.
cdef int end_prologue(ContextState root, Level level) except -1:
    if not root.levels or root.levels[-1] is not level:
        raise TaskStateError("a scope is still open inside: end it before the graph is launched")
    root.levels.pop()
    try:
        level.made.finish()
    except BaseException:
        level.drop()
        raise
    return close_recording(root, level.made)


cdef Level level_of(object kind, ContextState root, str what, bint logged=False):
    cdef Level made = kind.__new__(kind)
    made.root = root
    made.what = what
    made.logged = logged
    return made


# The level that push() began.
cdef Level pushed(context owner, str what):
    owner.require_usable()
    if not owner.state.levels or type(owner.state.levels[-1]) is not Pushed:
        raise TaskStateError(f"{what} ends what push() began, which is not the innermost scope here")
    return owner.state.levels[-1]


cdef int require_root(ContextState root, str what) except -1:
    if root.inner is not None:
        raise NotSupported(f"{what} belongs at the root of the context, outside of other scopes")
    return 0


cdef class stackable_context(context):
    def __cinit__(self, *args, handle=None, **others):
        self.state.stackable = True
        if args or others:
            self.abandoned.detach()  # nothing was done with it

    def __init__(self, *, handle=None):
        pass

    def graph_scope(self):
        self.require_usable()
        return level_of(graph_scope, self.state, "graph_scope()")

    def while_loop(self):
        cdef Loop made
        self.require_usable()
        made = level_of(while_loop, self.state, "while_loop()")
        made.kind = ScopeKind.while_loop
        return made

    def repeat(self, count):
        cdef Loop made
        self.require_usable()
        rounds = operator.index(count)
        if not 0 <= rounds < 1 << 63:
            raise ValueError(f"repeat() takes a number of rounds, 0 or more: got {count}")
        made = level_of(repeat, self.state, "repeat()")
        made.kind = ScopeKind.repeat
        made.count = rounds
        return made

    def launchable_graph_scope(self):
        cdef launchable_graph_scope made
        self.require_usable()
        made = launchable_graph_scope.__new__(launchable_graph_scope)
        made.root = self.state
        return made

    def push(self):
        cdef Level made
        self.require_usable()
        made = level_of(Pushed, self.state, "push()", True)
        made.begin()

    def pop(self):
        pushed(self, "pop()").end(True)

    def discard(self):
        pushed(self, "discard()").end(False)

    def pop_prologue_shared(self):
        cdef Level level = pushed(self, "pop_prologue_shared()")
        if level.made is None:
            raise NotSupported("a graph that is launched many times is recorded at the root: pop() this scope, and push() "
                               "outside of all others")
        end_prologue(self.state, level)
        return graph_of(level)

    def __exit__(self, kind, error, trace):
        cdef Recorded one
        if kind is not None and not self.closed:
            if self.state.levels:
                (<Level>self.state.levels[0]).end(False)
            for one in self.state.scopes:
                one.left = True
        return context.__exit__(self, kind, error, trace)

    def finalize(self):
        cdef Recorded one
        if self.closed:
            context.finalize(self)
            return
        if self.state.levels:
            raise TaskStateError(f"finalize() belongs at the root: {(<Level>self.state.levels[-1]).what} is still open")
        let_go_of_released(self.state)
        for one in self.state.scopes:
            if not one.left:
                raise TaskStateError("finalize() comes after the graphs: reset() those that were recorded with "
                                     "pop_prologue_shared()")
        finish_scopes(self.state)
        context.finalize(self)


cdef LaunchableGraph graph_of(Level level):
    cdef LaunchableGraph made = LaunchableGraph.__new__(LaunchableGraph)
    made.made = level.made
    made.root = level.root
    return made


def start_task_graph():
    cdef context made = stackable_context()
    made.state.scopes_only = True
    return made


def begin_task_graph(context owner not None):
    cdef Level level = level_of(Level, owner.state, "the recording of the task graph", True)
    level.begin()
    return level


def end_task_graph(Level level not None, bint whole):
    if not whole or level.root.levels[-1] is not level:
        level.end(False)
        if whole:
            raise TaskStateError("a scope is still open inside the task graph: what was recorded was discarded")
        return None
    end_prologue(level.root, level)
    return graph_of(level)
