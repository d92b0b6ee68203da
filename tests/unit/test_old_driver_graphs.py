"""Captures and graphs of CudaDriver, on the stand-in for libcuda, whose launches do what was recorded."""

from pathlib import Path

import pytest

CONTRACT = str(Path(__file__).parents[1] / "sim" / "test_graph_contract.py")
PRELUDE = """
import ctypes
from stf_places._native.raw_graphs import *
driver = cuda_driver()
origin, other = (driver.create_stream(driver.primary_context(device)) for device in (0, 1))
graph = 0 if os.environ.get("NO_GRAPH") else create_graph(driver)

class Bytes:  # of pinned memory: pageable memory is read when it is recorded
    def __init__(self, *values):
        self.at = driver.allocate_host(len(values))
        self.all = (ctypes.c_ubyte * len(values)).from_address(self.at)
        self.all[:] = values
    def __repr__(self):
        return repr(list(self.all))

def copy(to, source, stream):
    driver.copy(to.at, "host", source.at, "host", len(to.all), stream)
    return capture_dependencies(driver, stream)

def refusal(function, *arguments):
    error = failure(function, driver, *arguments)
    assert type(error) is errors.DriverError, error
    return error
"""
# One node on the origin, `first`, then what depends on nothing: a node on the other stream, `second`, and
# another one on the origin, `third`.
RECORDED = """
source, a, b, c = Bytes(1, 2), Bytes(0, 0), Bytes(0, 0), Bytes(0, 0)
begin_capture(driver, graph, origin)
join_capture(driver, origin, other)
first, = copy(a, source, origin)
second, = copy(b, source, other)
set_capture_dependencies(driver, origin, [])
third, = copy(c, source, origin)
"""
# Entry points of the stand-in, as the body of a task or a library would call them.
DIRECT = """
cuda = ctypes.CDLL("libcuda.so.1")
def entry(name, version, *types):
    address, found = ctypes.c_void_p(), ctypes.c_int()
    cuda.cuGetProcAddress_v2(name, ctypes.byref(address), version, ctypes.c_uint64(0), ctypes.byref(found))
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address.value)
handle = ctypes.c_uint64
driver.set_current_context(driver.primary_context(0))
"""
CALLS = """
cuStreamBeginCaptureToGraph cuStreamUpdateCaptureDependencies cuStreamGetCaptureInfo
cuStreamEndCapture cuGraphCreate cuGraphAddEmptyNode cuGraphGetNodes cuGraphGetEdges
cuGraphInstantiateWithFlags cuGraphExecUpdate cuGraphLaunch cuGraphExecDestroy cuGraphDestroy
""".split()


@pytest.mark.parametrize("last_first", ["0", "1"])
def test_the_whole_contract_on_the_stand_in(run, last_first):
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", CONTRACT]
    out = run(None, *options, FAKE_LAST_FIRST=last_first)
    assert " passed" in out and "skipped" not in out


def test_independent_nodes_have_no_edge_and_run_at_each_launch(look):
    out, _ = look(
        RECORDED
        + """
print(a, b, c)
end_capture(driver, origin, [other])
nodes, edges = graph_nodes(driver, graph)
assert nodes == [first, second, third] and edges == [], (nodes, edges)
run = instantiate_graph(driver, graph)
launch_graph(driver, run, other)
driver.synchronize_stream(other)
print(a, b, c)
source.all[:] = 7, 8
launch_graph(driver, run, origin)
destroy_graph(driver, graph)
launch_graph(driver, run, origin)
print(a, b, c)
destroy_graph_exec(driver, run)
"""
    )
    assert out == "[0, 0] [0, 0] [0, 0]\n[1, 2] [1, 2] [1, 2]\n[7, 8] [7, 8] [7, 8]\n"


def test_a_node_depends_on_what_was_set_and_the_next_on_it_alone(look):
    out, _ = look(
        RECORDED
        + """
both = add_empty_node(driver, graph, [first, second])
set_capture_dependencies(driver, other, [third, both])
assert capture_dependencies(driver, other) == [third, both]
fourth, = copy(a, b, other)
fifth, = copy(c, a, other)
assert capture_dependencies(driver, origin) == [third]
end_capture(driver, origin, [other])
nodes, edges = graph_nodes(driver, graph)
assert nodes == [first, second, third, both, fourth, fifth]
name = {node: number for number, node in enumerate(nodes, 1)}
print(sorted((name[before], name[after]) for before, after in edges))
"""
    )
    assert out == "[(1, 4), (2, 4), (3, 5), (4, 5), (5, 6)]\n"


@pytest.mark.parametrize("last_first", ["0", "1"])
def test_only_edges_order_nodes(look, last_first):
    out, _ = look(
        """
source, middle, end, other_end = Bytes(5), Bytes(0), Bytes(0), Bytes(0)
begin_capture(driver, graph, origin)
join_capture(driver, origin, other)
first, = copy(middle, source, origin)
set_capture_dependencies(driver, other, [first])
copy(end, middle, other)
set_capture_dependencies(driver, origin, [])
copy(other_end, middle, origin)
end_capture(driver, origin, [other])
run = instantiate_graph(driver, graph)
launch_graph(driver, run, origin)
print(end, other_end)
""",
        FAKE_LAST_FIRST=last_first,
    )
    assert out == ("[5] [0]\n" if last_first == "1" else "[5] [5]\n")


def test_everything_that_streams_do_is_recorded(look):
    out, _ = look(
        DIRECT
        + """
stream = driver.create_stream(driver.primary_context(0))
narrow, wide = (driver.allocate_device(0, 32, stream) for _ in range(2))
seen, calls = [Bytes(*32 * [0]) for _ in range(2)], []
kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
function = kind(lambda _: calls.append(bytes(seen[0].all)))
begin_capture(driver, graph, origin)
driver.fill(narrow, 0, b"ab", 16, origin)
driver.fill(wide, 0, bytes(range(16)), 2, origin)
for address, target in zip((narrow, wide), seen):
    driver.copy(target.at, "host", address, 0, 32, origin)
entry(b"cuLaunchHostFunc", 10000, handle, kind, handle)(origin, function, 0)
end_capture(driver, origin, [])
print(any(seen[0].all), any(seen[1].all), calls)
run = instantiate_graph(driver, graph)
for _ in range(2):
    launch_graph(driver, run, stream)
print(calls == [16 * b"ab", 16 * b"ab"], bytes(seen[1].all) == 2 * bytes(range(16)))
"""
    )
    assert out == "False False []\nTrue True\n"


def test_the_streams_are_free_afterwards(look):
    out, _ = look(
        RECORDED
        + """
assert driver.stream_capturing(origin) and driver.stream_capturing(other)
end_capture(driver, origin, [other])
for stream in origin, other:
    assert not driver.stream_capturing(stream) and driver.query_stream(stream)
    driver.synchronize_stream(stream)
    driver.copy(a.at, "host", source.at, "host", 2, stream)
again = create_graph(driver)
begin_capture(driver, again, other)
join_capture(driver, other, origin)
assert capture_dependencies(driver, origin) == capture_dependencies(driver, other) == []
end_capture(driver, other, [origin])
print(a, graph_nodes(driver, again))
driver.destroy_stream(origin)
"""
    )
    assert out == "[1, 2] ([], [])\n"


def test_no_context_is_needed_and_none_is_left_current(look):
    out, calls = look(
        RECORDED
        + """
end_capture(driver, origin, [other])
run = instantiate_graph(driver, graph)
launch_graph(driver, run, origin)
assert driver.current_context() == 0
driver.set_current_context(driver.primary_context(1))
launch_graph(driver, run, origin)
destroy_graph_exec(driver, run)
assert driver.current_context() == driver.primary_context(1)
print(a)
"""
    )
    assert out == "[1, 2]\n"
    # The event by which a stream joins is gone again.
    assert calls.count("cuEventCreate") == calls.count("cuEventDestroy") == 1


def test_streams_of_green_contexts_join(look):
    out, calls = look(
        """
from stf_places._native.sm_splits import *
groups, left = split_sms(driver, device_sms(driver, 0), 64)
greens = [create_green_context(driver, 0, [group]) for group in groups]
one, two = (driver.create_stream(context) for context in greens)
source, a, b, c = Bytes(3), Bytes(0), Bytes(0), Bytes(0)
begin_capture(driver, graph, one)
for stream in two, origin, other:
    join_capture(driver, one, stream)
copy(a, source, one)
node, = copy(b, source, two)
set_capture_dependencies(driver, other, [node])
copy(c, b, other)
end_capture(driver, one, [two, origin, other])
assert not any(map(driver.stream_capturing, (one, two, origin, other)))
run = instantiate_graph(driver, graph)
launch_graph(driver, run, two)
print(a, b, c, driver.current_context())
"""
    )
    assert out == "[3] [3] [3] 0\n"
    assert "green context made current" not in calls


def test_an_update_takes_over_what_a_graph_of_the_same_form_does(look):
    out, _ = look(
        """
def recorded(source, target, stream, times=1):
    made = create_graph(driver)
    begin_capture(driver, made, stream)
    for _ in range(times):
        copy(target, source, stream)
    end_capture(driver, stream, [])
    return made

one, two, target = Bytes(1), Bytes(2), Bytes(0)
run = instantiate_graph(driver, recorded(one, target, origin))
for made in recorded(two, target, origin), recorded(one, target, origin, 2), recorded(one, target, other):
    fits = update_graph_exec(driver, run, made)
    launch_graph(driver, run, origin)
    print(fits, target)
    destroy_graph(driver, made)
"""
    )
    # The executable stays as it was where a graph does not fit: a node more, or another device.
    assert out == "True [2]\nFalse [2]\nFalse [2]\n"


def test_an_update_fails_when_the_call_does(look):
    program = """
run = instantiate_graph(driver, graph)
error = failure(update_graph_exec, driver, run, graph)
print(type(error).__name__, error.call, error.code)
"""
    assert look(program, FAKE_FAIL="cuGraphExecUpdate=700")[0] == "DeviceLost cuGraphExecUpdate 700\n"
    program = "print(update_graph_exec(driver, instantiate_graph(driver, graph), graph))"
    assert look(program, FAKE_FAIL="cuGraphExecUpdate=910")[0] == "False\n"


def test_what_would_make_a_capture_void_is_refused(look):
    out, calls = look(
        RECORDED
        + """
event = driver.create_event(driver.primary_context(0))
run = instantiate_graph(driver, create_graph(driver))
for stream in origin, other:
    for call, *arguments in (
        (driver.query_stream, stream),
        (driver.synchronize_stream, stream),
        (driver.destroy_stream, stream),
        (driver.record_event, event, stream),
        (driver.wait_event, stream, event),
        (driver.allocate_device, 0, 16, stream),
        (driver.free_device, 0, 16, stream),
        (launch_graph, driver, run, stream),
        (join_capture, driver, origin, stream),
    ):
        error = failure(call, *arguments)
        assert "end the capture first, or take another stream" in str(error), error
for call, *arguments in (
    (destroy_graph, graph),
    (instantiate_graph, graph),
    (update_graph_exec, run, graph),
    (begin_capture, graph, driver.create_stream(driver.primary_context(0))),
):
    assert "still being captured into this graph; end the capture first" in str(refusal(call, *arguments))
driver.trim_device(0)
error = failure(driver.fill, a.at, "host", b"x", 2, origin)
assert type(error) is errors.NotSupported, error
end_capture(driver, origin, [other])
print(len(graph_nodes(driver, graph)[0]))
"""
    )
    assert out == "3\n"
    assert "cuCtxSynchronize" not in calls and "cuStreamQuery" not in calls


def test_captures_that_were_not_begun_are_named(look):
    out, _ = look(
        """
print(refusal(set_capture_dependencies, origin, []))
print(refusal(capture_dependencies, origin))
print(refusal(join_capture, origin, other))
print(refusal(end_capture, origin, []))
print(refusal(begin_capture, graph, 0))
begin_capture(driver, graph, origin)
join_capture(driver, origin, other)
print(refusal(join_capture, other, driver.create_stream(driver.primary_context(0))))
print(refusal(end_capture, other, [origin]))
print(refusal(join_capture, origin, 0))
end_capture(driver, origin, [other])
"""
    )
    assert out == (
        "cuStreamUpdateCaptureDependencies failed: CUDA_ERROR_ILLEGAL_STATE (401): the stream takes part in no "
        "capture; begin one on it, or let it join one\n"
        "cuStreamGetCaptureInfo failed: the stream takes part in no capture; begin one on it, or let it join one\n"
        "cuStreamWaitEvent failed: streams join the capture of the stream that began it, and this one began none\n"
        "cuStreamEndCapture failed: this stream began no capture\n"
        "cuStreamBeginCaptureToGraph failed: a default stream cannot be captured; make a stream for it\n"
        "cuStreamWaitEvent failed: streams join the capture of the stream that began it, and this one began none\n"
        "cuStreamEndCapture failed: this stream began no capture\n"
        "cuStreamWaitEvent failed: a default stream cannot be captured; make a stream for it\n"
    )


def test_nodes_of_another_graph_are_refused(look):
    out, _ = look(
        """
stranger = add_empty_node(driver, create_graph(driver), [])
print(refusal(add_empty_node, graph, [stranger]))
begin_capture(driver, graph, origin)
print(refusal(set_capture_dependencies, origin, [stranger]))
end_capture(driver, origin, [])
"""
    )
    assert "an empty node after 1 nodes, which have to be of the same graph" in out
    assert "setting 1 dependencies; they are nodes of the graph that is captured into" in out


def test_a_spoiled_capture_frees_its_streams_and_takes_the_graph_along(look):
    out, calls = look(
        RECORDED
        + DIRECT
        + """
assert entry(b"cuCtxSynchronize", 2000)() == 900
print(refusal(capture_dependencies, other))
print(refusal(end_capture, origin, [other]))
assert not driver.stream_capturing(origin) and not driver.stream_capturing(other)
driver.synchronize_stream(other)
destroy_graph(driver, graph)
graph = create_graph(driver)
begin_capture(driver, graph, origin)
end_capture(driver, origin, [])
destroy_graph(driver, graph)
"""
    )
    void, ended = out.splitlines()
    for text in void, ended:
        assert "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901): an earlier call made the capture void" in text
    # The driver has destroyed the first graph itself.
    assert calls.count("cuGraphDestroy") == 1 and calls.count("cuStreamEndCapture") == 2


@pytest.mark.parametrize("joined", ["", "1"])
def test_a_stream_that_a_body_drew_in_has_to_be_waited_for(look, joined):
    out, _ = look(
        RECORDED
        + DIRECT
        + """
stray = driver.create_stream(driver.primary_context(0))
event = driver.create_event(driver.primary_context(0))
record = entry(b"cuEventRecord", 2000, handle, handle)
wait = entry(b"cuStreamWaitEvent", 3020, handle, handle, ctypes.c_uint)
assert record(event, origin) == 0 and wait(stray, event, 0) == 0
assert driver.stream_capturing(stray)
last, = copy(a, source, stray)
if os.environ["JOINED"]:
    assert record(event, stray) == 0 and wait(origin, event, 0) == 0
    assert capture_dependencies(driver, origin) == [third, last]
    end_capture(driver, origin, [other])
    print(*map(len, graph_nodes(driver, graph)))
else:
    print(refusal(end_capture, origin, [other]))
assert not driver.stream_capturing(stray)
""",
        JOINED=joined,
    )
    assert out == "4 1\n" if joined else "UNJOINED (904): a stream was drawn into the capture" in out


def test_a_captured_stream_waits_for_no_event_from_outside(look):
    out, _ = look(
        RECORDED
        + DIRECT
        + """
event = driver.create_event(driver.primary_context(0))
driver.record_event(event, driver.create_stream(driver.primary_context(0)))
print(entry(b"cuStreamWaitEvent", 3020, handle, handle, ctypes.c_uint)(origin, event, 0))
print(refusal(end_capture, origin, [other]).code)
"""
    )
    assert out == "905\n901\n"


def test_a_capture_is_ended_after_a_failure_too(look, name=CALLS[1]):
    # The stand-in reads its settings at each call, so a program can order a failure half-way.
    out, calls = look(
        RECORDED
        + """
setenv = ctypes.CDLL(None).setenv
setenv(b"FAKE_FAIL", f"{os.environ['BROKEN']}=999".encode(), 1)
error = failure(end_capture, driver, origin, [other])
setenv(b"FAKE_FAIL", b"", 1)
assert not driver.stream_capturing(origin) and not driver.stream_capturing(other)
driver.synchronize_stream(other)
destroy_graph(driver, graph)
print(error.call, error.code)
""",
        BROKEN=name,
    )
    assert out == f"{name} 999\n"
    assert "cuStreamEndCapture" in calls and "cuGraphDestroy" not in calls


def test_a_driver_of_12_2_records_no_graphs_and_works(look):
    program = """
print(repr(failure(create_graph, driver)))
driver.synchronize_stream(driver.create_stream(driver.primary_context(0)))
"""
    out, calls = look(program, FAKE_VERSION="12020", NO_GRAPH="1")
    assert "NotSupported" in out and "cuStreamBeginCaptureToGraph, which comes with CUDA 12.3" in out
    assert "cuGraphCreate" not in calls


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_entry_point_is_named(look, name):
    out, _ = look(
        """
source, target = Bytes(1), Bytes(0)
def everything():
    graph = create_graph(driver)
    begin_capture(driver, graph, origin)
    copy(target, source, origin)
    set_capture_dependencies(driver, origin, [add_empty_node(driver, graph, [])])
    end_capture(driver, origin, [])
    run = instantiate_graph(driver, graph)
    assert graph_nodes(driver, graph) and update_graph_exec(driver, run, graph)
    launch_graph(driver, run, origin)
    destroy_graph_exec(driver, run)
    destroy_graph(driver, graph)
error = failure(everything)
print(type(error).__name__, error.call, error)
""",
        FAKE_WITHOUT=name,
        NO_GRAPH="1",
    )
    assert out.startswith(f"NotSupported {name} ") and f"does not have {name}, which comes with CUDA" in out


def test_nothing_newer_than_12_3_is_asked_for(run, tmp_path):
    log = tmp_path / "log"
    run(PRELUDE + RECORDED + "end_capture(driver, origin, [other])", FAKE_LOG=str(log), FAKE_VERSION="12030")
    asked = [line.split() for line in log.read_text().splitlines() if not line.startswith("!")]
    assert max(int(version) for _, version in asked) == 12030


def test_the_child_of_a_fork_is_told_to_spawn(look):
    out, _ = look(
        """
run = instantiate_graph(driver, graph)
child = os.fork()
if child == 0:
    for call, *arguments in (
        (create_graph,), (begin_capture, graph, origin), (set_capture_dependencies, origin, []),
        (capture_dependencies, origin), (add_empty_node, graph, []), (graph_nodes, graph),
        (instantiate_graph, graph), (update_graph_exec, run, graph), (launch_graph, run, origin),
        (destroy_graph_exec, run), (destroy_graph, graph),
    ):
        assert "multiprocessing.get_context('spawn')" in str(refusal(call, *arguments)), call
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    )
    assert out == "0\n"
