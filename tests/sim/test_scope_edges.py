"""What a scope records: no edge between tasks that have nothing in common, as the driver and describe() tell."""

import pytest
from scope_work import on, prepared, recorded, task_edges

import stf_places as stf
from stf_places import blocked, data_place, exec_place_grid, partition
from stf_places._native import raw_graphs, runtime


def independent(ctx, work, count=12):
    """Record tasks without anything in common, more than a place has streams, and one behind two of them."""
    data = [ctx.logical_data_full(4, 0.0, exec_place=on(0)) for _ in range(count)]

    def record():
        for k, one in enumerate(data):
            if k % 3 == 2:
                with ctx.graph_scope():
                    work.add(ctx, on(0), one, symbol=f"t{k}")
            else:
                work.add(ctx, on(0), one, symbol=f"t{k}")
        work.mix(ctx, on(0), data[0], data[2], symbol="join")

    return data, recorded(ctx, record)


def test_independent_tasks_have_no_edge(ctx, work):
    if not work.kernels:
        pytest.skip("needs kernels")
    data, graph = independent(ctx, work)
    labels, edges = task_edges(graph)
    assert labels == sorted([*(f"t{k}" for k in range(len(data))), "join"])
    assert edges == {("t0", "join"), ("t2", "join")}
    nodes, real = raw_graphs.graph_nodes(runtime.current().driver, graph.graph)
    assert len(real) == 2 and len(nodes) == len(data) + 1
    graph.launch()
    assert [ctx.wait(one)[0] for one in data] == [2, *[1] * (len(data) - 1)]
    graph.reset()


@pytest.mark.gpu
def test_the_real_graph_has_no_edge_too_many(cuda):
    bindings = pytest.importorskip("cuda.bindings.driver", reason="needs cuda.bindings")
    with stf.use_machine("cuda") as machine, prepared(machine) as work, stf.stackable_context() as ctx:
        if not work.kernels:
            pytest.skip("needs NVIDIA's driver")
        data, graph = independent(ctx, work)

        def asked(result, *values):
            assert result == bindings.CUresult.CUDA_SUCCESS
            return values

        handle = bindings.CUgraph(graph.graph)
        *_, nodes = asked(*bindings.cuGraphGetNodes(handle))
        *_, edges = asked(*bindings.cuGraphGetEdges(handle))
        assert (nodes, edges) == (len(data) + 1, 2)
        graph.reset()


def test_readers_of_one_value_have_no_edge_between_them(ctx, work):
    if not work.kernels:
        pytest.skip("needs kernels")
    data = [ctx.logical_data_full(4, 1.0, exec_place=on(0)) for _ in range(5)]

    def record():
        work.add(ctx, on(0), data[0], symbol="write")
        for k in (1, 2, 3):
            work.mix(ctx, on(0), data[k], data[0], symbol=f"read {k}")
        work.add(ctx, on(0), data[4], symbol="beside")
        work.add(ctx, on(0), data[0], symbol="rewrite")

    graph = recorded(ctx, record)
    readers = [f"read {k}" for k in (1, 2, 3)]
    expected = {("write", one) for one in readers} | {(one, "rewrite") for one in readers}
    assert task_edges(graph)[1] - {("write", "rewrite")} == expected
    graph.launch()
    assert [ctx.wait(one)[0] for one in data] == [3, 3, 3, 3, 2]
    graph.reset()


def test_a_composite_stays_spread_in_a_scope():
    """Data that lie spread over devices are used where they are: a graph on them copies nothing."""
    with stf.use_machine("sim:tiny") as machine, prepared(machine), stf.stackable_context() as ctx:
        pair, line = exec_place_grid.from_devices([0, 1]), partition(blocked("x"))
        x = ctx.logical_data_full(
            10_000, 1.0, where=data_place.composite(pair, line), exec_place=pair.with_data(line)
        )

        def record():
            for _ in range(2):
                with ctx.task(pair.with_data(line), x.rw()) as t:
                    for shard in t.shards(0):
                        shard.run(lambda array: array.__iadd__(1), shard.view)

        graph = recorded(ctx, record)
        assert [node[3] for node in graph.describe()[1] if node[3] == "copy"] == []
        for _ in range(3):
            graph.launch()
        assert (ctx.wait(x) == 7).all()
        graph.reset()
