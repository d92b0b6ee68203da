"""Work of tasks in scopes: functions on a simulated machine, kernels on a GPU, callbacks on the stand-in."""

import contextlib
import ctypes
from unittest import mock

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import runtime
from stf_places.places.compiled_kernels import KernelSource, kernel_for

DTYPES = {"f4": "float", "f8": "double", "i4": "int", "i8": "long long"}
TEXT = """
template <class T> __device__ void scaled(T* y, T times, T plus, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = times == 0 ? plus : y[i] * times + plus;
}
template <class T> __device__ void mixed(T* y, const T* x, T times, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] += x[i] * times;
}
""" + "".join(
    f'extern "C" __global__ void scale_{name}({kind}* y, {kind} times, {kind} plus, int n)'
    "{ scaled(y, times, plus, n); }\n"
    f'extern "C" __global__ void mix_{name}({kind}* y, const {kind}* x, {kind} times, int n)'
    "{ mixed(y, x, times, n); }\n"
    for name, kind in DTYPES.items()
)


def scale(y, times, plus):
    y[...] = plus if times == 0 else y * times + plus


def mix(y, x, times):
    y += x * times


def stand_in():
    """Return the stand-in's kernel that sets conditions; None where libcuda is NVIDIA's, or missing."""
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL("libcuda.so.1"), "set_condition_kernel"))
    except (OSError, ValueError):
        return None


class Work:
    """Submit tasks whose work is known: `kernels` is False where it runs on the host, after copies."""

    def __init__(self, machine):
        self.simulated = machine.simulated
        self.devices = machine.device_count
        self.kernels = machine.simulated or stand_in() is None
        if self.kernels and not machine.simulated:
            pytest.importorskip("cuda.core", reason="needs cuda.core")

    def scale(self, ctx, place, data, times=1, plus=0, at=None, **options):
        """Multiply and add; with `times=0` overwrite."""
        dep = data.write(at) if times == 0 else data.rw(at)
        self._submit(ctx, place, (dep,), "scale", scale, (times, plus), options)

    def add(self, ctx, place, data, number=1, **options):
        self.scale(ctx, place, data, 1, number, **options)

    def put(self, ctx, place, data, number, **options):
        self.scale(ctx, place, data, 0, number, **options)

    def mix(self, ctx, place, to, source, times=1, **options):
        """Add a multiple of other data."""
        self._submit(ctx, place, (to.rw(), source.read()), "mix", mix, (times,), options)

    def _submit(self, ctx, place, deps, name, function, numbers, options):
        if not self.kernels:
            if "symbol" not in options:
                options = {}
            return ctx.host_launch(
                *(getattr(one.data, one.mode.name.lower())() for one in deps),
                fn=function,
                args=numbers,
                symbol=options.get("symbol"),
            )
        if self.simulated:
            with ctx.task(place, *deps, **options) as t:
                t.run(function, *(t.get_arg_cai(k) for k in range(len(deps))), *numbers)
            return None
        data = [one.data for one in deps]
        kernel = self.kernel(f"{name}_{data[0].dtype.str[1:]}", place)
        numbers = [data[0].dtype.type(one) for one in numbers]
        with ctx.cuda_kernel(place, *deps, **options) as t:
            t.launch(kernel, 1, 128, [*data, *numbers, np.int32(data[0].size)])
        return None

    @staticmethod
    def kernel(name, place, text=TEXT, **options):
        return kernel_for(
            runtime.current().driver, place.device_id, KernelSource(name, text, "tests", **options)
        )


@contextlib.contextmanager
def prepared(machine):
    """Give what submits work, and see that nothing unordered was found."""
    kernel = None if machine.simulated else stand_in()
    with contextlib.ExitStack() as stack:
        if kernel is not None:
            where = "stf_places.flow.condition_kernels.condition_kernel"
            stack.enter_context(mock.patch(where, lambda driver, device: kernel))
        yield Work(machine)
    if machine.simulated:
        assert machine.conflicts == ()


class Failed(Exception):
    """Raised by bodies of tests."""


def recorded(ctx, record):
    """Return a graph that was recorded by a function, to be launched."""
    ctx.push()
    record()
    return ctx.pop_prologue_shared()


def task_edges(graph):
    """Return which tasks come before which by label, and all tasks, through nodes that are none."""
    _, nodes, edges = graph.describe()
    label = {node[0]: node[4] for node in nodes if node[3] in ("task", "host", "loop")}
    after = {}
    for first, second in edges:
        after.setdefault(first, set()).add(second)
    found = set()
    for start, name in label.items():
        left, seen = list(after.get(start, ())), set()
        while left:
            node = left.pop()
            if node in label:
                found.add((name, label[node]))
            elif node not in seen:
                seen.add(node)
                left.extend(after.get(node, ()))
    return sorted(label.values()), found


def on(device):
    return stf.exec_place.device(device)
