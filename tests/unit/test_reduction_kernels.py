"""The kernel of `reduce`: its text, its compilation, and its arithmetic, which runs here on the CPU."""

import ctypes
import doctest
import math
import shutil
import subprocess
from itertools import product

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import runtime
from stf_places.flow import reduction_kernels, reductions
from stf_places.flow.reduction_kernels import (
    BLOCK_ELEMENTS,
    DTYPES,
    KERNEL_NAME,
    MOST_BLOCKS,
    OPERATIONS,
    THREADS,
    StridedBox,
    block_count,
    collapsed,
    launch_reduction,
    most_blocks,
    reduction_source,
)
from stf_places.places.compiled_kernels import compile_kernel

#: What runs on the CPU here.
LINES = tuple((op, dtype, 1) for op, dtype in product(OPERATIONS, DTYPES))
BOXES = tuple(
    (op, *each) for op in OPERATIONS for each in (("int16", 2), ("float32", 3), ("uint64", 4), ("float64", 5))
)
UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}

# What CUDA gives a kernel, with a thread of the CPU for each of a block's, and one block after the other.
PRELUDE = """
#include <barrier>
#include <functional>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
static Index gridDim;
static std::barrier<>* block_barrier;
static void __syncthreads() { block_barrier->arrive_and_wait(); }

static void run_blocks(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  std::barrier<> barrier(threads);
  block_barrier = &barrier;
  gridDim.x = blocks;
  std::vector<std::thread> all;
  for (unsigned thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      threadIdx.x = thread;
      for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        kernel();
        __syncthreads();
      }
    });
  }
  for (std::thread& one : all) one.join();
}
"""
ENTRY = """
extern "C" void run_{name}(void** parameters, unsigned blocks, unsigned threads) {{
  static_assert(sizeof(Box) == 8 * (1 + 3 * RANK));
  run_blocks(blocks, threads, [=] {{
    {name}(*static_cast<const char**>(parameters[0]), *static_cast<Element**>(parameters[1]),
           *static_cast<Box*>(parameters[2]));
  }});
}}
"""


def on_cpu(op, dtype, rank):
    """Return the kernel as C++, under a name of its own."""
    name = f"{op}_{dtype}_{rank}"
    text = reduction_source(op, dtype, rank).text.replace(KERNEL_NAME, name)
    return f"namespace of_{name} {{\n{text}\n{ENTRY.format(name=name)}}}\n"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compile all kernels for the CPU."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("reductions")
    kernels = "".join(on_cpu(*each) for each in LINES + BOXES)
    (folder / "kernels.cpp").write_text(PRELUDE + kernels)
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-o", "kernels.so", "kernels.cpp"]
    subprocess.run([compiler, *options], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


class StandIn:
    """Stand for a driver whose kernels run here."""

    def __init__(self, library):
        self.library, self.launches = library, []

    def kernel_for(self, driver, device, source):
        assert driver is self and source.name == KERNEL_NAME and source.user == "reduce"
        self.device, self.text = device, source.text
        return 4711

    def launch(self, function, stream, *, grid, block, parameters, symbol):
        assert (function, symbol, block, grid[1:]) == (4711, "total", (THREADS, 1, 1), (1, 1))
        driver = runtime.current().driver
        assert driver.current_context() == driver.primary_context(self.device)
        (name,) = (
            f"{op}_{dtype}_{rank}"
            for op, dtype, rank in LINES + BOXES
            if reduction_source(op, dtype, rank).text == self.text
        )
        getattr(self.library, f"run_{name}")(ctypes.c_void_p(parameters), grid[0], block[0])
        self.launches.append((name, stream))


@pytest.fixture
def driver(compiled, simulated, monkeypatch):
    stand_in = StandIn(compiled)
    monkeypatch.setattr(reduction_kernels, "kernel_for", stand_in.kernel_for)
    return stand_in


def reduced(driver, op, values, blocks):
    """Return what the blocks make of an array, by way of the launch on a GPU."""
    results = np.full(blocks + 1, 77, values.dtype)
    box = StridedBox(values.__array_interface__["data"][0], values.shape, values.strides)
    launch_reduction(
        driver, 1, 99, box, results.ctypes.data, op=op, dtype=values.dtype.name, blocks=blocks, symbol="total"
    )
    assert results[-1] == 77
    return results[:-1]


def drawn(random, dtype, shape):
    """Return any values of a dtype: for floats small integers, whose sums are exact."""
    if np.dtype(dtype).kind == "f":
        return random.integers(-9, 9, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def expected(op, values):
    return UFUNCS[op].reduce(values, axis=None, dtype=values.dtype)


# ---- Arithmetic


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_element_counts_once(driver, op, dtype):
    random = np.random.default_rng(3)
    for size, blocks in ((1, 1), (257, 1), (BLOCK_ELEMENTS + 1, 2), (3 * BLOCK_ELEMENTS - 5, 1)):
        values = drawn(random, dtype, size)
        assert expected(op, reduced(driver, op, values, blocks)) == expected(op, values)
    assert driver.launches[-1] == (f"{op}_{dtype}_1", 99)


@pytest.mark.parametrize(("op", "dtype", "rank"), BOXES)
def test_boxes_with_gaps(driver, op, dtype, rank):
    random = np.random.default_rng(rank)
    for blocks in (1, 2, 3):
        lengths = random.integers(2, (0, 0, 90, 25, 12, 7)[rank], rank).tolist()
        array = drawn(random, dtype, [2 * n + 5 for n in lengths])
        # No axis is whole, so that none is joined with the one before it.
        box = [
            slice(random.integers(3), random.integers(n + 4, 2 * n + 4), random.integers(1, 4))
            for n in lengths
        ]
        values = array[(*box[:-1], slice(box[-1].start, box[-1].stop, 2))]
        assert expected(op, reduced(driver, op, values, blocks)) == expected(op, values)
        assert driver.launches[-1] == (f"{op}_{dtype}_{rank}", 99)


def test_rows_that_are_shorter_than_the_step(driver):
    rows = (np.arange(400 * 7 * 30, dtype=np.float32) % 9).reshape(400, 7, 30)[::2, 1:6, 3:20]
    assert reduced(driver, "sum", rows, 2).sum() == rows.sum()
    narrow = np.arange(9000, dtype=np.int16).reshape(3000, 3)[:, :2]
    assert reduced(driver, "max", narrow, 1)[0] == 8998
    assert [name for name, _ in driver.launches] == ["sum_float32_3", "max_int16_2"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_no_number_comes_through(driver, dtype):
    values = np.linspace(-5, 5, BLOCK_ELEMENTS + 300, dtype=dtype)
    for at in (0, 5, 255, 256, BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, len(values) - 1):
        holed = values.copy()
        holed[at] = np.nan
        for op in OPERATIONS:
            assert np.isnan(expected(op, reduced(driver, op, holed, 2)))


def test_extremes_of_floats(driver):
    everything = np.full(300, -np.inf, np.float32)
    assert reduced(driver, "max", everything, 1)[0] == -np.inf
    assert reduced(driver, "min", -everything, 1)[0] == np.inf
    assert reduced(driver, "sum", everything, 1)[0] == -np.inf
    assert np.signbit(reduced(driver, "sum", np.full(300, -0.0), 1)[0])


def test_floats_are_added_in_a_tree(driver):
    values = np.random.default_rng(1).random(4 * BLOCK_ELEMENTS, np.float32)
    found = [reduced(driver, "sum", values, 2) for _ in range(3)]
    assert (found[0] == found[1]).all() and (found[1] == found[2]).all()
    exact = math.fsum(values.tolist())
    assert abs(float(found[0].sum()) - exact) < 1e-6 * exact


# ---- The whole of it, with the kernel in the place of NumPy


@pytest.fixture
def on_gpus(driver, monkeypatch):
    """Let tasks of a simulated machine launch the kernel, which runs at once."""
    monkeypatch.setattr(reductions, "_on_cpu", lambda shard: False)
    monkeypatch.setattr(reductions, "_driver", lambda: driver)
    return driver


CUTS = {
    "whole device": None,
    "rows": stf.partition(stf.blocked("x"), stf.whole),
    "columns": stf.partition(stf.whole, stf.blocked("x")),
    "cyclic": stf.partition(stf.whole, stf.cyclic("x")),
    "blocks": stf.partition(stf.block_cyclic("x", 100), stf.whole),
}


@pytest.mark.parametrize("name", CUTS)
def test_places_launch_it_on_their_boxes(on_gpus, name):
    values = np.random.default_rng(5).integers(-9, 9, (301, 45), np.int16)
    places = stf.exec_place_grid.from_devices([0, 1])
    place = stf.exec_place.device(1) if CUTS[name] is None else places.with_data(CUTS[name])
    with stf.context() as ctx:
        data = ctx.logical_data(values)
        for op in OPERATIONS:
            found = ctx.wait(stf.reduce(ctx, data, op, place, symbol="total"))
            assert found.dtype == values.dtype and found.tolist() == [expected(op, values)]
    # The last of three launches or more makes one of the partial results.
    assert len(on_gpus.launches) % 3 == 0
    assert on_gpus.launches[-1][0] == "min_int16_1"


# ---- Shapes and counts


def test_axes_without_gaps_become_one():
    array = np.arange(4 * 5 * 6 * 7, dtype=np.int16).reshape(4, 5, 6, 7)
    for view, rank in (
        (array, 1), (array[1:3], 1), (array[:, 1:3], 2), (array[1:2, 1:3], 1), (array[:, :, ::2], 2),
        (array[..., 0], 1), (array[..., ::2], 2), (array[::2, :, 1:4, 2:3], 3), (array[:1, :1, 3:4, :1], 1),
    ):  # fmt: skip
        shape, strides = collapsed(view.shape, view.strides)
        assert len(shape) == len(strides) == rank
        again = np.lib.stride_tricks.as_strided(view, shape, strides)
        assert again.ravel().tolist() == view.ravel().tolist()
    assert collapsed((), ()) == ((1,), (0,))


def test_blocks_depend_on_the_size_alone_and_have_a_limit():
    assert [block_count(size) for size in (1, BLOCK_ELEMENTS, BLOCK_ELEMENTS + 1, 10 * BLOCK_ELEMENTS)] == [
        1,
        1,
        2,
        10,
    ]
    assert block_count(1 << 40) == MOST_BLOCKS
    random = np.random.default_rng(0)
    for _ in range(100):
        sizes = random.integers(1, 10 ** random.integers(1, 9), random.integers(1, 9)).tolist()
        assert sum(map(block_count, sizes)) <= most_blocks(len(sizes), sum(sizes))
    assert most_blocks(3, 10) == 3


def test_examples_run():
    failed, attempted = doctest.testmod(reduction_kernels)
    assert attempted > 0
    assert failed == 0


# ---- Text and compilation


def test_each_operation_dtype_and_rank_has_a_text_of_its_own():
    kernels = {reduction_source(*each) for each in product(OPERATIONS, DTYPES, (1, 2, 3))}
    assert len({kernel.text for kernel in kernels}) == 3 * 10 * 3
    assert {(kernel.name, kernel.user) for kernel in kernels} == {(KERNEL_NAME, "reduce")}
    assert all(f" {KERNEL_NAME}(" in kernel.text and "#include" not in kernel.text for kernel in kernels)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_it_compiles(op, dtype):
    for rank in (1, 2, 9) if dtype in {"int8", "float64"} else (1,):
        try:
            code = compile_kernel(reduction_source(op, dtype, rank), "sm_90")
        except ImportError as error:
            pytest.skip(f"needs cuda.core and NVRTC: {error}")
        assert code.startswith(b"\x7fELF")
        assert KERNEL_NAME.encode() in code
