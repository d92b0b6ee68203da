"""Loops in scopes: how often they go round, whoever drives them, and what they may stand beside."""

import numpy as np
import pytest
from scope_work import Failed, on, prepared, recorded, task_edges

import stf_places as stf
from stf_places import data_place, exec_place
from stf_places._native import runtime as runtimes
from stf_places._native.drivers import sim_driver
from stf_places.machines import Machine, specs

HOST = exec_place.host()


class Root:
    """Stand for no scope at all."""

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


class Graph:
    """Record once what is inside, and launch it as often as it takes."""

    def __init__(self, ctx, launches=1):
        self.ctx, self.launches = ctx, launches

    def __enter__(self):
        self.ctx.push()

    def __exit__(self, kind, error, trace):
        graph = self.ctx.pop_prologue_shared()
        for _ in range(self.launches):
            graph.launch()
        graph.reset()


AROUND = {
    "root": lambda ctx: Root(),
    "graph_scope": lambda ctx: ctx.graph_scope(),
    "repeat": lambda ctx: ctx.repeat(1),
    "recorded": Graph,
}
each_around = pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)


def drive(ctx, work, how, data):
    """Add to the body of a loop what decides who drives it, and return the reason."""
    if how == "second device":
        if work.devices < 2:
            pytest.skip("needs two devices")
        work.add(ctx, on(1), data)
        return "place|copies between devices" if work.kernels else "host"
    if how == "callback":
        ctx.host_launch(data.rw(), fn=lambda array: array.__iadd__(1))
        return "host"
    work.add(ctx, on(0), data)
    return None if work.kernels else "host"


DRIVERS = ("device", "second device", "callback")
each_driver = pytest.mark.parametrize("how", DRIVERS)


def check_driver(loop, reason):
    assert loop.on_device == (reason is None) == (loop.host_reason is None)
    if reason is not None:
        assert any(part in loop.host_reason for part in reason.split("|"))


# ---- Conditions ------------------------------------------------------------------------------------------

COMPARED = {"<": (1, 5), "<=": (1, 6), ">": (-1, 5), ">=": (-1, 6)}  # step, rounds


@pytest.mark.parametrize("op", COMPARED)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("form", ["arguments", "operator", "cond"])
@pytest.mark.parametrize("offset", [0, 1 << 20])
def test_each_comparison_of_each_type(ctx, work, op, dtype, form, offset):
    step, rounds = COMPARED[op]
    x, n = ctx.logical_data_full(1, offset, dtype), ctx.logical_data_zeros(1, "i4")
    threshold = offset + 5 * step
    with ctx.while_loop() as loop:
        work.add(ctx, on(0), x, step)
        work.add(ctx, on(0), n)
        if form == "arguments":
            loop.continue_while(x, op, threshold)
        elif form == "cond":
            loop.continue_while(stf.cond(x, op, threshold))
        else:
            compare = {"<": x.__lt__, "<=": x.__le__, ">": x.__gt__, ">=": x.__ge__}[op]
            loop.continue_while(compare(threshold))
    assert (ctx.wait(n)[0], ctx.wait(x)[0]) == (rounds, offset + step * rounds)
    assert loop.on_device == work.kernels


EXPRESSIONS = {
    "and": lambda x, y: (x < 5) & (y > -4),
    "or": lambda x, y: (x < 5) | (y > -20),
    "not": lambda x, y: ~(x >= 4),
    "not and": lambda x, y: ~((x >= 4) & (y < 100)),
    "not or": lambda x, y: ~((x >= 3) | (y < -9)),
    "not not": lambda x, y: ~~(x < 3),
    "not of one of two": lambda x, y: (x < 30) & ~(y <= -9),
    "three": lambda x, y: (x < 30) & (y > -30) & (x <= 2),
    "five or": lambda x, y: (x < 1) | (y > -1) | (x < 3) | (y > 5) | (x <= 6),
    "eight and": lambda x, y: (
        (x < 30) & (x < 29) & (x <= 28) & (y > -28) & (y >= -27) & (y > -26) & (x >= 0) & (x < 7)
    ),
    "eight or": lambda x, y: (
        (x < 0) | (x > 30) | (x < 1) | (y > 0) | (y < -90) | (y > 4) | (x > 50) | ~(x >= 8)
    ),
    "never": lambda x, y: (x < 0) & (y < 100),
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
@each_driver
def test_expressions_go_round_as_often_as_in_numpy(ctx, work, expression, how):
    a, b, c = np.zeros(1), np.zeros(1, "i8"), 0
    while c == 0 or bool(expression(a, b)[0]):
        a, b, c = a + 1, b - 2, c + 1
    x, y, z = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1, "i8"), ctx.logical_data_zeros(1, "i4")
    with ctx.while_loop() as loop:
        work.add(ctx, on(0), x)
        work.add(ctx, on(0), y, -2)
        reason = drive(ctx, work, how, z)
        loop.continue_while(expression(x, y))
    assert (ctx.wait(x)[0], ctx.wait(y)[0], ctx.wait(z)[0]) == (a[0], b[0], c)
    check_driver(loop, reason)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", COMPARED)
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("how", ["device", "callback"])
def test_nothing_compares_with_nan(ctx, work, dtype, op, negated, how):
    x, n = ctx.logical_data_full(1, np.nan, dtype), ctx.logical_data_zeros(1, "i4")
    with ctx.while_loop() as loop:
        reason = drive(ctx, work, how, n)
        term = stf.cond(x, op, 1)
        loop.continue_while((~term if negated else term) & (n < 4))
    assert ctx.wait(n)[0] == (4 if negated else 1)
    check_driver(loop, reason)


@pytest.mark.parametrize("where", ["device", "host", "other device", "empty scope", "scalar", "matrix"])
def test_conditions_on_data_that_the_body_does_not_touch(ctx, work, where):
    shape = {"scalar": (), "matrix": (1, 1, 1)}.get(where, 1)
    flag, x = ctx.logical_data_full(shape, 1, "i4"), ctx.logical_data_zeros(1)
    if where == "host":
        with ctx.task(HOST, flag.rw()):
            pass
    elif where == "other device":
        work.add(ctx, on(work.devices - 1), flag, 1)
    for turn in range(3):
        with ctx.while_loop() as loop:
            work.add(ctx, on(0), x)
            loop.continue_while((x < 4) & (flag > 0))
        assert ctx.wait(x)[0] == 4 + turn
        if turn == 0:
            work.put(ctx, on(0), x, 0)
            work.put(ctx, on(0), flag, 1)
        work.put(ctx, on(0), x, 4 + turn)
        work.put(ctx, on(0), flag, 0)
    assert loop.on_device == work.kernels


def test_a_value_that_only_the_host_has_is_asked_there(ctx, work):
    x, seen = ctx.logical_data_zeros(1, "i4"), []
    with ctx.while_loop() as loop:
        ctx.host_launch(x.rw(), fn=lambda array: (array.__iadd__(2), seen.append(int(array[0]))))
        loop.continue_while(x < 7)
    assert not loop.on_device and "host" in loop.host_reason
    assert ctx.wait(x)[0] == 8 and seen == [2, 4, 6, 8]


# ---- Where they stand ------------------------------------------------------------------------------------


@each_around
@pytest.mark.parametrize("count", [0, 1, 2, 17])
@each_driver
def test_repeat_goes_round_so_often(ctx, work, around, count, how):
    x, n = ctx.logical_data_full(4, 1, "i8"), ctx.logical_data_zeros(1, "i4")
    with around(ctx):
        work.add(ctx, on(0), x)
        with ctx.repeat(count) as loop:
            work.scale(ctx, on(0), x, 3, 1)
            reason = drive(ctx, work, how, n)
        work.add(ctx, on(0), x)
    expected = 2
    for _ in range(count):
        expected = expected * 3 + 1
    assert (ctx.wait(x) == expected + 1).all() and ctx.wait(n)[0] == count
    if count:
        check_driver(loop, reason)


@each_around
@each_driver
def test_a_while_loop_stands_anywhere(ctx, work, around, how):
    x, y, n = ctx.logical_data_ones(4), ctx.logical_data_zeros(4), ctx.logical_data_zeros(1, "i4")
    with around(ctx):
        work.add(ctx, on(0), x)
        with ctx.while_loop() as loop:
            work.mix(ctx, on(0), y, x)
            reason = drive(ctx, work, how, n)
            loop.continue_while(n < 5)
        work.mix(ctx, on(0), x, y, 10)
    assert (ctx.wait(y) == 10).all() and (ctx.wait(x) == 102).all()
    check_driver(loop, reason)
    work.add(ctx, on(work.devices - 1), y)
    assert (ctx.wait(y) == 11).all()


@each_driver
def test_each_launch_goes_round_anew(ctx, work, how):
    x, n, total = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1, "i4"), ctx.logical_data_zeros(1)

    def record():
        work.put(ctx, on(0), n, 0)
        with ctx.while_loop() as loop:
            drive(ctx, work, how, n)
            work.add(ctx, on(0), x)
            with ctx.repeat(2):
                work.add(ctx, on(0), total)
            loop.continue_while(n < 3)
        with ctx.repeat(4):
            work.add(ctx, on(0), x, 10)

    graph = recorded(ctx, record)
    for launch in range(1, 5):
        graph.launch()
        if launch % 2:
            assert ctx.wait(x)[0] == 43 * launch and ctx.wait(total)[0] == 6 * launch
    graph.reset()
    assert ctx.wait(x)[0] == 43 * 4 and ctx.wait(n)[0] == 3


NESTS = {
    "repeat, repeat": (2, 3),
    "repeat, repeat, repeat": (2, 3, 4),
    "four": (2, 1, 3, 2),
    "while, repeat": ("while", 3),
    "repeat, while": (3, "while"),
    "while, while": ("while", "while"),
    "while, repeat, while": ("while", 2, "while"),
    "repeat 0 within": (3, 0),
    "repeat 0 around": (0, 3),
}


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
@each_driver
def test_loops_nest(ctx, work, nest, how):
    """A while loop goes round 3 times, counted in data of its own that its parent puts to 0."""
    x, n = ctx.logical_data_zeros(4), ctx.logical_data_zeros(1, "i4")
    counters = [ctx.logical_data_zeros(1, "i8") for _ in nest]
    loops, reason = [], []

    def descend(depth):
        work.add(ctx, on(0), x, 10**depth)
        if depth == len(nest):
            reason.append(drive(ctx, work, how, n))
            return
        if nest[depth] == "while":
            work.put(ctx, on(0), counters[depth], 0)
            with ctx.while_loop() as loop:
                descend(depth + 1)
                work.add(ctx, on(0), counters[depth])
                loop.continue_while(counters[depth] < 3)
        else:
            with ctx.repeat(nest[depth]) as loop:
                descend(depth + 1)
        loops.append(loop)

    def expected(depth):
        rounds = {"while": 3}.get(nest[depth], nest[depth]) if depth < len(nest) else 0
        return 10**depth + (rounds * expected(depth + 1) if rounds else 0)

    with ctx.graph_scope():
        descend(0)
    assert (ctx.wait(x) == expected(0)).all()
    assert ctx.wait(n)[0] == np.prod([3 if one == "while" else one for one in nest])
    if 0 not in nest:
        for loop in loops:
            check_driver(loop, None if reason == [None] else "host|place|copies between devices")


@each_driver
def test_a_branch_beside_a_loop_joins_later(ctx, work, how):
    x, y, z, n = (ctx.logical_data_full(4, 1.0, exec_place=on(0)) for _ in range(4))
    small = ctx.logical_data_zeros(1, "i4")

    def record():
        work.add(ctx, on(0), z, symbol="beside 1")
        with ctx.while_loop() as loop:
            work.add(ctx, on(0), x)
            reason = drive(ctx, work, how, small)
            loop.continue_while(small < 3)
        work.scale(ctx, on(0), z, 2, 0, symbol="beside 2")
        with ctx.repeat(2) as other:
            work.add(ctx, on(0), y)
        work.mix(ctx, on(0), n, z, symbol="beside 3")
        work.mix(ctx, on(0), z, x, symbol="join 1")
        work.mix(ctx, on(0), z, y, symbol="join 2")
        check_driver(loop, reason)
        return other.on_device and reason is None

    ctx.push()
    one_graph = record()
    graph = ctx.pop_prologue_shared()
    if one_graph:
        _, edges = task_edges(graph)  # a loop has no label
        assert {("beside 1", "beside 2"), ("beside 2", "beside 3"), ("", "join 1"), ("", "join 2")} <= edges
        assert not {(a, b) for a, b in edges if (a == "" and b[:4] != "join") or b == ""}
    graph.launch()
    assert [ctx.wait(one)[0] for one in (x, y, z, n)] == [4, 3, 4 + 4 + 3, 5]
    graph.reset()


@each_around
def test_a_loop_within_one_partition_runs_on_the_device(ctx, work, around):
    if not work.kernels:
        pytest.skip("needs kernels")
    place, x, y = stf.green_places(16, 2)[1], ctx.logical_data_zeros(4), ctx.logical_data_zeros(1, "i4")
    with around(ctx):
        with ctx.repeat(3) as outer:
            work.add(ctx, place, x)
            work.put(ctx, place, y, 0)
            with ctx.while_loop() as inner:
                work.add(ctx, place, x)
                work.add(ctx, place, y)
                inner.continue_while(y < 4)
    assert (ctx.wait(x) == 15).all()
    assert outer.on_device and inner.on_device


def test_a_loop_over_partitions_is_driven_by_the_host(ctx, work):
    if not work.kernels:
        pytest.skip("needs kernels")
    places, x = stf.green_places(16, 2), ctx.logical_data_zeros(4)
    with ctx.repeat(3) as loop:
        for place in places:
            work.add(ctx, place, x)
    assert (ctx.wait(x) == 6).all()
    check_driver(loop, "2 places")


def test_data_read_in_each_round_on_another_device(ctx, work):
    x, y = ctx.logical_data_full(4, 2.0), ctx.logical_data_zeros(4)
    work.add(ctx, on(0), x)
    with ctx.repeat(5) as loop:
        x.push(stf.AccessMode.READ, data_place.device(work.devices - 1))
        work.mix(ctx, on(work.devices - 1), y, x)
    assert (ctx.wait(y) == 15).all()
    assert loop.on_device == work.kernels


def test_data_made_in_a_body_are_made_in_each_round(ctx, work):
    total = ctx.logical_data_zeros(4)
    with ctx.repeat(3):
        own = ctx.logical_data_full(4, 5.0)
        work.add(ctx, on(0), own)
        scratch = ctx.logical_data_empty(4, no_export=True)
        work.put(ctx, on(0), scratch, 1)
        work.mix(ctx, on(0), scratch, own)
        work.mix(ctx, on(0), total, scratch)
        work.scale(ctx, on(0), own, 100, 0)
    assert (ctx.wait(total) == 21).all() and (ctx.wait(own) == 600).all()


def test_many_data_in_a_loop(ctx, work):
    data = [ctx.logical_data_full(4, float(k)) for k in range(40)]
    with ctx.repeat(3) as loop:
        for k in range(1, 40):
            work.mix(ctx, on(0), data[k], data[k - 1])
    values = [float(k) for k in range(40)]
    for _ in range(3):
        for k in range(1, 40):
            values[k] += values[k - 1]
    assert [ctx.wait(one)[-1] for one in data] == values
    assert loop.on_device == work.kernels


@pytest.mark.parametrize("op", ["sum", "max"])
@each_around
def test_a_reduction_decides(ctx, work, op, around):
    if not work.kernels:
        pytest.skip("needs kernels")
    x, n = ctx.logical_data_full(100, 64.0), ctx.logical_data_zeros(1, "i4")
    with around(ctx):
        with ctx.while_loop() as loop:
            work.scale(ctx, on(0), x, 0.5, 0)
            work.add(ctx, on(0), n)
            found = stf.reduce(ctx, x, op, on(0))
            loop.continue_while(found > 6)
    rounds = {"sum": 11, "max": 4}[op]
    assert ctx.wait(n)[0] == rounds and (ctx.wait(x) == 64 / 2**rounds).all()
    assert loop.on_device


# ---- Failures --------------------------------------------------------------------------------------------


def test_a_callback_that_raises_is_told_once_a_round(ctx, work):
    x = ctx.logical_data_zeros(1, "i4")

    def bad(array):
        array += 1
        raise Failed

    with ctx.while_loop() as loop:
        ctx.host_launch(x.rw(), fn=bad)
        loop.continue_while(x < 3)
    for _ in range(3):
        with pytest.raises(Failed):
            ctx.wait(x)
    assert ctx.wait(x)[0] == 3


def test_a_failed_task_in_a_body_poisons_what_it_was_to_write(ctx, work):
    x, y = ctx.logical_data(np.ones(4), name="u"), ctx.logical_data_zeros(4)
    with ctx.repeat(2):
        with pytest.raises(Failed), ctx.task(on(0), x.rw(), symbol="bad"):
            raise Failed
        work.add(ctx, on(0), y)
    with pytest.raises(stf.PoisonedData, match="'u' has no usable value, because task 'bad' failed"):
        ctx.wait(x)
    assert (ctx.wait(y) == 2).all()


@pytest.mark.parametrize("version", [12030, 12040])
def test_before_cuda_12_4_the_host_drives(version):
    old = {**specs.load("tiny").to_dict(), "driver_version": version}
    with Machine(runtimes.make_runtime(sim_driver(old)), runtimes.current_or_none()) as machine:
        with prepared(machine) as work, stf.stackable_context() as ctx:
            x, n = ctx.logical_data_zeros(4), ctx.logical_data_zeros(1, "i4")
            with ctx.while_loop() as loop:
                with ctx.repeat(2) as inner:
                    work.add(ctx, on(0), x)
                work.add(ctx, on(0), n)
                loop.continue_while(n < 3)
            assert (ctx.wait(x) == 6).all()
            assert loop.on_device == inner.on_device == (version == 12040)
            assert inner.host_reason is None or "12.3" in inner.host_reason


def test_without_a_compiler_the_host_drives(work, monkeypatch):
    if work.simulated:
        pytest.skip("a simulated machine compiles nothing")

    def missing(driver, device):
        raise ImportError("no compiler here")

    monkeypatch.setattr("stf_places.flow.condition_kernels.condition_kernel", missing)
    with stf.stackable_context() as ctx:
        x = ctx.logical_data_zeros(4)
        with ctx.repeat(3) as loop:
            with ctx.task(on(0), x.rw()):
                pass
            work.add(ctx, on(0), x)
        assert (ctx.wait(x) == 3).all() and not loop.on_device
        assert loop.host_reason == "no compiler here" or not work.kernels
