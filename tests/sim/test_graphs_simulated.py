"""What a simulated machine says about graphs beyond what every driver does: races, times, SMs, faults."""

import numpy as np
import pytest
from recorded_graphs import NBYTES, green_streams, opened, random_graph

from stf_places import errors
from stf_places._native import drivers, raw_graphs, sm_splits
from stf_places.machines import specs


def machine(**options):
    return drivers.sim_driver(specs.load("tiny").to_dict(), **options)


@pytest.fixture
def bench():
    with opened(machine()) as made:
        yield made


def work(bench, recording, symbol, after, accesses=(), stream=None, cost_us=100, sms=2):
    """Add host work behind others."""
    return recording.node(
        after,
        stream,
        lambda on: bench.driver.host_work(on, symbol=symbol, cost_us=cost_us, sms=sms, accesses=accesses),
    )


def timeline(bench, graph, stream=None):
    bench.driver.record_timeline()
    bench.launch(graph, stream)
    bench.driver.synchronize_stream(bench.main if stream is None else stream)
    return {entry["symbol"]: entry for entry in bench.driver.timeline()}


@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_edge_between_nodes_that_conflict_is_a_race(bench, missing):
    block, other = bench.block(), bench.block()
    recording = bench.record()
    first = recording.fill(block, 1, after=[])
    recording.copy(other, block, after=[] if missing else [first])
    graph = recording.end().instantiate()
    bench.wait()
    bench.launch(graph)
    if not missing:
        bench.wait()
        assert bench.driver.conflicts() == []
        return
    with pytest.raises(errors.DataRace, match=r"copy \(read, stream \d+\) and fill \(write"):
        bench.wait()


def test_launches_that_nothing_orders_race_with_what_is_on_other_streams(bench):
    block, other = bench.block(), bench.stream()
    recording = bench.record()
    recording.fill(block, 1)
    graph = recording.end().instantiate()
    bench.launch(graph)
    bench.launch(graph, other)
    bench.driver.synchronize_stream(other)
    assert bench.driver.conflicts() == []
    bench.launch(graph)
    bench.driver.fill(block, 0, b"\2", NBYTES, other)
    with pytest.raises(errors.DataRace, match="without an order between them"):
        bench.driver.synchronize_stream(other)


@pytest.mark.parametrize("seed", range(20))
def test_chaos_agrees_with_program_order(seed):
    with opened(machine(chaos=True, seed=seed)) as bench:
        streams = [bench.stream() for _ in range(3)]
        recording, blocks, run = random_graph(bench, streams, seed)
        arrays = [bench.read(block) for block in blocks]
        graph = recording.instantiate()
        for stream in (bench.main, streams[1], bench.main):
            bench.launch(graph, stream)
            run(arrays)
        for block, array in zip(blocks, arrays, strict=True):
            assert np.array_equal(bench.read(block), array)
        assert bench.driver.conflicts() == []


def test_chaos_shows_a_missing_edge():
    seen = set()
    for seed in range(20):
        with opened(machine(chaos=True, seed=seed, check_conflicts=False)) as bench:
            block = bench.block()
            recording = bench.record()
            for value in (1, 2):
                recording.fill(block, value, after=[])
            bench.launch(recording.end().instantiate())
            seen.add(bench.read(block)[0])
    assert seen == {1, 2}


def test_independent_nodes_overlap_and_edges_do_not(bench):
    recording = bench.record()
    first = work(bench, recording, "first", [])
    work(bench, recording, "beside", [])
    work(bench, recording, "behind", [first])
    seen = timeline(bench, recording.end().instantiate())
    assert {entry["kind"] for entry in seen.values()} == {"kernel"}
    assert seen["first"]["start_us"] == pytest.approx(seen["beside"]["start_us"], abs=1)
    assert seen["behind"]["start_us"] == pytest.approx(seen["first"]["end_us"], abs=1)


def test_nodes_stay_on_the_sms_of_their_place(bench):
    streams = green_streams(bench)
    recording = bench.record(*streams)
    for number, stream in enumerate(streams):
        work(bench, recording, f"whole {number}", [], stream=stream, sms=0)
        work(bench, recording, f"again {number}", [], stream=stream, sms=0)
    graph = recording.end().instantiate()
    seen = timeline(bench, graph)
    for number, context in enumerate(bench.contexts):
        whole, again = seen[f"whole {number}"], seen[f"again {number}"]
        assert whole["sms"] == again["sms"] == len(sm_splits.sm_ids(bench.driver, context))
        # Nothing orders the two but that they want the same SMs, while the device has others that are free.
        assert again["start_us"] >= whole["end_us"]
    assert seen["whole 0"]["start_us"] == pytest.approx(seen["whole 1"]["start_us"], abs=1)


def test_priorities_stay_with_the_nodes(bench):
    urgent = bench.driver.create_stream(bench.driver.primary_context(0), -5)
    bench.streams.append(urgent)
    usual = bench.stream()
    recording = bench.record(usual, urgent)
    for symbol, stream in (("first", usual), ("usual", usual), ("urgent", urgent)):
        work(bench, recording, symbol, [], stream=stream, sms=0)
    seen = timeline(bench, recording.end().instantiate())
    starts = [seen[symbol]["start_us"] for symbol in ("first", "urgent", "usual")]
    assert starts == sorted(starts)


def test_host_work_runs_at_each_launch(bench):
    calls = []
    recording = bench.record()
    for number in range(3):
        bench.driver.host_work(recording.streams[0], lambda number=number: calls.append(number), cost_us=1)
    graph = recording.end().instantiate()
    for _ in range(5):
        bench.launch(graph)
    bench.wait()
    assert calls == [0, 1, 2] * 5


def test_host_work_is_let_go_with_graph_and_executable(bench):
    driver, gone = bench.driver, []

    class Body:
        def __call__(self):
            pass

        def __del__(self):
            gone.append(True)

    recording = bench.record()
    driver.host_work(recording.streams[0], Body(), cost_us=1)
    with pytest.raises(errors.DriverError, match="can use 1 to 16 SMs"):
        driver.host_work(recording.streams[0], Body(), sms=17)
    assert len(gone) == 1
    graph = recording.end().instantiate()
    bench.graphs.remove(recording.graph)
    raw_graphs.destroy_graph(driver, recording.graph)
    bench.launch(graph)
    with pytest.raises(errors.DriverError, match="is at work"):
        raw_graphs.destroy_graph_exec(driver, graph)
    bench.wait()
    assert len(gone) == 1
    bench.execs.remove(graph)
    raw_graphs.destroy_graph_exec(driver, graph)
    assert len(gone) == 2


def test_what_does_not_execute_only_moves_the_clock():
    with opened(machine(execute=False)) as bench:
        calls, began = [], bench.driver.now_us()
        recording = bench.record()
        bench.driver.host_work(recording.streams[0], lambda: calls.append(1), cost_us=1000)
        graph = recording.end().instantiate()
        for _ in range(5):
            bench.launch(graph)
        bench.wait()
        assert calls == []
        assert bench.driver.now_us() - began >= 5000


@pytest.mark.parametrize("kind", ["copy", "launch", "host_function"])
def test_a_node_that_fails_fails_its_launch(bench, kind):
    driver, block, ran = bench.driver, bench.block(), []

    def run():
        ran.append(1)

    recording = bench.record()
    recording.fill(block, 1)
    driver.host_work(recording.streams[0], cost_us=1)
    recording.call(run)
    recording.call(run)
    graph = recording.end().instantiate()
    driver.order_fault(kind, 1, "failed")
    bench.launch(graph)
    with pytest.raises(errors.DriverError, match="an ordered fault"):
        bench.wait()
    assert ran == []
    bench.launch(graph)
    bench.wait()
    assert ran == [1, 1]
    driver.drain()


def test_memory_that_was_freed_is_named(bench):
    driver = bench.driver
    address = driver.allocate_device(0, 64, bench.main)
    recording = bench.record()
    with pytest.raises(errors.DriverError, match="out of bounds"):
        recording.fill(address, 1, count=65)
    recording.fill(address, 1, count=64)
    graph = recording.end().instantiate()
    driver.free_device(0, address, bench.main)
    with pytest.raises(
        errors.DriverError, match="node 0 of the graph: use after free: .* freed allocation #"
    ):
        bench.launch(graph)
    bench.wait()


def test_nodes_of_another_graph_are_refused(bench):
    block = bench.block()
    other = bench.record()
    foreign = other.fill(block, 1)
    other.end()
    recording = bench.record()
    for call in (
        lambda: raw_graphs.set_capture_dependencies(bench.driver, recording.streams[0], [foreign]),
        lambda: recording.empty([foreign]),
    ):
        with pytest.raises(errors.DriverError, match="not one of the 0 nodes of graph"):
            call()
    assert recording.end().shape() == (0, set())


def test_handles_that_do_not_exist_are_named(bench):
    driver = bench.driver
    for call, what in (
        (lambda: raw_graphs.destroy_graph(driver, 99), "graph 99"),
        (lambda: raw_graphs.graph_nodes(driver, 99), "graph 99"),
        (lambda: raw_graphs.instantiate_graph(driver, 99), "graph 99"),
        (lambda: raw_graphs.launch_graph(driver, 99, bench.main), "executable graph 99"),
        (lambda: raw_graphs.destroy_graph_exec(driver, 99), "executable graph 99"),
    ):
        with pytest.raises(errors.DriverError, match=f"{what} does not exist"):
            call()


def test_an_old_driver_names_the_version_that_records_graphs():
    spec = specs.load("tiny").to_dict() | {"driver_version": 12020}
    with pytest.raises(errors.NotSupported, match=r"CUDA 12\.3"):
        raw_graphs.create_graph(drivers.sim_driver(spec))
