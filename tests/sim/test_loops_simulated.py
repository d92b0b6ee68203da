"""What a simulated machine says about loops beyond what every driver does: times, races, faults, what is refused."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from recorded_graphs import NBYTES, Bench, green_streams, opened
from recorded_loops import Loop, Tape, counter, instantiate, new_graph

from stf_places import errors
from stf_places._native import drivers, raw_graphs
from stf_places.machines import specs


def machine(**options):
    return drivers.sim_driver(specs.load("tiny").to_dict(), **options)


@pytest.fixture
def bench():
    with opened(machine()) as made:
        yield made


def recorded_work(bench, *bodies, **options):
    """Return a recorded graph with host work, one behind the other."""
    recording = bench.record()
    for body in bodies or (None,):
        bench.driver.host_work(recording.streams[0], body, **{"cost_us": 100, "sms": 2, **options})
    return recording.end()


def work_loop(bench, graph, count, after=(), **options):
    loop = Loop(bench, graph, after)
    loop.ends([loop.add(recorded_work(bench, **options))], counter=counter(bench), count=count)
    return loop


# ---- Times ------------------------------------------------------------------------------------------------------


def test_the_host_does_not_wait_for_a_loop(bench):
    driver, graph = bench.driver, new_graph(bench)
    work_loop(bench, graph, 50)
    run = instantiate(bench, graph)
    bench.wait()
    began = driver.now_us()
    bench.launch(run)
    assert driver.now_us() - began < 20
    bench.wait()
    each = 100 + specs.load("tiny").costs.graph_round
    assert driver.now_us() - began == pytest.approx(50 * each, rel=0.01)


def test_what_the_host_does_meanwhile_runs_beside_the_loop(bench):
    driver, graph, other = bench.driver, new_graph(bench), bench.stream()
    work_loop(bench, graph, 10, symbol="round")
    run = instantiate(bench, graph)
    driver.record_timeline()
    bench.launch(run)
    driver.host_work(other, symbol="beside", cost_us=10, sms=2)
    bench.wait()
    driver.synchronize_stream(other)
    seen = driver.timeline()
    rounds = [entry for entry in seen if entry["symbol"] == "round"]
    (beside,) = (entry for entry in seen if entry["symbol"] == "beside")
    assert len(rounds) == 10 and sum(entry["symbol"] == "loop condition" for entry in seen) == 10
    assert beside["end_us"] < rounds[0]["end_us"]
    for earlier, later in pairwise(rounds):
        assert later["start_us"] >= earlier["end_us"] + 5


def test_a_branch_beside_a_loop_does_not_wait_for_it(bench):
    driver = bench.driver
    recording = bench.record()
    first = recording.empty([])
    loop = work_loop(bench, recording.graph, 4, [first], symbol="round")
    work = [
        recording.node(
            after, None, lambda on, symbol=symbol: driver.host_work(on, symbol=symbol, cost_us=10, sms=2)
        )
        for symbol, after in (("beside", [first]), ("behind", [loop.node]))
    ]
    recording.empty(work)
    graph = recording.end().instantiate()
    driver.record_timeline()
    bench.launch(graph)
    bench.wait()
    seen = {entry["symbol"]: entry for entry in driver.timeline()}
    assert seen["beside"]["end_us"] < seen["round"]["start_us"] < seen["behind"]["start_us"]
    assert seen["behind"]["start_us"] >= seen["loop condition"]["end_us"]


def test_rounds_stay_on_the_sms_of_their_context(bench):
    stream = green_streams(bench)[0]
    graph = new_graph(bench)
    recording = bench.record(stream)
    bench.driver.host_work(stream, symbol="round", cost_us=10)
    loop = Loop(bench, graph, context=bench.contexts[0])
    loop.ends([loop.add(recording.end())], counter=counter(bench), count=2)
    run = instantiate(bench, graph)
    bench.driver.record_timeline()
    bench.launch(run)
    bench.wait()
    assert {entry["sms"] for entry in bench.driver.timeline() if entry["symbol"] == "round"} == {2}


def test_two_runs_give_the_same_times():
    def times():
        with opened(machine()) as bench:
            graph = new_graph(bench)
            tape = Tape(bench, np.arange(16))
            loop = Loop(bench, graph)
            loop.ends([loop.add(tape.step)], [(tape.address, "int64", "<", 9, False)])
            bench.driver.record_timeline()
            bench.launch(instantiate(bench, graph))
            bench.wait()
            return [(entry["start_us"], entry["end_us"], entry["kind"]) for entry in bench.driver.timeline()]

    assert times() == times()


def test_values_do_not_exist_where_nothing_executes():
    with opened(machine(execute=False)) as bench:
        for terms, options, rounds in (
            ((), {"counter": counter(bench), "count": 7}, 7),
            ([(counter(bench), "int64", "<", 9, False)], {}, 1),
        ):
            graph = new_graph(bench)
            loop = Loop(bench, graph)
            loop.ends([loop.add(recorded_work(bench, cost_us=1000))], terms, **options)
            run = instantiate(bench, graph)
            for _ in range(2):
                bench.wait()
                began = bench.driver.now_us()
                bench.launch(run)
                bench.wait()
                assert bench.driver.now_us() - began == pytest.approx(1000 * rounds, rel=0.03)


def test_a_condition_before_a_loop_is_true_where_nothing_executes():
    with opened(machine(execute=False)) as bench:
        graph = new_graph(bench)
        loop = Loop(bench, graph)
        terms = [(counter(bench), "int64", "<", 9, False)]
        loop.ends([loop.add(recorded_work(bench, cost_us=1000))], terms)
        loop.set_in(graph, [], terms)
        began = bench.driver.now_us()
        bench.launch(instantiate(bench, graph))
        bench.wait()
        assert bench.driver.now_us() - began >= 1000


# ---- Effects and order ------------------------------------------------------------------------------------------


def test_work_runs_in_each_round_and_is_let_go_with_graph_and_executable(bench):
    calls, gone = [], []

    class Body:
        def __call__(self):
            calls.append(1)

        def __del__(self):
            gone.append(True)

    graph = new_graph(bench)
    loop = Loop(bench, graph)
    recording = recorded_work(bench, Body())
    loop.ends([loop.add(recording)], counter=counter(bench), count=3)
    run = instantiate(bench, graph)
    bench.launch(run)
    with pytest.raises(errors.DriverError, match="is at work"):
        raw_graphs.destroy_graph_exec(bench.driver, run)
    bench.wait()
    assert calls == [1] * 3
    for one in (graph, recording.graph):
        bench.graphs.remove(one)
        raw_graphs.destroy_graph(bench.driver, one)
    assert gone == []
    bench.execs.remove(run)
    raw_graphs.destroy_graph_exec(bench.driver, run)
    assert gone == [True]


def test_an_update_gives_a_loop_its_new_work_and_condition(bench):
    calls, counts = [], (2, 5)
    graphs = []
    for number, count in enumerate(counts):
        graphs.append(new_graph(bench))
        loop = Loop(bench, graphs[-1])
        body = recorded_work(bench, lambda number=number: calls.append(number))
        loop.ends([loop.add(body)], counter=counter(bench), count=count)
    run = instantiate(bench, graphs[0])
    bench.launch(run)
    assert raw_graphs.update_graph_exec(bench.driver, run, graphs[1]) is True
    bench.launch(run)
    bench.wait()
    assert calls == [0, 0, 1, 1, 1, 1, 1]
    longer = new_graph(bench)
    loop = Loop(bench, longer)
    loop.ends([loop.add(recorded_work(bench, None, None))], counter=counter(bench), count=1)
    assert raw_graphs.update_graph_exec(bench.driver, run, longer) is False


@pytest.mark.parametrize("seed", range(10))
def test_chaos_agrees_with_program_order(seed):
    with opened(machine(chaos=True, seed=seed)) as bench:
        tapes = [Tape(bench, np.arange(16)) for _ in range(3)]
        graph = new_graph(bench)
        outer = Loop(bench, graph)
        inner = Loop(bench, outer.body, [outer.add(tapes[0].step)])
        inner.ends(
            [inner.add(tapes[1].step), inner.add(tapes[2].step)], [(tapes[1].address, "int64", "<", 6, False)]
        )
        outer.ends([inner.node], [(tapes[0].address, "int64", "<", 3, False)])
        run = instantiate(bench, graph)
        for _ in range(2):
            bench.launch(run)
            # The inner condition is true once a launch, and nobody sets it again.
            assert [tape.first() for tape in tapes] == [3, 6, 6]
            for tape in tapes:
                tape.rewind()
        assert bench.driver.conflicts() == []


@pytest.mark.parametrize("missing", [True, False])
def test_a_condition_that_nothing_orders_behind_the_value_is_a_race(bench, missing):
    tape, graph = Tape(bench, np.arange(16)), new_graph(bench)
    loop = Loop(bench, graph)
    step = loop.add(tape.step)
    loop.ends([] if missing else [step], [(tape.address, "int64", "<", 3, False)])
    bench.launch(instantiate(bench, graph))
    if not missing:
        bench.wait()
        assert bench.driver.conflicts() == []
        return
    with pytest.raises(errors.DataRace, match="task 'loop condition' \\(read"):
        bench.wait()


def test_what_is_beside_a_loop_races_with_its_rounds(bench):
    tape, other = Tape(bench, np.arange(16)), bench.block()
    recording = bench.record()
    loop = Loop(bench, recording.graph)
    loop.ends([loop.add(tape.step)], counter=counter(bench), count=2)
    recording.copy(other, tape.address, after=[], nbytes=8)
    bench.launch(recording.end().instantiate())
    with pytest.raises(errors.DataRace, match="without an order between them"):
        bench.wait()


# ---- What goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth, runs", [(1, 0), (2, 1), (3, 1), (6, 3)])
def test_a_round_that_fails_ends_the_loop_and_fails_the_launch(bench, nth, runs):
    # Each round has two launches: the work and the condition.
    calls, graph = [], new_graph(bench)
    loop = Loop(bench, graph)
    body = recorded_work(bench, lambda: calls.append(1))
    loop.ends([loop.add(body)], counter=counter(bench), count=9)
    behind = bench.block()
    recording = bench.record()
    recording.fill(behind, 1)
    raw_graphs.add_graph_node(bench.driver, graph, [loop.node], recording.end().graph)
    run = instantiate(bench, graph)
    bench.driver.order_fault("launch", nth, "failed")
    bench.launch(run)
    with pytest.raises(errors.DriverError, match="an ordered fault"):
        bench.wait()
    assert len(calls) == runs
    assert not bench.read(behind).any()


def test_a_lost_device_ends_a_loop():
    bench = Bench(machine())
    graph = new_graph(bench)
    work_loop(bench, graph, 1000)
    run = instantiate(bench, graph)
    bench.driver.order_fault("launch", 5, "device_lost")
    bench.launch(run)
    with pytest.raises(errors.DeviceLost):
        bench.wait()
    raw_graphs.destroy_graph_exec(bench.driver, run)
    for one in bench.graphs:
        raw_graphs.destroy_graph(bench.driver, one)
    assert raw_graphs.live_graphs(bench.driver) == 0


def test_a_loop_without_an_end_is_ended_and_says_so(bench):
    graph, value = new_graph(bench), counter(bench)
    loop = Loop(bench, graph)
    loop.ends([], [(value, "int64", "<", 1, False)])
    bench.launch(instantiate(bench, graph))
    with pytest.raises(errors.DriverError, match="went round 1048576 times without an end"):
        bench.wait()
    bench.driver.fill(value, 0, b"\1", 8, bench.main)
    assert bench.read(value, nbytes=8).all()


def test_memory_of_a_body_that_was_freed_is_named(bench):
    driver, graph = bench.driver, new_graph(bench)
    address = driver.allocate_device(0, 64, bench.main)
    recording = bench.record()
    recording.fill(address, 1, count=64)
    loop = Loop(bench, graph)
    loop.ends([loop.add(recording.end())], counter=counter(bench), count=2)
    run = instantiate(bench, graph)
    driver.free_device(0, address, bench.main)
    with pytest.raises(errors.DriverError, match="node 0 of the body of node 0 of the graph: use after free"):
        bench.launch(run)
    bench.wait()


def test_a_condition_reads_memory_that_is_there(bench):
    loop, value = Loop(bench, new_graph(bench)), bench.block(np.zeros(1, np.float32))
    with pytest.raises(errors.DriverError, match="task 'loop condition': out of bounds: 8 bytes"):
        loop.ends([], [(value, "float64", "<", 1, False)])
    with pytest.raises(errors.DriverError, match="out of bounds: 8 bytes"):
        loop.ends([], counter=value, count=1)


def test_another_thread_can_work_while_a_loop_is_submitted(bench):
    inside, graph = threading.Event(), new_graph(bench)
    started = threading.Event()
    block = bench.block()

    def body():
        started.set()
        assert inside.wait(30)

    loop = Loop(bench, graph)
    loop.ends([loop.add(recorded_work(bench, body))], counter=counter(bench), count=2)
    run = instantiate(bench, graph)
    thread = threading.Thread(target=lambda: bench.launch(run))
    thread.start()
    assert started.wait(30)
    other = bench.stream()
    bench.driver.fill(block, 0, b"\3", NBYTES, other)
    with pytest.raises(errors.DriverError, match="is at work"):
        raw_graphs.destroy_graph_exec(bench.driver, run)
    second = threading.Thread(target=lambda: bench.launch(run))
    second.start()
    inside.set()
    thread.join()
    second.join()
    bench.wait()
    assert (bench.read(block, stream=other) == 3).all()


# ---- What is refused --------------------------------------------------------------------------------------------


def test_conditions_belong_to_one_loop_of_one_graph_and_context(bench):
    driver = bench.driver
    green_streams(bench)
    primary, green = driver.primary_context(0), bench.contexts[0]
    graph, other = new_graph(bench), new_graph(bench)
    loop = Loop(bench, graph)
    condition = raw_graphs.create_condition(driver, graph, primary)
    for text, call in (
        (
            "is another loop's already",
            lambda: raw_graphs.add_loop_node(driver, graph, [], loop.condition, primary),
        ),
        ("is of graph", lambda: raw_graphs.add_loop_node(driver, other, [], condition, primary)),
        ("as its loop has to be", lambda: raw_graphs.add_loop_node(driver, graph, [], condition, green)),
        ("is set there or in the body of its loop", lambda: loop.set_in(other, [])),
        (
            "as what sets it",
            lambda: raw_graphs.add_condition_node(driver, loop.body, [], loop.condition, green),
        ),
        ("condition 99 does not exist", lambda: raw_graphs.add_loop_node(driver, graph, [], 99, primary)),
        ("no such context", lambda: raw_graphs.create_condition(driver, graph, 99)),
    ):
        with pytest.raises(errors.DriverError, match=text):
            call()
    loop.ends([])
    with pytest.raises(errors.DriverError, match="is set by another node of the body already"):
        loop.ends([])


def test_a_loop_that_nothing_ends_is_refused(bench):
    graph = new_graph(bench)
    loop = Loop(bench, graph)
    loop.set_in(graph, [])
    with pytest.raises(errors.DriverError, match="would never end: no node of the body sets its condition"):
        raw_graphs.instantiate_graph(bench.driver, graph)


def test_bodies_hold_what_runs_on_their_own_context(bench):
    block, pinned = bench.block(), bench.host()
    green = green_streams(bench)[0]
    loop = Loop(bench, new_graph(bench))
    for text, record in (
        ("got a host function", lambda recording: recording.call(print)),
        (
            "got a copy of 1024 bytes",
            lambda recording: recording.copy(block, pinned.ctypes.data, from_at="host"),
        ),
        (
            "got a copy of 1024 bytes",
            lambda recording: recording.copy(pinned.ctypes.data, block, to_at="host"),
        ),
        ("got a fill of 1024 bytes of context", lambda recording: recording.fill(block, 1)),
    ):
        recording = bench.record(*((green,) if "context" in text else ()))
        record(recording)
        within = new_graph(bench)
        raw_graphs.add_graph_node(bench.driver, within, [], recording.end().graph)
        for graph in (recording.graph, within):
            with pytest.raises(errors.DriverError, match=f"the body of a loop holds work, .*: {text}"):
                raw_graphs.add_graph_node(bench.driver, loop.body, [], graph)
    condition = raw_graphs.create_condition(bench.driver, loop.body, bench.contexts[0])
    with pytest.raises(errors.DriverError, match="got a loop of context"):
        raw_graphs.add_loop_node(bench.driver, loop.body, [], condition, bench.contexts[0])


def test_an_old_driver_names_the_version_that_has_loops():
    driver = drivers.sim_driver(specs.load("tiny").to_dict() | {"driver_version": 12030})
    graph = raw_graphs.create_graph(driver)
    with pytest.raises(errors.NotSupported, match=r"loops in graphs, which comes with CUDA 12\.4"):
        raw_graphs.create_condition(driver, graph, driver.primary_context(0))
    raw_graphs.destroy_graph(driver, graph)
