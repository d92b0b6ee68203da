"""Graph contexts: what was recorded gives the values that streams give, in the same order, with no edge too many."""

import gc
import json
import weakref
from importlib import resources

import numpy as np
import pytest

import stf_places as stf
from stf_places import blocked, data_place, exec_place, exec_place_grid, partition
from stf_places._native import raw_graphs

HOST = exec_place.host()
LINE = partition(blocked("x"))
KIB = 1 << 10


def on(device):
    return exec_place.device(device)


def pair():
    return exec_place_grid.from_devices([0, 1])


def add(array, number):
    array += number


def added(ctx, place, data, number, **options):
    """Add a number on a simulated place."""
    with ctx.task(place, data.rw(), **options) as t:
        t.run(add, t.get_arg_cai(0), number)


@pytest.fixture
def ctx(machine):
    with stf.context(use_graph=True) as made:
        yield made


@pytest.fixture(params=[None, 1, 2], ids=["program-order", "chaos-1", "chaos-2"])
def tiny(request):
    """Put a small simulated machine in use, and see that nothing unordered was found."""
    with stf.use_machine("sim:tiny", chaos=request.param) as machine:
        yield machine
        assert machine.conflicts == ()


# ---- When it runs ----------------------------------------------------------------------------------------


def test_nothing_runs_before_somebody_waits(ctx):
    seen, data = [], ctx.logical_data_zeros(4)
    for number in range(3):
        ctx.host_launch(data.rw(), fn=lambda array, n: (add(array, n), seen.append(n)), args=(number,))
    assert seen == [] and ctx.stats.graphs_launched == 0
    assert np.array_equal(ctx.wait(data), np.full(4, 3.0))
    assert seen == [0, 1, 2]
    assert (ctx.stats.graphs_launched, ctx.stats.graphs_instantiated) == (1, 1)


def test_a_host_task_sees_what_was_recorded(ctx):
    data, other = ctx.logical_data_full(4, 2.0, exec_place=on(0)), ctx.logical_data(np.zeros(4))
    ctx.host_launch(data.rw(), other.write(), fn=lambda a, b: (add(a, 1), add(b, a)))
    with ctx.task(HOST, data.rw(), other.read()) as t:
        assert (t.numpy(0) == 3).all() and (t.numpy(1) == 3).all()
        t.numpy(0)[:] = 10
    with ctx.task(on(0), data.rw()):
        pass
    assert (ctx.wait(data) == 10).all()


def test_all_ends_with_finalize(machine):
    source, seen = np.zeros(8), []
    with stf.context(use_graph=True) as ctx:
        ctx.host_launch(ctx.logical_data(source).rw(), fn=add, args=(7,))
        ctx.host_launch(fn=seen.append, args=(1,))
        assert seen == [] and (source == 0).all()
    assert seen == [1] and (source == 7).all()
    assert ctx.closed and ctx.stats.graphs_launched == 1


def test_a_context_without_work_launches_nothing(machine):
    with stf.context(use_graph=True) as ctx:
        ctx.logical_data(np.zeros(4))
    assert ctx.stats.graphs_launched == 0


def test_each_wait_launches_what_is_new(ctx):
    data = ctx.logical_data_zeros(4)
    for number in range(5):
        ctx.host_launch(data.rw(), fn=add, args=(1,))
        assert (ctx.wait(data) == number + 1).all() and (ctx.wait(data) == number + 1).all()
    assert ctx.stats.graphs_launched == 5
    assert ctx.stats.graphs_instantiated < 5


def test_tokens_order_and_are_waited_for(ctx):
    seen, token = [], ctx.token()
    for k in range(6):
        ctx.host_launch(token.rw(), fn=seen.append, args=(k,))
    assert ctx.wait(token) is None and seen == list(range(6))


def test_a_fence_launches(ctx):
    data = ctx.logical_data_full(100, 4.0, exec_place=on(0))
    for number in range(3):
        ctx.host_launch(data.rw(), fn=add, args=(1,))
        assert ctx.fence() != 0
        assert ctx.stats.graphs_launched == number + 1
    assert (ctx.wait(data) == 7).all() and ctx.stats.graphs_launched == 3


def test_empty_arrays_pass(ctx):
    seen, data = [], ctx.logical_data_empty((0, 3), "f4")
    with ctx.task(on(0), data.write()):
        pass
    ctx.host_launch(data.read(), fn=lambda array: seen.append(array.shape))
    assert ctx.wait(data).shape == (0, 3) and seen == [(0, 3)]


# ---- Data ------------------------------------------------------------------------------------------------


WHERES = {
    "none": {},
    "host": {"where": data_place.host()},
    "host place": {"exec_place": HOST},
    "device": {"where": data_place.device(0)},
    "managed": {"where": data_place.managed()},
}


@pytest.mark.parametrize("how", WHERES)
def test_fills(ctx, how):
    data = ctx.logical_data_full((3, 50), 7, "i4", **WHERES[how])
    ctx.host_launch(data.rw(), fn=add, args=(1,))
    assert (ctx.wait(data) == 8).all()


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("how", ["host", "host place"])
def test_a_fill_of_host_memory_may_be_larger_than_a_device(tmp_path, use_graph, how):
    with small_machine(tmp_path, None), stf.context(use_graph=use_graph) as ctx:
        data = ctx.logical_data_full(8 * KIB, 3.0, **WHERES[how])  # 64 KiB
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] += 1
        assert (ctx.wait(data) == 4).all()


def test_data_dropped_in_the_middle_is_written_back(machine):
    class Kept(np.ndarray):
        pass

    source = np.zeros(1000).view(Kept)
    watch = weakref.ref(source)
    kept = np.asarray(source)
    with stf.context(use_graph=True) as ctx:
        data, temporary = ctx.logical_data(source), ctx.logical_data_full(1000, 2.0, exec_place=on(0))
        ctx.host_launch(data.rw(), temporary.read(), fn=add)
        with ctx.task(on(0), data.rw()):
            pass
        del data, source, temporary
        gc.collect()
        others = [ctx.logical_data_full(1000, float(k), exec_place=on(0)) for k in range(4)]
        assert [ctx.wait(one)[0] for one in others] == [0, 1, 2, 3]
        del others
        assert (kept == 2).all()
    del kept, ctx
    stf.context().finalize()
    gc.collect()
    assert watch() is None


def test_read_only_sources_are_read(ctx):
    source = np.arange(100.0)
    source.flags.writeable = False
    data, seen = ctx.logical_data(source), []
    with pytest.raises(stf.ReadOnlyError):
        data.rw()
    with ctx.task(on(0), data.read()) as t:
        assert t.readonly(0) and t.get_arg_cai(0).readonly
    ctx.host_launch(data.read(), fn=lambda array: seen.append((array.sum(), array.flags.writeable)))
    assert np.array_equal(ctx.wait(data), source) and seen == [(4950.0, False)]


def test_sources_of_devices_have_their_values_back(machine):
    resource = stf.exec_place_resources()
    stream = on(0).pick_stream(resource)
    array = stf.DeviceArray.from_host(np.zeros(50), data_place.device(0), stream)
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(array)
        ctx.host_launch(data.rw(), fn=add, args=(3,))
        with ctx.task(HOST, data.rw()) as t:
            t.numpy(0)[:] *= 2
    assert (array.copy_to_host() == 6).all()
    del data, array


def test_values_travel_through_composite_places(machine):
    if machine.device_count < 2:
        pytest.skip("needs two devices")
    source = np.arange(3_000_000, dtype="i4")
    grid = pair().with_data(LINE)
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(source)
        for place in (grid, on(1), grid, on(0), HOST, grid):
            with ctx.task(place, data.rw()) as t:
                if place == HOST:
                    t.numpy(0)[:] += 1
            ctx.host_launch(data.rw(), fn=add, args=(1,))
    assert np.array_equal(source, np.arange(3_000_000, dtype="i4") + 7)


# ---- Places ----------------------------------------------------------------------------------------------


def test_shards_run_on_their_parts(tiny):
    source = np.zeros(10_000)
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(source)
        for _ in range(3):
            with ctx.task(pair().with_data(LINE), data.rw()) as t:
                for shard in t.shards(0):
                    shard.run(add, shard.view, shard.place_index + 1)
        added(ctx, on(1), data, 10)
    assert (source[:5000] == 13).all() and (source[5000:] == 16).all()


@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_grid_may_list_a_place_often(machine, count):
    source = np.zeros(1 << 16)
    grid = exec_place_grid.create([on(k % machine.device_count) for k in range(count)]).with_data(LINE)
    with stf.context(use_graph=True) as ctx:
        data = ctx.logical_data(source)
        for _ in range(3):
            with ctx.task(grid, data.rw()) as t:
                if machine.simulated:
                    for shard in t.shards(0):
                        shard.run(add, shard.view, 1)
            with ctx.task(grid, data.rw()):
                pass
            ctx.host_launch(data.rw(), fn=add, args=(1,))
    assert (source == (6 if machine.simulated else 3)).all()


def test_replicated_arguments_are_on_each_device(tiny):
    seen = []
    with stf.context(use_graph=True) as ctx:
        factor, data = ctx.logical_data(np.full(4, 3.0)), ctx.logical_data(np.ones(4096))
        with ctx.task(pair().with_data(LINE), data.rw(), factor.read(data_place.replicated())) as t:
            for shard in t.shards(0):
                shard.run(lambda array, by: array.__imul__(by[0]), shard.view, shard.get_arg_cai(1))
                seen.append(shard.get_arg(1))
        assert (ctx.wait(data) == 3).all()
    assert len(set(seen)) == 2


def test_work_of_a_green_place_stays_on_its_sms():
    with stf.use_machine("sim:tiny") as machine:
        a, b = stf.green_places(4, 2)
        machine.record_timeline()
        with stf.context(use_graph=True) as ctx:
            data = [ctx.logical_data_zeros(4) for _ in range(2)]
            for _ in range(2):
                added(ctx, a, data[0], 1, cost=100, symbol="a")
                added(ctx, b, data[1], 1, cost=100, symbol="b")
            with ctx.task(a, data[0].rw(), data[1].read()) as t:
                t.run(np.add, t.get_arg_cai(0), t.get_arg_cai(1), t.get_arg_cai(0))
            assert (ctx.wait(data[0]) == 4).all()
        entries = [one for one in machine.timeline() if one.kind == "kernel" and "fill" not in one.symbol]
        assert {one.sms for one in entries} == {4} and len(entries) == 5
        assert machine.conflicts == ()


def test_warp_kernels_are_recorded():
    wp = pytest.importorskip("warp", reason="needs Warp")
    from stf_places.interop import warp as stf_warp

    @wp.kernel
    def scale(x: wp.array(dtype=wp.float64), by: wp.float64):
        i = wp.tid()
        x[i] = x[i] * by

    source = np.ones(100)
    with stf.use_machine("sim:tiny") as machine:
        with stf.context(use_graph=True) as ctx:
            data = ctx.logical_data(source)
            for device, by in ((0, 2.0), (1, 3.0), (0, 5.0)):
                with ctx.task(on(device), data.rw()) as t:
                    stf_warp.launch(t, scale, dim=100, inputs=[stf_warp.array(t, 0), by])
            assert (source == 1).all()
        assert (source == 30).all() and machine.conflicts == ()


# ---- Edges -----------------------------------------------------------------------------------------------


def small_machine(tmp_path, chaos):
    """Open a machine of two devices with 16 KiB each."""
    description = json.loads((resources.files("stf_places.machines") / "data" / "tiny.json").read_text())
    for device in description["devices"]:
        device["memory"] = 16 * KIB
    path = tmp_path / "small.json"
    path.write_text(json.dumps(description))
    return stf.use_machine(f"sim:{path}", chaos=chaos)


def times(machine):
    return {
        one.symbol.strip("'").rpartition("'")[2]: one for one in machine.timeline() if one.kind == "kernel"
    }


def overlap(a, b):
    return a.start_us < b.end_us and b.start_us < a.end_us


def timeline_of(record):
    """Return when the tasks of a graph ran, by symbol."""
    with stf.use_machine("sim:tiny") as machine:
        with stf.context(use_graph=True) as ctx:
            data = [ctx.logical_data_zeros(4, exec_place=on(0)) for _ in range(8)]
            ctx.wait(data[0])
            machine.record_timeline()
            record(ctx, data)
        assert machine.conflicts == ()
        return times(machine)


def test_independent_tasks_of_one_place_have_no_edge():
    """Twice as many as the place has streams, whose order would be an edge."""

    def record(ctx, data):
        for k in range(8):
            added(ctx, on(0), data[k], 1, cost=100, sms=2, symbol=f"task {k}")

    seen = timeline_of(record)
    assert sorted(seen) == [f"task {k}" for k in range(8)]
    assert all(overlap(a, b) for a in seen.values() for b in seen.values())


def test_chains_and_readers_have_the_edges_that_they_need():
    def record(ctx, data):
        def task(symbol, *deps):
            with ctx.task(on(0), *deps, cost=100, sms=2, symbol=symbol) as t:
                t.run(lambda: None)

        task("write", data[0].rw())
        for k in range(3):
            task(f"read {k}", data[0].read(), data[k + 1].rw())
        task("beside", data[6].rw())
        task("rewrite", data[0].rw())
        task("behind one", data[1].read())
        task("last", data[0].read(), data[6].read())

    seen = timeline_of(record)

    def before(a, b):
        return seen[a].end_us <= seen[b].start_us

    readers = [f"read {k}" for k in range(3)]
    assert all(before("write", one) and before(one, "rewrite") for one in readers)
    assert all(overlap(seen[a], seen[b]) for a in readers for b in readers)
    assert overlap(seen["beside"], seen["write"])
    assert before("read 0", "behind one") and overlap(seen["behind one"], seen["rewrite"])
    assert before("rewrite", "last")


def test_independent_work_of_a_grid_and_a_device_has_no_edge():
    def record(ctx, data):
        with ctx.task(pair(), data[0].rw(data_place.device(0)), cost=100, sms=2, symbol="grid") as t:
            t.run(lambda: None)
        added(ctx, on(0), data[1], 1, cost=100, sms=2, symbol="device")

    seen = timeline_of(record)
    assert overlap(seen["grid"], seen["device"])


# ---- Room ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chaos", [None, 1, 2])
def test_values_survive_when_room_runs_out(tmp_path, chaos):
    sources = [np.full(KIB, k, "i4") for k in range(12)]  # 48 KiB on two devices of 16 KiB
    expected = list(range(12))
    with small_machine(tmp_path, chaos) as machine:
        with stf.context(use_graph=True) as ctx:
            data = [ctx.logical_data(source) for source in sources]
            for turn in range(3):
                for k, one in enumerate(data):
                    with ctx.task(on((k + turn) % 2), one.rw(), data[(k + 1) % 12].read()) as t:
                        t.run(change_by, t.get_arg_cai(0), t.get_arg_cai(1))
                    expected[k] = expected[k] * 3 + expected[(k + 1) % 12]
            made = [ctx.logical_data_full(KIB, k, "i4", exec_place=on(0)) for k in range(6)]
            assert [int(ctx.wait(one)[-1]) for one in made] == list(range(6))
            assert ctx.stats.evictions > 0 and ctx.stats.graphs_launched > 1
            del made
        assert machine.conflicts == () and machine.live_allocations == 0
    assert [set(source.tolist()) for source in sources] == [{value} for value in expected]


def change_by(array, other):
    array[:] = array * 3 + other


@pytest.mark.parametrize("spread", [False, True])
def test_memory_is_given_back(tiny, spread):
    with stf.context(use_graph=True) as ctx:
        place = data_place.composite(pair(), LINE) if spread else data_place.device(0)
        for k in range(10):
            data = ctx.logical_data_full(4000, k, "i8", where=place)
            ctx.host_launch(data.read(), fn=lambda array: None)
            del data
    del ctx
    gc.collect()
    tiny._driver.drain()
    assert tiny.live_allocations <= (
        3 if spread else 0
    )  # pages stay with the machine: a range on two devices
    assert raw_graphs.live_graphs(tiny._driver) == 0
