"""Scopes of a stackable context: what is inside runs as one graph, in order with what is around, or not at all."""

import gc
import weakref

import numpy as np
import pytest
from scope_work import Failed, on, recorded

import stf_places as stf
from stf_places import AccessMode, blocked, data_place, exec_place, exec_place_grid, partition

HOST = exec_place.host()
LINE = partition(blocked("x"))
READ, WRITE, RW = AccessMode.READ, AccessMode.WRITE, AccessMode.RW


def pair():
    return exec_place_grid.from_devices([0, 1])


def second(work):
    """Return the second device, or the first where there is one."""
    return on(1 % work.devices)


def by_push(ctx):
    """Give a scope of push() and pop() as something for `with`."""

    class Pushed:
        def __enter__(self):
            ctx.push()

        def __exit__(self, kind, error, trace):
            ctx.pop() if kind is None else ctx.discard()

    return Pushed()


def once(ctx):
    """Give a graph that is launched once as something for `with`."""

    class Once:
        def __enter__(self):
            ctx.push()

        def __exit__(self, kind, error, trace):
            if kind is not None:
                return ctx.discard()
            graph = ctx.pop_prologue_shared()
            graph.launch()
            graph.reset()

    return Once()


SCOPES = {
    "graph_scope": lambda ctx: ctx.graph_scope(),
    "push": by_push,
    "once": once,
    "repeat": lambda ctx: ctx.repeat(1),
}
each_scope = pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
INNER = {key: SCOPES[key] for key in ("graph_scope", "push", "repeat")}
each_inner = pytest.mark.parametrize("inner", INNER.values(), ids=INNER)


# ---- When it runs ----------------------------------------------------------------------------------------


@each_scope
def test_a_scope_is_one_graph_that_runs_at_its_end(ctx, work, scope):
    seen, x = [], ctx.logical_data_zeros(4)
    with scope(ctx):
        ctx.host_launch(x.rw(), fn=lambda array: (seen.append(array[0]), array.__iadd__(1)))
        ctx.host_launch(x.rw(), fn=lambda array: (seen.append(array[0]), array.__iadd__(1)))
        assert ctx.stats.graphs_launched == 0
    assert ctx.stats.graphs_launched == (
        1 if scope is not SCOPES["repeat"] else 2
    )  # a part copies to the host
    assert (ctx.wait(x) == 2).all() and seen == [0, 1]


@each_scope
@pytest.mark.parametrize("place", [0, 1])
def test_a_scope_stands_between_the_tasks_around_it(ctx, work, scope, place):
    source = np.ones(1000)
    x, place = ctx.logical_data(source), on(place % work.devices)
    work.scale(ctx, place, x, 2, 1)  # 3
    with scope(ctx):
        work.scale(ctx, on(0), x, 3, 0)  # 9
        work.scale(ctx, on(0), x, 1, 1)  # 10
    work.scale(ctx, place, x, 10, 0)  # 100
    with ctx.task(HOST, x.rw()) as t:
        assert (t.numpy(0) == 100).all()
        t.numpy(0)[:] = 5
    with scope(ctx):
        work.scale(ctx, second(work), x, 7, 2)  # 37
    ctx.finalize()
    assert (source == 37).all()


@pytest.mark.parametrize("depth", [1, 2, 7, 30])
@each_inner
def test_scopes_nest(ctx, work, inner, depth):
    x, expected = ctx.logical_data_ones(4), 1

    def descend(left):
        work.scale(ctx, on(0), x, 1, left)
        if left:
            with inner(ctx):
                descend(left - 1)
        work.scale(ctx, on(0), x, -1, left)

    def expect(left, value):
        value += left
        if left:
            value = expect(left - 1, value)
        return left - value

    with ctx.graph_scope():
        descend(depth)
    expected = expect(depth, 1)
    assert (ctx.wait(x) == expected).all()
    if work.kernels:
        assert ctx.stats.graphs_launched == 1


def test_empty_scopes_do_nothing(ctx, work):
    x = ctx.logical_data_ones(4)
    for name, scope in SCOPES.items():
        with scope(ctx):
            pass
        with scope(ctx), ctx.graph_scope():
            pass
        assert ctx.stats.graphs_launched == 0 or name == "repeat"
    work.add(ctx, on(0), x)
    assert (ctx.wait(x) == 2).all()


def test_many_scopes_one_after_the_other(ctx, work):
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    for number in range(60):
        with ctx.graph_scope():
            work.add(ctx, on(number % work.devices), x)
            work.mix(ctx, on(0), y, x)
    assert (ctx.wait(x) == 60).all() and (ctx.wait(y) == sum(range(61))).all()
    assert ctx.stats.graphs_launched == 60 and ctx.stats.graphs_instantiated < 60


def test_contexts_with_one_handle_share_executables(work):
    handle, instantiated = stf.async_resources(), []
    for number in range(5):
        with stf.stackable_context(handle=handle) as ctx:
            x = ctx.logical_data_zeros(4)
            with ctx.graph_scope():
                work.add(ctx, on(0), x, number)
            assert (ctx.wait(x) == number).all()
        instantiated.append(ctx.stats.graphs_instantiated)
    assert instantiated[0] == 1 and sum(instantiated) < 5


# ---- Data ------------------------------------------------------------------------------------------------


@each_scope
def test_data_without_a_value_get_one_in_a_scope(ctx, work, scope):
    x, y = ctx.logical_data_empty(4), ctx.logical_data_empty(4, "i4")
    with scope(ctx):
        work.put(ctx, on(0), x, 5)
        work.put(ctx, second(work), y, 6)
    work.add(ctx, on(0), x)
    assert (ctx.wait(x) == 6).all() and (ctx.wait(y) == 6).all()


@each_scope
def test_data_made_in_a_scope_belong_to_the_context(ctx, work, scope):
    source = np.zeros(4)
    with scope(ctx):
        x, y = ctx.logical_data(source), ctx.logical_data_full(4, 3.0)
        work.mix(ctx, on(0), x, y, 2)
    work.add(ctx, on(0), y)
    assert (ctx.wait(x) == 6).all() and (ctx.wait(y) == 4).all()
    ctx.finalize()
    assert (source == 6).all()


@each_scope
@pytest.mark.parametrize("when", ["in the scope", "after it"])
def test_data_dropped_by_the_caller_live_as_long_as_they_are_used(ctx, work, scope, when):
    class Kept(np.ndarray):
        pass

    source = np.ones(1000).view(Kept)
    watch, kept = weakref.ref(source), np.asarray(source)
    with scope(ctx):
        x, y = ctx.logical_data(source), ctx.logical_data_full(1000, 2.0)
        work.mix(ctx, on(0), x, y)
        work.add(ctx, on(0), x)
        if when == "in the scope":
            del x, y, source
            gc.collect()
        others = [ctx.logical_data_full(1000, float(k)) for k in range(4)]
    if when == "after it":
        del x, y, source
        gc.collect()
    more = [ctx.logical_data_full(1000, float(k)) for k in range(4, 8)]
    assert [ctx.wait(one)[-1] for one in (*others, *more)] == list(range(8))
    del others, more
    ctx.finalize()
    assert (kept == 4).all()
    stf.context().finalize()
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("mode", [READ, WRITE, RW, 1, 2, 3])
def test_data_pushed_with_a_mode(ctx, work, mode):
    x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)
    with ctx.graph_scope():
        x.push(mode, data_place.device(0))
        x.push(mode)
        if mode == READ:
            with pytest.raises(stf.ReadOnlyError):
                work.add(ctx, on(0), x)
            for device in range(work.devices):
                work.mix(ctx, on(device), y, x)
        elif mode == WRITE:
            work.put(ctx, on(0), x, 6)
        else:
            work.add(ctx, on(0), x, 5)
    assert (ctx.wait(x) == (1 if mode == READ else 6)).all()
    assert (ctx.wait(y) == (work.devices if mode == READ else 0)).all()
    work.add(ctx, on(0), x)
    assert (ctx.wait(x) == (2 if mode == READ else 7)).all()


def test_what_is_pushed_to_be_written_needs_no_value(ctx, work):
    x = ctx.logical_data_empty(4)
    with ctx.graph_scope():
        x.push(WRITE)
        work.put(ctx, on(0), x, 3)
        work.add(ctx, on(0), x)
    assert (ctx.wait(x) == 4).all()
    y = ctx.logical_data_empty(4)
    with pytest.raises(stf.TaskStateError, match="before anything wrote it"), ctx.graph_scope():
        y.push(READ)


def test_pushed_for_reading_there_is_a_copy_on_each_device_before(ctx, work):
    if work.devices < 2 or not work.kernels:
        pytest.skip("needs two devices with kernels")
    x, y, z = (ctx.logical_data_full(4, 1.0, exec_place=on(0)) for _ in range(3))

    def record(pushed):
        if pushed:
            x.push(READ)
        work.mix(ctx, on(0), y, x)
        work.mix(ctx, on(1), z, x)

    copies = []
    for pushed in (False, True):
        graph = recorded(ctx, lambda pushed=pushed: record(pushed))
        copies.append([node[4] for node in graph.describe()[1] if node[3] == "copy"])
        for _ in range(3):
            graph.launch()
        graph.reset()
    assert len(copies[0]) == 1 and copies[1] == []
    assert (ctx.wait(y) == 7).all() and (ctx.wait(z) == 7).all()


def test_read_only_data_are_read_on_all_places(ctx, work):
    x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)
    work.add(ctx, on(0), x)
    dep = x.rw()
    x.set_read_only()
    assert x.readonly
    for use in (x.rw, x.write, lambda: x.push(WRITE)):
        with ctx.graph_scope(), pytest.raises(stf.ReadOnlyError):
            use()
    for scope in (*SCOPES.values(), lambda ctx: ctx.graph_scope()):
        with scope(ctx):
            for device in range(work.devices):
                work.mix(ctx, on(device), y, x)
            with pytest.raises(stf.ReadOnlyError):
                ctx.task(on(0), dep).start()
    assert (ctx.wait(y) == 10 * work.devices).all() and (ctx.wait(x) == 2).all()


def test_data_that_stay_in_their_scope(ctx, work):
    y = ctx.logical_data_zeros(4)
    with ctx.graph_scope():
        x = ctx.logical_data_empty(4, no_export=True)
        like = x.empty_like()
        work.put(ctx, on(0), x, 5)
        work.put(ctx, on(0), like, 7)
        with ctx.graph_scope():
            work.mix(ctx, second(work), y, x)
        with ctx.repeat(3):
            own = ctx.logical_data_empty(4, no_export=True)
            work.put(ctx, on(0), own, 2)
            work.mix(ctx, on(0), own, x)
            work.mix(ctx, on(0), y, own)
        work.mix(ctx, on(0), y, like)
    assert (ctx.wait(y) == 5 + 3 * 7 + 7).all()
    for use in (lambda: ctx.wait(x), lambda: ctx.task(on(0), like.rw()).start()):
        with pytest.raises(stf.WrongContext):
            use()
    with ctx.graph_scope(), pytest.raises(stf.WrongContext):
        work.add(ctx, on(0), x)


def test_no_export_at_the_root_is_data_of_the_context(ctx, work):
    x = ctx.logical_data_empty(4, no_export=True)
    with ctx.graph_scope():
        work.put(ctx, on(0), x, 5)
    assert (ctx.wait(x) == 5).all()


@each_scope
def test_tokens_order_across_scopes(ctx, work, scope):
    seen, token = [], ctx.token()
    for turn in range(3):
        ctx.host_launch(token.rw(), fn=seen.append, args=((turn, 0),))
        with scope(ctx):
            own = ctx.token()
            for k in (1, 2):
                ctx.host_launch(token.rw(), own.rw(), fn=seen.append, args=((turn, k),))
    assert ctx.wait(token) is None
    assert seen == [(turn, k) for turn in range(3) for k in range(3)]


@each_scope
def test_composite_data_in_scopes(ctx, work, scope):
    if work.devices < 2:
        pytest.skip("needs two devices")
    source = np.zeros(1 << 16)
    x, grid = ctx.logical_data(source), pair().with_data(LINE)
    for _ in range(2):
        with scope(ctx):
            for _ in range(2):
                with ctx.task(grid, x.rw()) as t:
                    if work.simulated:
                        for shard in t.shards(0):
                            shard.run(lambda array, k: array.__iadd__(k), shard.view, shard.place_index + 1)
            work.add(ctx, on(1), x, 10)
        ctx.host_launch(x.rw(), fn=lambda array: array.__iadd__(100))
    ctx.finalize()
    each = (4, 8) if work.simulated else (0, 0)
    assert (source[: 1 << 15] == 220 + each[0]).all() and (source[1 << 15 :] == 220 + each[1]).all()


@pytest.mark.parametrize("place", ["device", "green", "second"])
def test_places_of_all_kinds(ctx, work, place):
    places = {
        "device": lambda: on(0),
        "second": lambda: second(work),
        "green": lambda: stf.green_places(16, 2)[1],
    }
    place, x = places[place](), ctx.logical_data_zeros(4)
    with ctx.graph_scope():
        work.add(ctx, place, x)
        work.add(ctx, on(0), x)
        with ctx.repeat(3):
            work.add(ctx, place, x)
    assert (ctx.wait(x) == 5).all()


# ---- Callbacks and failures ------------------------------------------------------------------------------


@each_scope
def test_callbacks_get_arrays_and_arguments(ctx, work, scope):
    x, y, token = ctx.logical_data(np.arange(6.0).reshape(2, 3)), ctx.logical_data_ones(3, "i4"), ctx.token()
    seen = []

    def look(a, b, *rest):
        seen.append((type(a), a.shape, a.flags.writeable, b.flags.writeable, b.dtype, rest))
        b += 1

    with scope(ctx):
        work.add(ctx, on(0), x)
        ctx.host_launch(x.read(), token.rw(), y.rw(), fn=look, args=("more", 3))
        work.add(ctx, on(0), y)
    assert (ctx.wait(y) == 3).all()
    assert seen == [(np.ndarray, (2, 3), False, True, np.dtype("i4"), ("more", 3))]


@each_scope
def test_a_callback_that_raises_is_told_once_to_whoever_waits(ctx, work, scope):
    x = ctx.logical_data_zeros(4)

    def bad(array):
        raise Failed("in a callback")

    with scope(ctx):
        ctx.host_launch(x.rw(), fn=bad)
        work.add(ctx, on(0), x)
    with pytest.raises(Failed, match="in a callback"):
        ctx.wait(x)
    assert (ctx.wait(x) == 1).all()
    ctx.check_errors()


@each_scope
@pytest.mark.parametrize("place", [0, 1])
def test_a_failed_task_poisons_what_it_was_to_write(ctx, work, scope, place):
    x, y = ctx.logical_data(np.ones(4), name="u"), ctx.logical_data_zeros(4)
    with scope(ctx):
        with pytest.raises(Failed), ctx.task(on(place % work.devices), x.rw(), symbol="bad"):
            raise Failed
        work.add(ctx, on(0), y)
        with pytest.raises(stf.PoisonedData, match="'u' has no usable value, because task 'bad' failed"):
            work.add(ctx, on(0), x)
    with pytest.raises(stf.PoisonedData, match="'u' has no usable value, because task 'bad' failed"):
        ctx.wait(x)
    assert (ctx.wait(y) == 1).all()
    with scope(ctx), pytest.raises(stf.PoisonedData):
        work.add(ctx, on(0), x)
    with scope(ctx):
        work.put(ctx, on(0), x, 4)
    assert (ctx.wait(x) == 4).all()


OUTER = {**SCOPES, "while": None, "launchable": None}


@pytest.mark.parametrize("outer", OUTER)
@each_inner
def test_a_scope_that_raises_half_way_leaves_all_as_it_was(ctx, work, outer, inner):
    source = np.ones(4)
    x, y, empty = ctx.logical_data(source), ctx.logical_data_full(4, 2.0), ctx.logical_data_empty(4)
    work.add(ctx, on(0), x)
    seen = []
    scopes = {
        **OUTER,
        "while": lambda ctx: ctx.while_loop(),
        "launchable": lambda ctx: ctx.launchable_graph_scope(),
    }
    for _ in range(2):
        with pytest.raises(Failed), scopes[outer](ctx):
            work.add(ctx, on(0), x)
            ctx.host_launch(y.rw(), fn=seen.append)
            with inner(ctx):
                work.put(ctx, second(work), empty, 3)
                work.add(ctx, second(work), y)
                with ctx.task(on(0), x.rw()):
                    raise Failed
    assert ctx.stats.graphs_launched == 0 and seen == []
    assert (ctx.wait(x) == 2).all() and (ctx.wait(y) == 2).all()
    with pytest.raises(stf.TaskStateError, match="before anything wrote it"):
        ctx.wait(empty)
    with scopes["push"](ctx):
        work.mix(ctx, on(0), x, y)
        work.put(ctx, on(0), empty, 1)
    ctx.finalize()
    assert (source == 4).all() and seen == []


@pytest.mark.parametrize(
    "inner", [lambda ctx: ctx.repeat(3), lambda ctx: ctx.while_loop()], ids=["repeat", "while"]
)
def test_a_loop_that_raises_leaves_the_scope_around_as_it_was(ctx, work, inner):
    x, y = ctx.logical_data_ones(4), ctx.logical_data_ones(4)
    with ctx.graph_scope():
        work.add(ctx, on(0), x)
        with pytest.raises(Failed), inner(ctx):
            work.add(ctx, on(0), x, 10)
            work.add(ctx, on(0), y, 10)
            raise Failed
        work.add(ctx, on(0), x)
    assert (ctx.wait(x) == 3).all() and (ctx.wait(y) == 1).all()


def test_a_part_that_raises_cannot_be_taken_out_of_what_is_around(ctx, work):
    x, y = ctx.logical_data_ones(4), ctx.logical_data_ones(4)
    with pytest.raises(stf.TaskStateError, match=r"graph_scope\(\) inside it was left by an exception"):
        with ctx.graph_scope():
            work.add(ctx, on(0), x)
            with pytest.raises(Failed), ctx.graph_scope():
                work.add(ctx, on(0), y)
                raise Failed
    assert (ctx.wait(x) == 1).all() and (ctx.wait(y) == 1).all()
