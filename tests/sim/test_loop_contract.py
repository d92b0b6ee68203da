"""What every driver promises about loops in graphs: the same bodies on the simulated and on the real one."""

from itertools import pairwise

import numpy as np
import pytest
from recorded_graphs import NBYTES, green_streams, opened, random_bytes
from recorded_loops import Loop, Tape, condition_kernel_of, counter, instantiate, new_graph

from stf_places import errors
from stf_places._native import raw_graphs


@pytest.fixture
def bench(driver):
    condition_kernel_of(driver)  # skips where there is none
    with opened(driver) as made:
        yield made


def tape_loop(bench, tape, graph=None, after=(), **ends):
    """Add a loop that moves a tape on, and return the graph."""
    graph = new_graph(bench) if graph is None else graph
    loop = Loop(bench, graph, after)
    loop.ends([loop.add(tape.step)], **ends)
    return graph


def moved(bench, tape, terms, **options):
    """Return the first element of a tape behind a loop with this condition."""
    bench.launch(instantiate(bench, tape_loop(bench, tape, terms=terms, **options)))
    return tape.first()


# ---- Graphs within graphs -------------------------------------------------------------------------------------


def test_a_graph_is_a_node_by_value(bench):
    a, b, c = (bench.block() for _ in range(3))
    within = bench.record()
    within.fill(a, 5, after=[])
    within.fill(b, 6, after=[])
    within.end()
    recording = bench.record()
    first = recording.fill(a, 1)
    node = raw_graphs.add_graph_node(bench.driver, recording.graph, [first], within.graph)
    recording.copy(c, b, after=[node])
    assert recording.end().shape() == (3, {(0, 1), (1, 2)})
    bench.graphs.remove(within.graph)
    raw_graphs.destroy_graph(bench.driver, within.graph)
    graph = recording.instantiate()
    for _ in range(2):
        bench.driver.fill(b, 0, b"\0", NBYTES, bench.main)
        bench.launch(graph)
        assert [bench.read(block)[-1] for block in (a, b, c)] == [5, 6, 6]


def test_graphs_in_graphs_in_graphs_keep_their_order(bench):
    data = random_bytes()
    blocks = [bench.block(data), *(bench.block() for _ in range(4))]
    graph = None
    for number, (source, to) in enumerate(pairwise(blocks)):
        recording = bench.record()
        after = []
        if graph is not None:
            after = [raw_graphs.add_graph_node(bench.driver, recording.graph, [], graph)]
        recording.copy(to, source, after=after)
        graph = recording.end().graph
        assert recording.shape()[0] == min(number + 1, 2)
    bench.launch(recording.instantiate())
    assert np.array_equal(bench.read(blocks[-1]), data)


def test_a_graph_without_nodes_is_a_node(bench):
    a, b = bench.block(random_bytes()), bench.block()
    empty = bench.record().end()
    recording = bench.record()
    first = recording.copy(b, a)
    node = raw_graphs.add_graph_node(bench.driver, recording.graph, [first], empty.graph)
    recording.fill(b, 3, after=[node], count=8)
    graph = recording.end().instantiate()
    bench.launch(graph)
    assert (bench.read(b)[:8] == 3).all() and np.array_equal(bench.read(b)[8:], bench.read(a)[8:])


# ---- Rounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_loop_that_counts_goes_round_that_often_at_each_launch(bench, count):
    tape, rounds = Tape(bench, np.arange(16)), counter(bench)
    graph = instantiate(bench, tape_loop(bench, tape, counter=rounds, count=count))
    for _ in range(5):
        bench.launch(graph)
        assert tape.first() == count
        assert bench.read(rounds, nbytes=8).view(np.uint64)[0] == 0
        tape.rewind()


def test_launches_that_nobody_waits_for_go_round_one_after_the_other(bench):
    tape = Tape(bench, np.arange(32))
    graph = instantiate(bench, tape_loop(bench, tape, counter=counter(bench), count=3))
    for _ in range(5):
        bench.launch(graph)
    assert tape.first() == 15


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("compare, last", [("<", 5), ("<=", 6), (">", 1), (">=", 1)])
def test_a_loop_goes_on_while_a_term_holds(bench, dtype, compare, last):
    tape = Tape(bench, np.arange(12).astype(dtype))
    assert moved(bench, tape, [(tape.address, dtype, compare, 5, False)]) == last
    falling = Tape(bench, np.arange(12)[::-1].astype(dtype))
    last = {"<": 10, "<=": 10, ">": 5, ">=": 4}[compare]
    assert moved(bench, falling, [(falling.address, dtype, compare, 5, False)]) == last


def test_thresholds_are_of_the_values_type(bench):
    # As a float32, 0.1 is larger than as a double.
    tape = Tape(bench, np.array([0, 0.1, 0.1, 0.2], np.float32))
    assert moved(bench, tape, [(tape.address, "float32", "<=", 0.1, False)]) == np.float32(0.2)
    large = 2**53
    tape = Tape(bench, np.array([0, large, large + 1, large + 2]))
    assert moved(bench, tape, [(tape.address, "int64", "<=", large, False)]) == large + 1


def test_nan_ends_a_comparison_and_not_its_negation(bench):
    tape = Tape(bench, np.array([0, 1, np.nan, 7, 8], np.float32))
    assert np.isnan(moved(bench, tape, [(tape.address, "float32", "<", 5, False)]))
    tape.rewind()
    assert moved(bench, tape, [(tape.address, "float32", ">=", 5, True)]) == 7


def test_terms_hold_together_or_any_of_them(bench):
    up, down = Tape(bench, np.arange(16)), Tape(bench, np.arange(16)[::-1].copy())
    terms = [(up.address, "int64", "<", 9, False), (down.address, "int64", ">", 11, False)]
    for any_of, last in ((False, 4), (True, 9)):
        graph = new_graph(bench)
        loop = Loop(bench, graph)
        loop.ends([loop.add(up.step), loop.add(down.step)], terms, any_of=any_of)
        bench.launch(instantiate(bench, graph))
        assert (up.first(), down.first()) == (last, 15 - last)
        up.rewind()
        down.rewind()


def test_eight_terms_fit(bench):
    tape = Tape(bench, np.arange(32))
    terms = [(tape.address, "int64", "<", 20 + number, False) for number in range(8)]
    assert moved(bench, tape, terms) == 20
    tape.rewind()
    with pytest.raises(errors.DriverError, match="at most 8 terms: got 9"):
        moved(bench, tape, [*terms, terms[0]])


def test_a_condition_can_be_set_before_its_loop(bench):
    tape = Tape(bench, np.arange(16))
    graph = new_graph(bench)
    before = raw_graphs.add_empty_node(bench.driver, graph, [])
    condition = raw_graphs.create_condition(bench.driver, graph, bench.driver.primary_context(0))
    loop = Loop.__new__(Loop)
    loop.bench, loop.driver, loop.condition = bench, bench.driver, condition
    loop.context = bench.driver.primary_context(0)
    terms = [(tape.address, "int64", "<", 4, False)]
    asked = loop.set_in(graph, [before], terms)
    _, loop.body = raw_graphs.add_loop_node(bench.driver, graph, [asked], condition, loop.context)
    loop.ends([loop.add(tape.step)], terms)
    run = instantiate(bench, graph)
    for _ in range(3):
        bench.launch(run)  # the first time until 4 is reached, then not at all
        assert tape.first() == 4


# ---- What is around a loop ------------------------------------------------------------------------------------


def test_what_precedes_and_follows_a_loop_is_in_order(bench):
    tape, to = Tape(bench, np.arange(16)), bench.block()
    before = bench.record()
    before.fill(tape.address, 0, count=8)
    before.end()
    behind = bench.record()
    behind.copy(to, tape.address, nbytes=8)
    behind.end()
    graph = new_graph(bench)
    first = raw_graphs.add_graph_node(bench.driver, graph, [], before.graph)
    loop = Loop(bench, graph, [first])
    loop.ends([loop.add(tape.step)], counter=counter(bench), count=6)
    raw_graphs.add_graph_node(bench.driver, graph, [loop.node], behind.graph)
    bench.launch(instantiate(bench, graph))
    assert bench.read(to)[0] == 6


def test_a_branch_beside_a_loop_joins_it(bench):
    tape, other, to = Tape(bench, np.arange(16)), bench.block(), bench.block()
    recording = bench.record()
    first = recording.fill(other, 1)
    beside = recording.fill(other, 2, after=[first], count=NBYTES // 2)
    loop = Loop(bench, recording.graph, [first])
    loop.ends([loop.add(tape.step)], counter=counter(bench), count=4)
    recording.copy(to, other, after=[beside, loop.node])
    recording.copy(to, tape.address, nbytes=8)
    assert recording.end().shape() == (5, {(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)})
    bench.launch(recording.instantiate())
    assert bench.read(to)[:9].tolist() == [4, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bench.read(to)[-1] == 1


def test_two_loops_in_one_graph_have_their_own_conditions(bench):
    tapes = [Tape(bench, np.arange(16)) for _ in range(2)]
    graph = new_graph(bench)
    for count, tape in zip((3, 5), tapes, strict=True):
        tape_loop(bench, tape, graph, counter=counter(bench), count=count)
    bench.launch(instantiate(bench, graph))
    assert [tape.first() for tape in tapes] == [3, 5]


def test_loops_go_round_in_loops(bench):
    inner_tape, outer_tape = Tape(bench, np.arange(32)), Tape(bench, np.arange(32))
    graph = new_graph(bench)
    outer = Loop(bench, graph)
    condition = raw_graphs.create_condition(bench.driver, outer.body, outer.context)
    # True once a launch: whoever wants an inner loop to go round again says so before it.
    again = raw_graphs.add_condition_node(
        bench.driver, outer.body, [], condition, outer.context, kernel=condition_kernel_of(bench.driver)
    )
    node, body = raw_graphs.add_loop_node(bench.driver, outer.body, [again], condition, outer.context)
    step = raw_graphs.add_graph_node(bench.driver, body, [], inner_tape.step.graph)
    raw_graphs.add_condition_node(
        bench.driver,
        body,
        [step],
        condition,
        outer.context,
        counter=counter(bench),
        count=3,
        kernel=condition_kernel_of(bench.driver),
    )
    last = outer.add(outer_tape.step, [node])
    outer.ends([last], [(outer_tape.address, "int64", "<", 4, False)])
    run = instantiate(bench, graph)
    for _ in range(2):
        bench.launch(run)
        assert (inner_tape.first(), outer_tape.first()) == (12, 4)
        inner_tape.rewind()
        outer_tape.rewind()


def test_a_loop_goes_round_on_a_green_context(bench):
    stream = green_streams(bench)[0]
    context = bench.contexts[0]
    tape = Tape(bench, np.arange(16), stream)
    graph = new_graph(bench)
    loop = Loop(bench, graph, context=context)
    loop.ends([loop.add(tape.step)], [(tape.address, "int64", "<", 7, False)])
    run = instantiate(bench, graph)
    for on in (bench.main, stream):
        bench.launch(run, on)
        bench.driver.synchronize_stream(on)
        assert tape.first() == 7
        tape.rewind()


# ---- Executables ------------------------------------------------------------------------------------------------


def test_an_executable_with_a_loop_outlives_its_graph(bench):
    tape = Tape(bench, np.arange(16))
    graph = tape_loop(bench, tape, counter=counter(bench), count=5)
    run = instantiate(bench, graph)
    bench.graphs.remove(graph)
    raw_graphs.destroy_graph(bench.driver, graph)
    for _ in range(2):
        bench.launch(run)
        assert tape.first() == 5
        tape.rewind()


def test_an_update_of_a_loop_fits_or_leaves_it_as_it_was(bench):
    tapes = [Tape(bench, np.arange(16)) for _ in range(2)]
    graphs = [
        tape_loop(bench, tape, counter=counter(bench), count=count)
        for tape, count in zip(tapes, (2, 3), strict=True)
    ]
    run = instantiate(bench, graphs[0])
    fits = raw_graphs.update_graph_exec(bench.driver, run, graphs[1])
    bench.launch(run)
    assert [tape.first() for tape in tapes] == ([0, 3] if fits else [2, 0])
    plain = bench.record()
    plain.fill(tapes[0].address, 9, count=8)
    assert raw_graphs.update_graph_exec(bench.driver, run, plain.end().graph) is False


# ---- What is refused --------------------------------------------------------------------------------------------


def test_a_body_belongs_to_the_graph_of_its_loop(bench):
    driver, graph = bench.driver, new_graph(bench)
    run = bench.record().end().instantiate()
    loop = Loop(bench, graph)
    for call in (
        lambda: raw_graphs.destroy_graph(driver, loop.body),
        lambda: raw_graphs.instantiate_graph(driver, loop.body),
        lambda: raw_graphs.begin_capture(driver, loop.body, bench.stream()),
        lambda: raw_graphs.update_graph_exec(driver, run, loop.body),
        lambda: raw_graphs.add_graph_node(driver, new_graph(bench), [], loop.body),
    ):
        with pytest.raises(errors.DriverError, match="is the body of a loop"):
            call()
    with pytest.raises(errors.DriverError, match="a graph with loops in it cannot be a node"):
        raw_graphs.add_graph_node(driver, new_graph(bench), [], graph)


def test_a_graph_that_is_being_recorded_is_no_node(bench):
    recording = bench.record()
    with pytest.raises(errors.DriverError):
        raw_graphs.add_graph_node(bench.driver, new_graph(bench), [], recording.graph)
    recording.end()


def test_conditions_that_make_no_sense_are_refused(bench):
    loop, rounds = Loop(bench, new_graph(bench)), counter(bench)
    with pytest.raises(errors.DriverError, match="at least once: got count=0"):
        loop.ends([], counter=rounds)
    with pytest.raises(errors.DriverError, match="counts or has terms: got both"):
        loop.ends([], [(rounds, "int64", "<", 1, False)], counter=rounds, count=1)


def test_a_body_holds_no_host_function(bench):
    def build():
        recording = bench.record()
        recording.call(print)
        loop = Loop(bench, new_graph(bench))
        loop.ends([loop.add(recording.end())], counter=counter(bench), count=1)
        instantiate(bench, loop.graph)

    with pytest.raises(errors.DriverError):
        build()
