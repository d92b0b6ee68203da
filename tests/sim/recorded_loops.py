"""Loops in graphs, for tests that build them through the seam."""

import ctypes

import numpy as np
import pytest

from stf_places._native import raw_graphs


def condition_kernel_of(driver):
    """Return what sets conditions: nothing on a simulated machine, the stand-in's own kernel on the stand-in."""
    if driver.simulated:
        return 0
    if driver.version() < 12040:
        pytest.skip("needs a driver of CUDA 12.4, which has loops in graphs")
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL("libcuda.so.1"), "set_condition_kernel"))
    except ValueError:
        pytest.importorskip("cuda.core")
        from stf_places.flow.condition_kernels import condition_kernel

        return condition_kernel(driver, 0)


class Loop:
    """A loop in a graph: nodes are added to its body, and something that ends it."""

    def __init__(self, bench, graph, after=(), context=None):
        self.bench, self.driver = bench, bench.driver
        self.context = self.driver.primary_context(0) if context is None else context
        self.condition = raw_graphs.create_condition(self.driver, graph, self.context)
        self.node, self.body = raw_graphs.add_loop_node(
            self.driver, graph, after, self.condition, self.context
        )
        self.graph = graph

    def add(self, recording, after=()):
        """Add a recorded graph to the body."""
        return raw_graphs.add_graph_node(self.driver, self.body, after, recording.graph)

    def ends(self, after, terms=(), **options):
        """Set the condition at the end of each round."""
        return self.set_in(self.body, after, terms, **options)

    def set_in(self, graph, after, terms=(), **options):
        return raw_graphs.add_condition_node(
            self.driver,
            graph,
            after,
            self.condition,
            self.context,
            terms,
            kernel=condition_kernel_of(self.driver),
            **options,
        )


def new_graph(bench):
    bench.graphs.append(raw_graphs.create_graph(bench.driver))
    return bench.graphs[-1]


def instantiate(bench, graph):
    bench.execs.append(raw_graphs.instantiate_graph(bench.driver, graph))
    return bench.execs[-1]


def counter(bench):
    """Return a number of 64 bits on the device, 0."""
    return bench.block(np.zeros(1, np.uint64))


class Tape:
    """An array on the device that moves on by one element each round, so that rounds can be told by values."""

    def __init__(self, bench, values, stream=None):
        self.bench, self.values = bench, np.asarray(values)
        self.address = bench.block(self.values)
        self.scratch = bench.block(self.values)
        self.step = bench.record(*(() if stream is None else (stream,)))
        rest = self.values.nbytes - self.values.itemsize
        self.step.copy(self.scratch, self.address + self.values.itemsize, nbytes=rest)
        self.step.copy(self.address, self.scratch, nbytes=rest)
        self.step.end()

    def rewind(self):
        values, stream = self.values, self.bench.main
        self.bench.driver.copy(self.address, 0, values.ctypes.data, "host", values.nbytes, stream)
        self.bench.wait()

    def first(self):
        return self.bench.read(self.address, nbytes=self.values.nbytes).view(self.values.dtype)[0]
