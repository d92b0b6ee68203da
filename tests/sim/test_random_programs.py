"""Random programs on the Python face agree with NumPy, in program order and in any other legal order."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stf_places as stf

HOST = stf.exec_place.host()
MACHINES = ("sim:h200x1", "sim:h200x2", "sim:nopeer2", "sim:h200x4")
CALLERS_ERROR = "ordered by the program"


class Expected:
    """One data as the program means it: its value, and whether a failed body spoiled it."""

    def __init__(self, value, written):
        self.value = value
        self.written = written
        self.poisoned = False

    @property
    def readable(self):
        return self.written and not self.poisoned


def compute(arrays, modes, constant):
    """Do what a body does; the order of bodies shows in the result."""
    for out, mode in zip(arrays, modes, strict=True):
        if mode == "read":
            continue
        mixed = out * 31 if mode == "rw" else np.zeros_like(out)
        for other, other_mode in zip(arrays, modes, strict=True):
            if other is not out and other_mode != "write" and other.size and out.size:
                mixed = mixed * 7 + np.resize(other, out.shape)
        out[...] = mixed + np.uint32(constant) + np.arange(out.size, dtype="u4")


class Program:
    """Draw steps and do each of them twice: with stf_places and on plain arrays."""

    def __init__(self, draw, ctx, devices):
        self.draw = draw
        self.ctx = ctx
        self.devices = devices
        self.data = []
        self.expected = []
        self.sources = []
        self.raised = 0
        for _ in range(draw(st.integers(1, 5))):
            self.make()

    def make(self):
        kind = self.draw(st.sampled_from(["source", "empty", "full"]))
        size = self.draw(st.integers(0, 9))
        value = np.arange(1, size + 1, dtype="u4") * 1000
        source = None
        if kind == "source":
            source = value.copy()
            data = self.ctx.logical_data(source)
        elif kind == "empty":
            data = self.ctx.logical_data_empty(size, "u4")
        else:
            value[:] = 7
            where = self.draw(st.sampled_from([None, *self.devices]))
            data = self.ctx.logical_data_full(size, 7, "u4", exec_place=where)
        self.data.append(data)
        self.sources.append(source)
        # Without elements there is nothing to write first.
        self.expected.append(Expected(value, kind != "empty" or size == 0))

    def places(self):
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            return HOST, None
        if kind == 1:
            some = self.draw(st.lists(st.sampled_from(self.devices), min_size=1, max_size=3))
            return stf.exec_place_grid.create(some), stf.data_place.managed()
        if kind == 2:
            return None, None
        return self.draw(st.sampled_from(self.devices)), None

    def choose(self):
        alive = [i for i, data in enumerate(self.data) if data is not None]
        chosen = self.draw(st.lists(st.sampled_from(alive), max_size=3, unique=True)) if alive else []
        modes = [
            self.draw(st.sampled_from(["read", "write", "rw"])) if self.expected[i].readable else "write"
            for i in chosen
        ]
        return chosen, modes

    def done(self, chosen, modes, constant, poisoned=False):
        if not poisoned:
            compute([self.expected[i].value for i in chosen], modes, constant)
        for i, mode in zip(chosen, modes, strict=True):
            if mode != "read":
                self.expected[i].written = True
                self.expected[i].poisoned = poisoned

    def task(self):
        chosen, modes = self.choose()
        exec_place, dplace = self.places()
        constant = self.draw(st.integers(0, 999))
        deps = [getattr(self.data[i], mode)(dplace) for i, mode in zip(chosen, modes, strict=True)]
        how = self.draw(st.sampled_from(["body", "run", "raises"]))
        places = [] if exec_place is None else [exec_place]
        if how == "raises":
            with pytest.raises(ZeroDivisionError, match=CALLERS_ERROR), self.ctx.task(*places, *deps):
                raise ZeroDivisionError(CALLERS_ERROR)
        else:
            with self.ctx.task(*places, *deps) as t:
                arrays = [t.numpy(i) for i in range(len(chosen))]
                if how == "run":
                    t.run(compute, arrays, modes, constant)
                else:
                    compute(arrays, modes, constant)
        self.done(chosen, modes, constant, poisoned=how == "raises")

    def host_launch(self):
        chosen, modes = self.choose()
        constant = self.draw(st.integers(0, 999))
        deps = [getattr(self.data[i], mode)() for i, mode in zip(chosen, modes, strict=True)]
        fails = self.draw(st.integers(0, 9)) == 0
        self.raised += fails

        def work(*arrays):
            compute(arrays, modes, constant)
            if fails:
                raise ZeroDivisionError(CALLERS_ERROR)

        self.ctx.host_launch(*deps, fn=work)
        self.done(chosen, modes, constant)

    def wait(self):
        i = self.draw(st.integers(0, len(self.data) - 1))
        if self.data[i] is None:
            return
        if not self.expected[i].readable:
            with pytest.raises((stf.PoisonedData, stf.TaskStateError)):
                self.clear_errors(lambda: self.ctx.wait(self.data[i]))
            return
        value = self.clear_errors(lambda: self.ctx.wait(self.data[i]))
        assert np.array_equal(value, self.expected[i].value)

    def clear_errors(self, call):
        """Do `call` until it raises no exception of a host function any more, and return what it returns."""
        for _ in range(self.raised + 1):
            try:
                return call()
            except ZeroDivisionError as error:
                assert str(error) == CALLERS_ERROR
        raise AssertionError("more exceptions than functions that raised")

    def drop(self):
        self.data[self.draw(st.integers(0, len(self.data) - 1))] = None

    def run(self):
        steps = [self.task, self.task, self.task, self.host_launch, self.wait, self.drop, self.make]
        for _ in range(self.draw(st.integers(1, 14))):
            self.draw(st.sampled_from(steps))()

    def check(self):
        for source, expected in zip(self.sources, self.expected, strict=True):
            if source is not None and not expected.poisoned:
                assert np.array_equal(source, expected.value)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_programs_agree_with_numpy(data):
    spec = data.draw(st.sampled_from(MACHINES))
    chaos = data.draw(st.none() | st.integers(0, 1 << 32))
    with stf.use_machine(spec, chaos=chaos) as machine:
        devices = [stf.exec_place.device(i) for i in range(machine.device_count)]
        ctx = stf.context()
        try:
            program = Program(data.draw, ctx, devices)
            program.run()
            program.clear_errors(ctx.finalize)
            program.clear_errors(ctx.check_errors)
        finally:
            if not ctx.closed:
                ctx.finalize()
        program.check()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=25), st.integers(0, 1 << 32)
)
def test_tokens_order_what_the_library_cannot_see(steps, seed):
    seen = []
    with stf.use_machine("sim:h200x2", chaos=seed), stf.context() as ctx:
        token = ctx.token()
        for number, (writes, where) in enumerate(steps):
            dep = token.rw() if writes else token.read()
            if where == 2:
                ctx.host_launch(dep, fn=seen.append, args=(number,))
                continue
            with ctx.task(stf.exec_place.device(where), dep) as t:
                t.run(seen.append, number)
    writers = [number for number, (writes, _) in enumerate(steps) if writes]
    assert sorted(seen) == list(range(len(steps)))
    position = {number: at for at, number in enumerate(seen)}
    for writer in writers:
        for other in set(position) - {writer}:
            assert (position[other] < position[writer]) == (other < writer)
