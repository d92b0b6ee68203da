"""Streams, memory and graphs of a driver, for tests that record and launch graphs through the seam."""

import contextlib

import numpy as np
import pytest

from stf_places import errors
from stf_places._native import raw_graphs, sm_splits

NBYTES = 1024


def random_bytes(nbytes=NBYTES, seed=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


class Bench:
    """Streams and memory of a driver, and a stream that records nothing."""

    def __init__(self, driver):
        self.driver = driver
        self.contexts, self.streams, self.blocks, self.pinned, self.graphs, self.execs = (
            [],
            [],
            [],
            [],
            [],
            [],
        )
        self.main = self.stream()

    def stream(self, device=0, context=None):
        context = self.driver.primary_context(device) if context is None else context
        self.streams.append(self.driver.create_stream(context))
        return self.streams[-1]

    def green_stream(self, group):
        self.contexts.append(sm_splits.create_green_context(self.driver, 0, [group]))
        return self.stream(context=self.contexts[-1])

    def block(self, data=None, device=0):
        """Return a block of device memory that holds `data`, or zeros."""
        data = np.zeros(NBYTES, np.uint8) if data is None else data
        stream = self.main if device == 0 else self.stream(device)
        address = self.driver.allocate_device(device, data.nbytes, stream)
        self.blocks.append((device, address, stream))
        self.driver.copy(address, device, data.ctypes.data, "host", data.nbytes, stream)
        self.driver.synchronize_stream(stream)
        return address

    def host(self, dtype=np.uint8, nbytes=NBYTES):
        """Return pinned memory as an array."""
        address = self.driver.allocate_host(nbytes)
        self.pinned.append(address)
        buffer = (np.ctypeslib.ctypes.c_uint8 * nbytes).from_address(address)
        array = np.frombuffer(buffer, dtype)
        array[:] = 0
        return array

    def read(self, address, device=0, nbytes=NBYTES, stream=None):
        data = np.empty(nbytes, np.uint8)
        stream = self.main if stream is None else stream
        self.driver.copy(data.ctypes.data, "host", address, device, nbytes, stream)
        self.driver.synchronize_stream(stream)
        return data

    def record(self, *streams):
        return Recording(self, streams or (self.stream(),))

    def launch(self, graph, stream=None):
        raw_graphs.launch_graph(self.driver, graph, self.main if stream is None else stream)

    def wait(self):
        self.driver.synchronize_stream(self.main)

    def close(self):
        for stream in self.streams:
            self.driver.synchronize_stream(stream)
        for one in self.execs:
            raw_graphs.destroy_graph_exec(self.driver, one)
        for one in self.graphs:
            raw_graphs.destroy_graph(self.driver, one)
        for device, address, stream in self.blocks:
            self.driver.free_device(device, address, stream)
            self.driver.synchronize_stream(stream)
        for address in self.pinned:
            self.driver.free_host(address)
        for stream in self.streams:
            self.driver.destroy_stream(stream)
        for context in self.contexts:
            sm_splits.destroy_green_context(self.driver, context)


class Recording:
    """A graph that is being recorded on some streams, the first of which began the capture."""

    def __init__(self, bench, streams):
        self.bench, self.driver, self.streams = bench, bench.driver, streams
        self.graph = raw_graphs.create_graph(self.driver)
        bench.graphs.append(self.graph)
        raw_graphs.begin_capture(self.driver, self.graph, streams[0])
        for stream in streams[1:]:
            raw_graphs.join_capture(self.driver, streams[0], stream)

    def node(self, after, stream, enqueue):
        """Add a node behind others; None: as the stream has it."""
        stream = self.streams[0] if stream is None else stream
        if after is not None:
            raw_graphs.set_capture_dependencies(self.driver, stream, after)
            assert set(raw_graphs.capture_dependencies(self.driver, stream)) == set(after)
        enqueue(stream)
        (node,) = raw_graphs.capture_dependencies(self.driver, stream)
        return node

    def fill(self, to, value, after=None, stream=None, count=NBYTES, device=0):
        return self.node(after, stream, lambda on: self.driver.fill(to, device, bytes([value]), count, on))

    def copy(self, to, source, after=None, stream=None, nbytes=NBYTES, to_at=0, from_at=0):
        return self.node(after, stream, lambda on: self.driver.copy(to, to_at, source, from_at, nbytes, on))

    def call(self, function, after=None, stream=None):
        return self.node(after, stream, lambda on: raw_graphs.record_host_function(self.driver, on, function))

    def empty(self, after):
        return raw_graphs.add_empty_node(self.driver, self.graph, after)

    def end(self):
        raw_graphs.end_capture(self.driver, self.streams[0], self.streams[1:])
        return self

    def shape(self):
        """Return the number of nodes and the edges by position."""
        nodes, edges = raw_graphs.graph_nodes(self.driver, self.graph)
        assert len(set(nodes)) == len(nodes)
        place = {node: position for position, node in enumerate(nodes)}
        return len(nodes), {(place[a], place[b]) for a, b in edges}

    def instantiate(self):
        self.bench.execs.append(raw_graphs.instantiate_graph(self.driver, self.graph))
        return self.bench.execs[-1]


def green_streams(bench, count=2):
    try:
        whole = sm_splits.device_sms(bench.driver, 0)
    except errors.NotSupported as error:
        pytest.skip(f"needs green contexts: {error}")
    groups, _ = sm_splits.split_sms(bench.driver, whole, whole.min_partition, groups=count)
    return [bench.green_stream(group) for group in groups]


def random_graph(bench, streams, seed):
    """Record random copies and fills with the edges that they need, and return what they do to an array."""
    rng = np.random.default_rng(seed)
    blocks = [bench.block(random_bytes(seed=number)) for number in range(4)]
    recording = bench.record(*streams)
    steps, writer, readers = [], {}, {}
    for _ in range(40):
        to, source = rng.choice(4, 2, replace=False)
        offset, value = int(rng.integers(NBYTES // 2)), int(rng.integers(256))
        is_fill = bool(rng.random() < 0.4)
        after = {writer.get(to), *readers.get(to, ())} | (set() if is_fill else {writer.get(source)})
        after, stream = sorted(after - {None}), streams[rng.integers(len(streams))]
        size = NBYTES // 2
        if is_fill:
            node = recording.fill(blocks[to] + offset, value, after, stream, size)
        else:
            node = recording.copy(blocks[to] + offset, blocks[source], after, stream, size)
            readers.setdefault(source, []).append(node)
        writer[to], readers[to] = node, []
        steps.append((to, offset, None if is_fill else source, value))

    def run(arrays):
        for to, offset, source, value in steps:
            arrays[to][offset : offset + size] = value if source is None else arrays[source][:size]

    return recording.end(), blocks, run


@contextlib.contextmanager
def opened(driver):
    """Give a bench on a driver, and see that nothing is left of it."""
    if driver.version() < 12030:
        pytest.skip("needs a driver of CUDA 12.3, which can capture into a graph")
    bench = Bench(driver)
    yield bench
    bench.close()
    if driver.simulated:
        assert raw_graphs.live_graphs(driver) == 0
        assert driver.live_allocations() == 0
