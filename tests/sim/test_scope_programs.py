"""Random programs: nested scopes, loops and relaunches give what streams, graphs and NumPy give."""

import contextlib

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scope_work import Failed, mix, on, prepared, scale

import stf_places as stf
from stf_places import AccessMode

COUNT, LENGTH = 4, 48
PLACES = ("device 0", "device 1", "green 0", "green 1")
each_place = st.sampled_from(PLACES)
each_data = st.integers(0, COUNT - 1)
each_pair = st.permutations(range(COUNT)).map(lambda order: tuple(order[:2]))
each_leaf = st.one_of(
    st.tuples(st.just("scale"), each_place, each_data, st.sampled_from([-1, 0, 1]), st.integers(-3, 3)),
    st.tuples(st.just("mix"), each_place, each_pair, st.sampled_from([-1, 1])),
    st.tuples(st.just("mix"), each_place, each_pair, st.sampled_from([-1, 1])),
    st.tuples(st.just("call"), each_pair),
    st.tuples(st.just("scratch"), each_place, each_place, each_pair),
    st.tuples(st.just("readers"), st.integers(1, 2), st.permutations(range(COUNT))),
)
each_step = st.recursive(
    each_leaf,
    lambda inner: st.tuples(
        st.sampled_from(["scope", "repeat", "while", "while", "abort"]),
        st.integers(0, 3),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
each_root_step = st.one_of(
    each_step,
    each_step,
    st.tuples(st.just("replay"), st.integers(0, 3), st.lists(each_step, max_size=4), each_step),
    st.tuples(st.just("wait"), each_data),
)
each_program = st.lists(each_root_step, max_size=8)


class Plain:
    """Do the steps of a program on arrays; `seen` is what waits have returned, `sources` what is left."""

    def __init__(self):
        self.seen, self.depth = [], 0
        self.sources = [np.arange(LENGTH, dtype="f8") + k for k in range(COUNT)]
        self.data = list(self.sources)

    def do(self, steps):
        for kind, *rest in steps:
            getattr(self, "do_" + kind)(*rest)

    def do_scale(self, _place, k, times, plus):
        scale(self.data[k], times, plus)

    def do_mix(self, _place, pair, times):
        mix(self.data[pair[0]], self.data[pair[1]], times)

    def do_call(self, pair):
        self.do_mix(None, pair, 1)

    def do_scratch(self, _first, _second, pair):
        """Add (2 + the source) to the target, through memory of the scope's own."""
        self.data[pair[0]] += 2 + self.data[pair[1]]

    def do_readers(self, rounds, order):
        """Add one to two others, on both devices."""
        for _ in range(rounds):
            for k in order[1:3]:
                mix(self.data[k], self.data[order[0]], 1)

    def do_scope(self, _, steps):
        self.do(steps)

    def do_repeat(self, rounds, steps):
        for _ in range(rounds):
            self.do(steps)

    def do_while(self, rounds, steps):
        self.do_repeat(max(rounds, 1), steps)

    def do_abort(self, _, steps):
        pass

    def do_replay(self, launches, steps, between):
        for _ in range(launches):
            self.do(steps)
            self.do([between])

    def do_wait(self, k):
        self.seen.append(self.data[k].copy())


class Flow(Plain):
    """Do the same in a context without scopes."""

    def __init__(self, ctx, work, green):
        super().__init__()
        self.ctx, self.work = ctx, work
        self.data = [ctx.logical_data(source, name=f"d{k}") for k, source in enumerate(self.sources)]
        self.places = dict(zip(PLACES, (on(0), on(work.devices - 1), *green), strict=True))

    def do_scale(self, place, k, times, plus):
        self.work.scale(self.ctx, self.places[place], self.data[k], times, plus)

    def do_mix(self, place, pair, times):
        to, source = (self.data[k] for k in pair)
        self.work.mix(self.ctx, self.places[place], to, source, times)

    def do_call(self, pair):
        self.ctx.host_launch(self.data[pair[0]].rw(), self.data[pair[1]].read(), fn=mix, args=(1,))

    def do_scratch(self, first, second, pair):
        scratch = self.ctx.logical_data_empty(LENGTH, no_export=True)
        to, source = (self.data[k] for k in pair)
        self.work.put(self.ctx, self.places[first], scratch, 2)
        self.work.mix(self.ctx, self.places[first], scratch, source)
        self.work.mix(self.ctx, self.places[second], to, scratch)

    def do_readers(self, rounds, order):
        for _ in range(rounds):
            self.read_on_both(order)

    def read_on_both(self, order):
        for place, k in zip(PLACES, order[1:3], strict=False):
            self.work.mix(self.ctx, self.places[place], self.data[k], self.data[order[0]])

    def do_wait(self, k):
        self.seen.append(self.ctx.wait(self.data[k]))


class Nested(Flow):
    """Do the same with scopes, loops and relaunches."""

    @contextlib.contextmanager
    def inside(self, scope):
        with scope as made:
            self.depth += 1
            try:
                yield made
            finally:
                self.depth -= 1

    def do_readers(self, rounds, order):
        with self.inside(self.ctx.graph_scope() if rounds == 1 else self.ctx.repeat(rounds)):
            if rounds > 1 or self.depth == 1:  # a part of a scope has no data of its own
                self.data[order[0]].push(AccessMode.READ)
            self.read_on_both(order)

    def do_scope(self, _, steps):
        with self.inside(self.ctx.graph_scope()):
            self.do(steps)

    def do_repeat(self, rounds, steps):
        with self.inside(self.ctx.repeat(rounds)):
            self.do(steps)

    def do_while(self, rounds, steps):
        counter = self.ctx.logical_data_empty(1, "i4")
        self.work.put(self.ctx, on(0), counter, 0)
        with self.inside(self.ctx.while_loop()) as loop:
            self.do(steps)
            self.work.add(self.ctx, on(0), counter)
            loop.continue_while(counter < rounds)

    def do_abort(self, rounds, steps):
        scope = self.ctx.repeat(rounds) if self.depth or rounds else self.ctx.graph_scope()
        with contextlib.suppress(Failed), self.inside(scope):
            self.do(steps)
            raise Failed

    def do_replay(self, launches, steps, between):
        self.ctx.push()
        self.depth += 1
        self.do(steps)
        self.depth -= 1
        graph = self.ctx.pop_prologue_shared()
        for _ in range(launches):
            graph.launch()
            self.do([between])
        graph.reset()


def outcome(flow):
    return repr([array.tolist() for array in (*flow.seen, *flow.sources)])


def check(program, machine, sms):
    """Run a program in all ways and compare."""
    whole = [*program, *(("wait", k) for k in range(COUNT))]
    recordable = [step for step in program if step[0] not in ("replay", "wait")]
    ways = {
        "streams": (Flow, stf.context, whole),
        "graph": (Flow, lambda: stf.context(use_graph=True), whole),
        "nested": (Nested, stf.stackable_context, whole),
        "in one scope": (Nested, stf.stackable_context, [("scope", 0, recordable)]),
    }
    with np.errstate(all="ignore"), prepared(machine) as work:
        green = stf.green_places(sms, 2)
        for name, (kind, make, steps) in ways.items():
            plain = Plain()
            plain.do(steps)
            with make() as ctx:
                flow = kind(ctx, work, green)
                flow.do(steps)
            assert outcome(flow) == outcome(plain), name


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(each_program, st.one_of(st.none(), st.integers(0, 99)))
def test_programs_give_the_same_on_streams_in_graphs_in_scopes_and_in_numpy(program, seed):
    with stf.use_machine("sim:tiny", chaos=seed) as machine:
        check(program, machine, 4)


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(each_program)
def test_programs_on_each_machine(machine, program):
    check(program, machine, 16)
