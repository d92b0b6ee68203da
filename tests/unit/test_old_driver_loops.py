"""Loops in graphs of CudaDriver, on the stand-in for libcuda, which has a kernel that sets conditions."""

from pathlib import Path

import pytest

CONTRACT = str(Path(__file__).parents[1] / "sim" / "test_loop_contract.py")
PRELUDE = """
import ctypes
from stf_places._native.raw_graphs import *
driver = cuda_driver()
context = driver.primary_context(0)
stream = driver.create_stream(context)
kernel = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL("libcuda.so.1"), "set_condition_kernel"))
rounds = driver.allocate_device(0, 8, stream)
driver.fill(rounds, 0, bytes(8), 1, stream)
"""
LOOP = """
graph = create_graph(driver)
condition = create_condition(driver, graph, context)
node, body = add_loop_node(driver, graph, [], condition, context)
def ends(count, **options):
    given = {"kernel": kernel, "counter": rounds, "count": count, **options}
    return add_condition_node(driver, body, [], condition, context, **given)
"""
CALLS = "cuGraphAddChildGraphNode cuGraphConditionalHandleCreate cuGraphAddNode cuGraphAddKernelNode".split()


@pytest.mark.parametrize("last_first", ["0", "1"])
def test_the_whole_contract_on_the_stand_in(run, last_first):
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", CONTRACT]
    out = run(None, *options, FAKE_LAST_FIRST=last_first)
    assert " passed" in out and "skipped" not in out


def test_no_context_is_needed_and_none_is_left_current(look):
    out, _ = look(
        LOOP
        + """
ends(3)
run = instantiate_graph(driver, graph)
launch_graph(driver, run, stream)
assert driver.current_context() == 0
driver.set_current_context(driver.primary_context(1))
launch_graph(driver, run, stream)
destroy_graph_exec(driver, run)
destroy_graph(driver, graph)
assert driver.current_context() == driver.primary_context(1)
print(graph_nodes(driver, create_graph(driver)))
"""
    )
    assert out == "([], [])\n"


def test_a_body_is_forgotten_with_its_graph(look):
    out, calls = look(
        LOOP
        + """
inner = create_condition(driver, body, context)
_, within = add_loop_node(driver, body, [], inner, context)
for one in body, within:
    print("is the body of a loop" in str(failure(destroy_graph, driver, one)))
destroy_graph(driver, graph)
for one in body, within:
    print(failure(destroy_graph, driver, one).code)
"""
    )
    assert out == "True\nTrue\n1\n1\n"
    assert calls.count("cuGraphDestroy") == 3


def test_graphs_with_loops_get_executables_of_their_own(look):
    out, calls = look(
        LOOP
        + """
ends(2)
run = instantiate_graph(driver, graph)
print(update_graph_exec(driver, run, graph))
"""
    )
    assert out == "False\n"
    assert "cuGraphExecUpdate" not in calls


@pytest.mark.parametrize("version", ["12030", "12020"])
def test_an_older_driver_names_the_version_that_has_loops(look, version):
    program = """
graph = 1
for call in (
    lambda: create_condition(driver, graph, context),
    lambda: add_loop_node(driver, graph, [], 1, context),
    lambda: add_condition_node(driver, graph, [], 1, context, kernel=kernel),
):
    error = failure(call)
    print(type(error).__name__, "loops in graphs come with CUDA 12.4" in str(error))
"""
    out, calls = look(program, FAKE_VERSION=version)
    assert out == "NotSupported True\n" * 3
    assert not set(calls) & set(CALLS)


def test_a_driver_of_12_4_has_loops(look):
    program = LOOP + "ends(2)\nlaunch_graph(driver, instantiate_graph(driver, graph), stream)"
    look(program, FAKE_VERSION="12040")


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_entry_point_is_named(look, name):
    program = """
def everything():
    graph = create_graph(driver)
    add_graph_node(driver, graph, [], create_graph(driver))
    condition = create_condition(driver, graph, context)
    _, body = add_loop_node(driver, graph, [], condition, context)
    add_condition_node(driver, body, [], condition, context, counter=rounds, count=1, kernel=kernel)
error = failure(everything)
print(type(error).__name__, error.call)
"""
    out, _ = look(program, FAKE_WITHOUT=name)
    assert out == f"NotSupported {name}\n"


def test_what_the_driver_refuses_is_explained(look):
    out, _ = look(
        LOOP
        + """
strange = add_empty_node(driver, create_graph(driver), [])
other = create_graph(driver)
child = create_graph(driver)
begin_capture(driver, child, stream)
record_host_function(driver, stream, print)
end_capture(driver, stream, [])
for call in (
    lambda: add_graph_node(driver, graph, [strange], create_graph(driver)),
    lambda: add_graph_node(driver, body, [], child),
    lambda: add_loop_node(driver, graph, [], condition, context),
    lambda: add_condition_node(driver, body, [strange], condition, context, counter=rounds, count=1, kernel=kernel),
    lambda: ends(1, kernel=0),
    lambda: create_condition(driver, graph, 0),
):
    print(failure(call))
"""
    )
    foreign, function, taken, behind, null, condition = out.splitlines()
    assert "a graph as a node after 1 nodes, which have to be of the same graph" in foreign
    assert "the body of a loop holds kernels, fills, copies within the device" in function
    assert "its condition is one of this graph and of the same context, and no other loop's" in taken
    assert "the kernel that sets a condition after 1 nodes" in behind
    assert null.endswith("the kernel that sets conditions is needed: got null")
    assert "the condition of a loop" in condition
