"""What every driver promises about graphs: the same bodies on the simulated and on the real one."""

import contextlib

import numpy as np
import pytest
from recorded_graphs import NBYTES, green_streams, opened, random_bytes, random_graph

from stf_places import errors
from stf_places._native import raw_graphs


def second_device(driver):
    if driver.device_count() < 2:
        pytest.skip("needs two devices")
    if not (driver.link(0, 1)["peer"] and driver.link(1, 0)["peer"]):
        pytest.skip("needs two devices that reach each other's memory")
    return 1


@pytest.fixture
def bench(driver):
    with opened(driver) as made:
        yield made


# ---- What is recorded ----------------------------------------------------------------------------------------


def test_nothing_runs_while_it_is_recorded(bench):
    data = random_bytes()
    block = bench.block(data)
    recording = bench.record()
    recording.fill(block, 7)
    assert np.array_equal(bench.read(block), data)
    graph = recording.end().instantiate()
    assert np.array_equal(bench.read(block), data)
    bench.launch(graph)
    assert (bench.read(block) == 7).all()


def test_nodes_follow_each_other_unless_set_otherwise(bench):
    block = bench.block()
    recording = bench.record()
    assert raw_graphs.capture_dependencies(bench.driver, recording.streams[0]) == []
    for value in range(4):
        recording.fill(block, value)
    assert recording.end().shape() == (4, {(0, 1), (1, 2), (2, 3)})


def test_independent_nodes_on_one_stream_have_no_edge(bench):
    blocks = [bench.block() for _ in range(4)]
    recording = bench.record()
    for value, block in enumerate(blocks):
        recording.fill(block, value + 1, after=[])
    assert recording.end().shape() == (4, set())
    bench.launch(recording.instantiate())
    for value, block in enumerate(blocks):
        assert (bench.read(block) == value + 1).all()


def test_a_diamond_has_the_edges_that_were_set(bench):
    source, left, right = (bench.block() for _ in range(3))
    recording = bench.record()
    top = recording.fill(source, 5, after=[])
    sides = [recording.copy(to, source, after=[top]) for to in (left, right)]
    recording.fill(source, 6, after=sides)
    assert recording.end().shape() == (4, {(0, 1), (0, 2), (1, 3), (2, 3)})
    graph = recording.instantiate()
    for _ in range(3):
        bench.launch(graph)
        assert [bench.read(block)[0] for block in (source, left, right)] == [6, 5, 5]


def test_a_stream_that_joins_starts_without_dependencies(bench):
    a, b = bench.block(), bench.block()
    first, second = bench.stream(), bench.stream()
    recording = bench.record(first)
    one = recording.fill(a, 1)
    raw_graphs.join_capture(bench.driver, first, second)
    recording.streams = (first, second)
    assert raw_graphs.capture_dependencies(bench.driver, second) == []
    two = recording.fill(b, 2, stream=second)
    assert raw_graphs.capture_dependencies(bench.driver, first) == [one]
    recording.copy(a, b, after=[one, two], stream=second)
    assert recording.end().shape() == (3, {(0, 2), (1, 2)})
    bench.launch(recording.instantiate())
    assert (bench.read(a) == 2).all()


def test_empty_nodes_stand_for_many(bench):
    blocks = [bench.block() for _ in range(3)]
    recording = bench.record()
    before = [recording.fill(block, 1, after=[]) for block in blocks]
    middle = recording.empty(before)
    assert set(raw_graphs.capture_dependencies(bench.driver, recording.streams[0])) == {before[-1]}
    for number, block in enumerate(blocks):
        recording.fill(block, number + 2, after=[middle])
    recording.empty([])
    assert recording.end().shape() == (8, {(n, 3) for n in range(3)} | {(3, n) for n in range(4, 7)})
    bench.launch(recording.instantiate())
    assert [bench.read(block)[0] for block in blocks] == [2, 3, 4]


def test_a_graph_without_nodes_can_be_launched(bench):
    recording = bench.record()
    assert recording.end().shape() == (0, set())
    graph = recording.instantiate()
    bench.launch(graph)
    bench.launch(graph)
    bench.wait()


# ---- What launches do -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream_count", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_do_what_numpy_does(bench, stream_count, seed):
    recording, blocks, run = random_graph(bench, [bench.stream() for _ in range(stream_count)], seed)
    graph = recording.instantiate()
    arrays = [bench.read(block) for block in blocks]
    for _ in range(3):
        bench.launch(graph)
        run(arrays)
        for block, array in zip(blocks, arrays, strict=True):
            assert np.array_equal(bench.read(block), array)


def test_data_is_that_of_the_moment_of_the_launch(bench):
    source, block, target = bench.host(), bench.block(), bench.host()
    recording = bench.record()
    recording.copy(block, source.ctypes.data, from_at="host")
    recording.copy(target.ctypes.data, block, to_at="host")
    graph = recording.end().instantiate()
    for seed in range(3):
        source[:] = random_bytes(seed=seed)
        bench.launch(graph)
        bench.wait()
        assert np.array_equal(target, source)


def test_a_launch_is_behind_what_precedes_and_before_what_follows(bench):
    a, b, c = (bench.block() for _ in range(3))
    recording = bench.record()
    recording.copy(b, a)
    graph = recording.end().instantiate()
    for value in range(1, 6):
        bench.driver.fill(a, 0, bytes([value]), NBYTES, bench.main)
        bench.launch(graph)
        bench.driver.copy(c, 0, b, 0, NBYTES, bench.main)
        bench.driver.fill(b, 0, b"\0", NBYTES, bench.main)
        assert (bench.read(c) == value).all()


def test_host_functions_run_at_each_launch(bench):
    calls = []
    functions = [lambda number=number: calls.append(number) for number in range(3)]
    recording = bench.record()
    for function in functions:
        recording.call(function)
    graph = recording.end().instantiate()
    assert calls == []
    for _ in range(5):
        bench.launch(graph)
    bench.wait()
    assert calls == [0, 1, 2] * 5


@pytest.mark.parametrize("stream_count", [1, 2])
def test_launches_of_one_executable_run_one_after_the_other(bench, stream_count):
    streams = [bench.main, bench.stream()][:stream_count]
    number, block = bench.host(np.int32, 64), bench.block(np.zeros(64, np.uint8))

    def add():
        number[:] += 1

    recording = bench.record()
    recording.copy(number.ctypes.data, block, to_at="host", nbytes=64)
    recording.call(add)
    recording.copy(block, number.ctypes.data, from_at="host", nbytes=64)
    graph = recording.end().instantiate()
    for launch in range(20):
        bench.launch(graph, streams[launch % stream_count])
    for stream in streams:
        bench.driver.synchronize_stream(stream)
    assert (bench.read(block, nbytes=64).view(np.int32) == 20).all()


def test_two_executables_of_one_graph_are_ordered_by_their_stream(bench):
    block = bench.block()
    recording = bench.record()
    recording.copy(block + 1, block, nbytes=1)
    recording.copy(block + 2, block + 1, nbytes=1)
    recording.fill(block + 1, 7, count=1)
    recording.end()
    graphs = [recording.instantiate() for _ in range(2)]
    for value, graph in enumerate(graphs * 2):
        bench.driver.fill(block, 0, bytes([value + 1]), 1, bench.main)
        bench.launch(graph)
        assert bench.read(block)[:3].tolist() == [value + 1, 7, value + 1]


def test_an_executable_outlives_its_graph(bench):
    block = bench.block()
    recording = bench.record()
    recording.fill(block, 3)
    graph = recording.end().instantiate()
    bench.graphs.remove(recording.graph)
    raw_graphs.destroy_graph(bench.driver, recording.graph)
    bench.launch(graph)
    assert (bench.read(block) == 3).all()


def test_an_executable_outlives_the_stream_that_recorded_it(bench):
    block = bench.block()
    stream = bench.stream()
    recording = bench.record(stream)
    recording.fill(block, 3)
    graph = recording.end().instantiate()
    bench.streams.remove(stream)
    bench.driver.destroy_stream(stream)
    bench.launch(graph)
    assert (bench.read(block) == 3).all()


# ---- Updates ---------------------------------------------------------------------------------------------------


def test_an_update_changes_addresses_and_values_in_place(bench):
    data = random_bytes()
    source, blocks = bench.block(data), [bench.block() for _ in range(2)]

    def record(block, value):
        recording = bench.record()
        recording.copy(block, source)
        recording.fill(block, value, count=NBYTES // 2)
        return recording.end()

    first, second = record(blocks[0], 1), record(blocks[1], 2)
    graph = first.instantiate()
    bench.launch(graph)
    assert raw_graphs.update_graph_exec(bench.driver, graph, second.graph) is True
    bench.launch(graph)
    for block, value in zip(blocks, (1, 2), strict=True):
        expected = data.copy()
        expected[: NBYTES // 2] = value
        assert np.array_equal(bench.read(block), expected)


def test_an_update_that_does_not_fit_changes_nothing(bench):
    a, b = bench.block(), bench.block()
    first = bench.record()
    one = first.fill(a, 1)
    first.fill(b, 1, after=[one])
    graph = first.end().instantiate()
    longer, other_edges, other_kind = bench.record(), bench.record(), bench.record()
    for _ in range(3):
        longer.fill(a, 2)
    other_edges.fill(a, 2, after=[])
    other_edges.fill(b, 2, after=[])
    other_kind.fill(a, 2)
    other_kind.copy(b, a)
    for recording in (longer, other_edges, other_kind):
        recording.end()
        assert raw_graphs.update_graph_exec(bench.driver, graph, recording.graph) is False
        bench.driver.fill(a, 0, b"\0", NBYTES, bench.main)
        bench.launch(graph)
        assert (bench.read(a) == 1).all() and (bench.read(b) == 1).all()


# ---- Places ----------------------------------------------------------------------------------------------------


def test_streams_of_green_contexts_record_into_one_graph(bench):
    streams = [bench.stream(), *green_streams(bench)]
    data = random_bytes()
    blocks = [bench.block(data), *(bench.block() for _ in streams)]
    recording = bench.record(*streams)
    node = []
    for stream, source, to in zip(streams, blocks, blocks[1:], strict=False):
        node = [recording.copy(to, source, after=node, stream=stream)]
    assert recording.end().shape() == (3, {(0, 1), (1, 2)})
    graph = recording.instantiate()
    for stream in (bench.main, streams[1]):
        bench.driver.fill(blocks[-1], 0, b"\0", NBYTES, stream)
        bench.launch(graph, stream)
        assert np.array_equal(bench.read(blocks[-1], stream=stream), data)


def test_random_graphs_on_green_contexts_do_what_numpy_does(bench):
    recording, blocks, run = random_graph(bench, green_streams(bench), seed=9)
    arrays = [bench.read(block) for block in blocks]
    bench.launch(recording.instantiate())
    run(arrays)
    for block, array in zip(blocks, arrays, strict=True):
        assert np.array_equal(bench.read(block), array)


def test_one_graph_works_on_two_devices(bench):
    other = second_device(bench.driver)
    data = random_bytes()
    here, there, back = bench.block(data), bench.block(device=other), bench.block()
    streams = [bench.stream(), bench.stream(other)]
    for pair in ((0, other), (other, 0)):
        bench.driver.enable_peer_access(*pair)
    recording = bench.record(*streams)
    sent = recording.copy(there, here, after=[], to_at=other)
    filled = recording.fill(there, 9, [sent], streams[1], count=8, device=other)
    recording.copy(back, there, after=[filled], from_at=other)
    assert recording.end().shape() == (3, {(0, 1), (1, 2)})
    bench.launch(recording.instantiate())
    data[:8] = 9
    assert np.array_equal(bench.read(back), data)


# ---- What is refused -------------------------------------------------------------------------------------------


def test_a_stream_that_records_is_neither_waited_for_nor_asked(bench):
    driver, block = bench.driver, bench.block()
    event = driver.create_event(driver.primary_context(0))
    recording = bench.record(bench.stream(), bench.stream())
    empty = bench.record()
    graph = empty.end().instantiate()
    calls = [
        driver.synchronize_stream,
        driver.query_stream,
        driver.destroy_stream,
        lambda stream: driver.record_event(event, stream),
        lambda stream: driver.wait_event(stream, event),
        lambda stream: driver.allocate_device(0, 64, stream),
        lambda stream: driver.free_device(0, block, stream),
        lambda stream: raw_graphs.launch_graph(driver, graph, stream),
        lambda stream: raw_graphs.begin_capture(driver, empty.graph, stream),
        lambda stream: raw_graphs.join_capture(driver, recording.streams[0], stream),
    ]
    for stream in recording.streams:
        assert driver.stream_capturing(stream)
        for call in calls:
            with pytest.raises(errors.DriverError):
                call(stream)
    recording.fill(block, 4)
    assert recording.end().shape() == (1, set())
    for stream in recording.streams:
        assert not driver.stream_capturing(stream)
        driver.synchronize_stream(stream)
    driver.destroy_event(event)
    bench.launch(recording.instantiate())
    assert (bench.read(block) == 4).all()


def test_a_graph_that_is_being_recorded_is_not_used(bench):
    driver, stream = bench.driver, bench.stream()
    graph = bench.record().end().instantiate()
    recording = bench.record()
    for call in (
        lambda: raw_graphs.instantiate_graph(driver, recording.graph),
        lambda: raw_graphs.destroy_graph(driver, recording.graph),
        lambda: raw_graphs.begin_capture(driver, recording.graph, stream),
        lambda: raw_graphs.update_graph_exec(driver, graph, recording.graph),
    ):
        with pytest.raises(errors.DriverError):
            call()
    recording.end()


def test_streams_that_record_nothing_are_refused(bench):
    driver = bench.driver
    stream, other = bench.stream(), bench.stream()
    for call in (
        lambda: raw_graphs.set_capture_dependencies(driver, stream, []),
        lambda: raw_graphs.capture_dependencies(driver, stream),
        lambda: raw_graphs.join_capture(driver, stream, other),
        lambda: raw_graphs.end_capture(driver, stream, []),
        lambda: raw_graphs.begin_capture(driver, bench.record().end().graph, 0),
    ):
        with pytest.raises(errors.DriverError):
            call()


def test_only_the_stream_that_began_a_capture_ends_it(bench):
    recording = bench.record(bench.stream(), bench.stream())
    with pytest.raises(errors.DriverError):
        raw_graphs.end_capture(bench.driver, recording.streams[1], recording.streams[:1])
    with pytest.raises(errors.DriverError):
        raw_graphs.join_capture(bench.driver, recording.streams[1], bench.main)
    recording.end()


def test_a_refused_call_leaves_the_capture_as_it_was(bench):
    block = bench.block()
    recording = bench.record()
    recording.fill(block, 1)
    with pytest.raises(errors.DriverError):
        bench.driver.fill(block, 0, b"abc", 1, recording.streams[0])
    recording.fill(block, 2, count=1)
    assert recording.end().shape() == (2, {(0, 1)})
    bench.launch(recording.instantiate())
    assert bench.read(block)[:2].tolist() == [2, 1]


def test_streams_are_usable_after_a_capture_that_was_ended_badly(bench):
    block = bench.block()
    recording = bench.record(bench.stream(), bench.stream())
    for stream in recording.streams:
        recording.fill(block, 1, after=[], stream=stream)
    # A real driver may forgive that a stream is not named.
    with contextlib.suppress(errors.DriverError):
        raw_graphs.end_capture(bench.driver, recording.streams[0], [])
    for stream in recording.streams:
        assert not bench.driver.stream_capturing(stream)
        bench.driver.fill(block, 0, b"\5", NBYTES, stream)
        assert (bench.read(block, stream=stream) == 5).all()
        again = bench.record(stream)
        again.fill(block, 6)
        bench.launch(again.end().instantiate(), stream)
        assert (bench.read(block, stream=stream) == 6).all()
