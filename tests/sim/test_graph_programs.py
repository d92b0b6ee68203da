"""Random programs: on streams, in graphs and in NumPy they give the same values."""

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stf_places as stf
from stf_places import blocked, data_place, exec_place, exec_place_grid, partition

HOST = exec_place.host()
LINE = partition(blocked("x"))
LENGTH = 1500  # three pages of the machine `tiny`


def on(device):
    return exec_place.device(device)


def pair():
    return exec_place_grid.from_devices([0, 1])


def change(number, modes, *arrays):
    """Do what a body does: what is written shows the number of the body and all that it reads."""
    total = np.uint64(number)
    for mode, array in zip(modes, arrays, strict=True):
        if mode == "read":
            total = total + array.sum(dtype="u8")
    for mode, array in zip(modes, arrays, strict=True):
        if mode != "read":
            array[:] = (array * np.uint64(3) if mode == "rw" else np.arange(array.size, dtype="u8")) + total


def change_part(number, mode, array, start):
    """Do what the body of one place does to its part."""
    first = start + np.arange(array.size, dtype="u8")
    array[:] = (array * np.uint64(5) if mode == "rw" else first) + np.uint64(number)


COUNT = 4
PLACES = ("device 0", "device 1", "green 0", "green 1", "grid", "composite", "peer", "host")
each_mode = st.sampled_from(["read", "rw", "write"])
each_access = st.lists(
    st.tuples(st.integers(0, COUNT - 1), each_mode),
    min_size=1,
    max_size=3,
    unique_by=lambda access: access[0],
)
each_step = st.one_of(
    st.tuples(st.just("task"), st.sampled_from(PLACES), each_access),
    st.tuples(st.just("task"), st.sampled_from(PLACES), each_access),
    st.tuples(st.just("shards"), st.integers(0, COUNT - 1), st.sampled_from(["rw", "write"])),
    st.tuples(st.just("launch"), each_access),
    st.tuples(
        st.just("fill"), st.integers(0, COUNT - 1), st.sampled_from(["none", "device", "host", "composite"])
    ),
    st.tuples(st.just("wait"), st.integers(0, COUNT - 1)),
    st.tuples(st.just("fence")),
)


class Flow:
    """Do the steps of a program in a context; `seen` is what waits have returned, `sources` what is left."""

    def __init__(self, ctx, green):
        self.ctx, self.seen = ctx, []
        self.sources = [np.arange(LENGTH, dtype="u8") + k for k in range(COUNT)]
        self.data = [ctx.logical_data(source, name=f"d{k}") for k, source in enumerate(self.sources)]
        composite = data_place.composite(pair(), LINE)
        self.places = {
            "device 0": (on(0), None),
            "device 1": (on(1), None),
            "green 0": (green[0], None),
            "green 1": (green[1], None),
            "grid": (pair(), data_place.device(0)),
            "composite": (pair().with_data(LINE), None),
            "peer": (on(1), composite),
            "host": (HOST, None),
        }

    def task(self, number, place, accesses):
        place, at = self.places[place]
        modes = tuple(mode for _, mode in accesses)
        deps = [getattr(self.data[k], mode)(at) for k, mode in accesses]
        with self.ctx.task(place, *deps, symbol=f"step {number}") as t:
            if place == HOST:
                change(number, modes, *(t.numpy(k) for k in range(len(modes))))
            else:
                t.run(change, number, modes, *(t.get_arg_cai(k) for k in range(len(modes))))

    def shards(self, number, k, mode):
        with self.ctx.task(pair().with_data(LINE), getattr(self.data[k], mode)()) as t:
            for shard in t.shards(0):
                shard.run(change_part, number, mode, shard.view, shard.start[0])

    def launch(self, number, accesses):
        modes = tuple(mode for _, mode in accesses)
        deps = [getattr(self.data[k], mode)() for k, mode in accesses]
        self.ctx.host_launch(*deps, fn=lambda *arrays: change(number, modes, *arrays))

    def fill(self, number, k, how):
        where = {
            "none": None,
            "device": data_place.device(1),
            "host": data_place.host(),
            "composite": data_place.composite(pair(), LINE),
        }[how]
        self.data[k] = self.ctx.logical_data_full(LENGTH, number, "u8", where=where)  # drops what was there

    def wait(self, _number, k):
        self.seen.append(self.ctx.wait(self.data[k]))

    def fence(self, _number):
        assert self.ctx.fence() != 0


class Plain(Flow):
    """Do the same on arrays."""

    def __init__(self):
        self.seen = []
        self.sources = [np.arange(LENGTH, dtype="u8") + k for k in range(COUNT)]
        self.data = list(self.sources)

    def task(self, number, _place, accesses):
        change(number, [mode for _, mode in accesses], *(self.data[k] for k, _ in accesses))

    def launch(self, number, accesses):
        self.task(number, None, accesses)

    def shards(self, number, k, mode):
        change_part(number, mode, self.data[k], 0)

    def fill(self, number, k, _how):
        self.data[k] = np.full(LENGTH, number, "u8")

    def wait(self, _number, k):
        self.seen.append(self.data[k].copy())

    def fence(self, _number):
        pass


def do(flow, program):
    for number, (kind, *rest) in enumerate(program):
        getattr(flow, kind)(number, *rest)
    for k in range(COUNT):
        flow.wait(len(program), k)
    return flow


def outcome(flow):
    return [array.tolist() for array in (*flow.seen, *flow.sources)]


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(st.lists(each_step, max_size=14), st.one_of(st.none(), st.integers(0, 99)))
def test_programs_give_the_same_on_streams_in_graphs_and_in_numpy(program, seed):
    expected = outcome(do(Plain(), program))
    for use_graph in (False, True):
        with stf.use_machine("sim:tiny", chaos=seed) as machine:
            green = stf.green_places(4, 2)
            with stf.context(use_graph=use_graph) as ctx:
                flow = do(Flow(ctx, green), program)
            assert machine.conflicts == ()
        assert outcome(flow) == expected, f"use_graph={use_graph}"


@pytest.mark.parametrize("seed", range(20))
def test_flows_without_kernels_agree_with_numpy(machine, seed):
    random = np.random.default_rng(seed)
    sources = [np.arange(1000, dtype="u8") + k for k in range(5)]
    values = [source.copy() for source in sources]
    with stf.context(use_graph=True) as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for number in range(50):
            to, source = map(int, random.choice(5, 2, replace=False))
            kind = random.integers(8)
            accesses, modes = (data[to].rw(), data[source].read()), ("rw", "read")
            if kind < 4:
                with ctx.task(on(int(random.integers(machine.device_count))), *accesses) as t:
                    assert t.get_arg(0) != t.get_arg(1)
                continue
            if kind == 4:
                assert np.array_equal(ctx.wait(data[to]), values[to])
                continue
            change(number, modes, values[to], values[source])
            if kind == 5:
                with ctx.task(HOST, *accesses) as t:
                    change(number, modes, t.numpy(0), t.numpy(1))
            else:
                ctx.host_launch(*accesses, fn=functools.partial(change, number, modes))
    for source, value in zip(sources, values, strict=True):
        assert np.array_equal(source, value)
