"""cuda_kernel: what launch() accepts, that a simulated machine refuses it, and results of kernels on a GPU."""

import ctypes

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import runtime
from stf_places.places.compiled_kernels import KernelSource, load_kernel

KERNEL = 1  # a handle that is never launched
DEVICE = stf.exec_place.device(0)
HOST = stf.exec_place.host()
on_both = pytest.mark.parametrize("use_graph", [False, True], ids=["streams", "graph"])


@pytest.fixture(params=[False, True], ids=["streams", "graph"])
def opened(request, machine):
    """Give an open task on x (read), a token (rw) and y (rw), with its data."""
    with stf.context(use_graph=request.param) as ctx:
        x, token, y = ctx.logical_data_ones(4), ctx.token(), ctx.logical_data_ones(4)
        with ctx.cuda_kernel(x.read(), DEVICE, token.rw(), y.rw(), symbol="axpy") as t:
            yield t, x, token, y


# ---- Argument checks, the same on both machines


def test_it_is_a_task(machine):
    with stf.context() as ctx:
        x = ctx.logical_data_ones(4)
        t = ctx.cuda_kernel(DEVICE, x.rw(), symbol="axpy")
        assert isinstance(t, stf.cuda_kernel) and isinstance(t, stf.task)
        assert (t.state, t.symbol, len(t), t.exec_place, t.readonly(0)) == (
            "created",
            "axpy",
            1,
            DEVICE,
            False,
        )
        with pytest.raises(stf.TaskStateError, match=r"launch\(\) belongs inside the task's body"):
            t.launch(KERNEL, 1, 1, [])
        with t as entered:
            assert entered is t and t.args_cai().shape == (4,)
        assert t.state == "ended"
        with pytest.raises(stf.TaskStateError, match="ended"):
            t.launch(KERNEL, 1, 1, [])
        other = ctx.cuda_kernel(x.read())
        other.set_symbol("second")
        other.set_exec_place(DEVICE)
        assert other.start() is other
        other.end()
        with pytest.raises(stf.TaskStateError, match="runs once"):
            other.start()
    with pytest.raises(stf.ContextClosed):
        ctx.cuda_kernel(DEVICE)


def test_only_a_context_makes_one(machine):
    with pytest.raises(TypeError, match=r"ctx\.cuda_kernel\(place, data\.read\(\), \.\.\.\)"):
        stf.cuda_kernel()
    with stf.context() as ctx:
        x = ctx.logical_data_ones(4)
        with pytest.raises(TypeError, match=r"cuda_kernel\(\) needs to know how data is used"):
            ctx.cuda_kernel(DEVICE, x)
        with pytest.raises(TypeError, match=r"cuda_kernel\(\) takes dependencies .* got int"):
            ctx.cuda_kernel(DEVICE, 3)
        with pytest.raises(TypeError, match="one place"):
            ctx.cuda_kernel(DEVICE, HOST)
        with pytest.raises(TypeError, match="names are strings"):
            ctx.cuda_kernel(DEVICE, symbol=3)


def test_one_that_is_dropped_open_is_ended(machine):
    with stf.context() as ctx:
        x = ctx.logical_data_ones(4)
        t = ctx.cuda_kernel(DEVICE, x.rw(), symbol="lost").start()
        with pytest.warns(ResourceWarning, match="'lost' was never ended"):
            del t
        with pytest.raises(stf.PoisonedData):
            ctx.wait(x)


class Handled:
    def __init__(self, handle):
        self.handle = handle


@pytest.mark.parametrize(
    ("kernel", "error", "match"),
    [
        ("axpy", TypeError, "cuda.core Kernel, or an int .* got str"),
        (None, TypeError, "got NoneType"),
        (True, TypeError, "got bool"),
        (1.0, TypeError, "got float"),
        (Handled(None), TypeError, "got Handled"),
        (0, ValueError, "1 to 2.*got 0"),
        (-1, ValueError, "got -1"),
        (1 << 64, ValueError, "got 18446744073709551616"),
        (Handled(0), ValueError, "got 0"),
    ],
)
def test_kernels_are_checked(opened, kernel, error, match):
    with pytest.raises(error, match=match):
        opened[0].launch(kernel, 1, 1, [])


@pytest.mark.parametrize(
    ("grid", "block", "error", "match"),
    [
        (0, 1, ValueError, "grid is 1 to 2147483647 along axis 0: got 0"),
        (1 << 31, 1, ValueError, "got 2147483648"),
        ((1, 65536), 1, ValueError, "grid is 1 to 65535 along axis 1"),
        ((), 1, ValueError, r"grid has 1 to 3 axes: got \(\)"),
        ((1, 1, 1, 1), 1, ValueError, "1 to 3 axes"),
        (1.0, 1, TypeError, "grid is an int, or a sequence of 1 to 3: got 1.0"),
        ("12", 1, TypeError, "got '12'"),
        (None, 1, TypeError, "got None"),
        ([1, 2.5], 1, TypeError, "2.5"),
        (1, -1, ValueError, "block is 1 to 1024 along axis 0: got -1"),
        (1, 1025, ValueError, "block is 1 to 1024"),
        (1, (1, 1, 65), ValueError, "block is 1 to 64 along axis 2"),
        (1, [32, 33], ValueError, r"up to 1024 threads: got \[32, 33\]"),
        (1, {}, ValueError, "block has 1 to 3 axes"),
    ],
)
def test_extents_are_checked(opened, grid, block, error, match):
    with pytest.raises(error, match=match):
        opened[0].launch(KERNEL, grid, block, [])


@pytest.mark.parametrize(
    ("shmem", "error"), [(-1, ValueError), (1 << 32, ValueError), (1.5, TypeError), (None, TypeError)]
)
def test_shared_memory_is_checked(opened, shmem, error):
    with pytest.raises(error, match="shmem is a number of bytes"):
        opened[0].launch(KERNEL, 1, 1, [], shmem)


@pytest.mark.parametrize("place_index", [-1, 1])
def test_places_are_checked(opened, place_index):
    with pytest.raises(IndexError, match="1 place"):
        opened[0].launch(KERNEL, 1, 1, [], place_index=place_index)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        b"text",
        [1],
        {},
        object(),
        np.str_("text"),
        np.bytes_(b"text"),
        np.longdouble(1),
        np.clongdouble(1),
        ctypes.py_object(3),
        ctypes.c_longdouble(1),
        DEVICE,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_other_types_are_named(opened, value):
    t, x, _, _ = opened
    with pytest.raises(
        TypeError, match=f"argument 1 of the kernel: got {type(value).__name__}; what can be passed"
    ):
        t.launch(KERNEL, 1, 1, [x, value])


def test_host_arrays_are_sent_to_the_context(opened):
    with pytest.raises(TypeError, match=r"argument 0 .* got ndarray.*ctx\.logical_data\(array\)"):
        opened[0].launch(KERNEL, 1, 1, [np.ones(3)])


@pytest.mark.parametrize("args", [3, None, "ab", np.ones(2), {1: 2}, iter([1])])
def test_arguments_are_a_list_or_tuple(opened, args):
    with pytest.raises(TypeError, match=r"args is a list or tuple .*, \[x\] for one"):
        opened[0].launch(KERNEL, 1, 1, args)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_ints_fit_64_bits(opened, value):
    with pytest.raises(OverflowError, match=f"argument 0 .* 64 bits: got {value}"):
        opened[0].launch(KERNEL, 1, 1, [value])


def test_data_has_to_be_a_dependency(opened):
    t, _, token, _ = opened
    with stf.context() as ctx:
        foreign = ctx.logical_data_ones(3, name="foreign")
        for given in (foreign, foreign.read()):
            with pytest.raises(TypeError, match="argument 0: .*foreign.* is no dependency of task 'axpy'"):
                t.launch(KERNEL, 1, 1, [given])
    with pytest.raises(TypeError, match="argument 1 of task 'axpy' is a token"):
        t.launch(KERNEL, 1, 1, [token])


def test_masked_arrays_are_refused(opened):
    class Masked:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (1,),
            "typestr": "<f8",
            "data": (4096, False),
            "version": 3,
            "mask": object(),
        }

    with pytest.raises(TypeError, match="argument 0: masked arrays"):
        opened[0].launch(KERNEL, 1, 1, [Masked()])


@on_both
def test_the_host_runs_no_kernel(machine, use_graph):
    with stf.context(use_graph=use_graph) as ctx:
        x = ctx.logical_data_ones(4)
        with ctx.cuda_kernel(HOST, x.rw(), symbol="axpy") as t:
            with pytest.raises(ValueError, match=r"task 'axpy' is on the host: .* exec_place\.device\(0\)"):
                t.launch(KERNEL, 1, 1, [x])


# ---- The simulated machine


@on_both
def test_a_simulated_machine_refuses_and_says_what_to_do(simulated, use_graph):
    arguments = [1, 1.5, 1j, True, np.float32(1), np.int8(-1), ctypes.c_int(3), np.float16(2)]
    with stf.context(use_graph=use_graph) as ctx:
        x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)
        array = stf.DeviceArray(3, np.float64, stf.data_place.device(0))
        with ctx.cuda_kernel(DEVICE, x.read(), y.write(), symbol="axpy") as t:
            with pytest.raises(stf.NotSupported, match=r"machine 'h200x2'.*task 'axpy'.*run\(fn, \.\.\.\)"):
                t.launch(KERNEL, (2, 2), 64, [x, y, *t.args_cai(), array, *arguments], 128)
            t.run(lambda source, target: np.multiply(source, 3, out=target), *t.args_cai())
        np.testing.assert_array_equal(ctx.wait(y), np.full(4, 3.0))


# ---- A GPU

TEXT = r"""
extern "C" __global__ void axpy(const double* x, double* y, double a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += a * x[i];
}
struct Pair { double a; int b[5]; };
extern "C" __global__ void values(double* out, signed char a, unsigned char b, short c, unsigned short d, int e,
                                  unsigned f, long long g, unsigned long long h, float i, double j, bool k,
                                  Pair p, double2 z) {
  const double all[] = {(double)a, (double)b, (double)c, (double)d, (double)e, (double)f, (double)g, (double)h,
                        (double)i, j, (double)k, p.a, (double)p.b[4], z.x, z.y};
  for (int at = 0; at < 15; ++at) out[at] = all[at];
}
extern "C" __global__ void block_sums(const double* x, double* sums) {
  extern __shared__ double own[];
  own[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) own[threadIdx.x] += own[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = own[0];
}
extern "C" __global__ void where(int* sms, unsigned long long spin_ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < spin_ns);
  if (threadIdx.x == 0) asm volatile("mov.u32 %0, %%smid;" : "=r"(sms[blockIdx.x]));
}
"""


@pytest.fixture
def kernel(cuda):
    """Return a function that gives a kernel of the text above; the real machine is in use."""
    pytest.importorskip("cuda.core", reason="needs cuda.core")
    with stf.use_machine("cuda"):
        driver = runtime.current().driver
        found = driver.device_properties(0)
        arch = f"sm_{found['compute_major']}{found['compute_minor']}"

        def load(name):
            with DEVICE:
                return load_kernel(KernelSource(name, TEXT, "tests"), arch, f"cu{driver.version() // 1000}")

        yield load


@pytest.mark.gpu
@on_both
@pytest.mark.parametrize("as_int", [False, True])
def test_axpy(kernel, use_graph, as_int):
    n = 10_000
    rng = np.random.default_rng(1)
    x, y = rng.random(n), rng.random(n)
    expected = y.copy()
    axpy = kernel("axpy")
    with stf.context(use_graph=use_graph) as ctx:
        a, b = ctx.logical_data(x), ctx.logical_data(y)
        for step in range(20):
            with ctx.cuda_kernel(DEVICE, a.read(), b.rw(), symbol="axpy") as t:
                t.launch(int(axpy.handle) if as_int else axpy, 8, 256, [a, b, float(step), n])
                t.launch(axpy, (8,), [256], [*t.args_cai(), np.float64(0.5), np.int32(n)])
    for step in range(20):
        expected += step * x
        expected += 0.5 * x
    np.testing.assert_allclose(y, expected, rtol=1e-13)


@pytest.mark.gpu
@on_both
def test_values_of_every_width(kernel, use_graph):
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_double), ("b", ctypes.c_int * 5))

    numpy_types = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
    smallest = [kind(np.iinfo(kind).min) for kind in numpy_types]
    largest = [kind(min(np.iinfo(kind).max, 1 << 52)) for kind in numpy_types]
    c_types = [np.ctypeslib.as_ctypes_type(kind) for kind in numpy_types]
    pair = Pair(2.5, (1, 2, 3, 4, 5))
    record = np.array([(2.5, (1, 2, 3, 4, 5), 0)], np.dtype([("a", "f8"), ("b", "i4", 5), ("pad", "i4")]))[0]
    rows = [
        [*smallest, np.float32(0.1), np.float64(0.1), np.bool_(True), pair, np.complex128(1 - 2j)],
        [*largest, ctypes.c_float(0.1), ctypes.c_double(0.1), ctypes.c_bool(True), record, 1 - 2j],
        [*(of(7) for of in c_types), np.float32(0.1), 0.1, True, pair, 1 - 2j],
        [*range(8), np.float32(0.1), 0.1, False, pair, 1 - 2j],
    ]
    values = kernel("values")
    with stf.context(use_graph=use_graph) as ctx:
        for row in rows:
            out = ctx.logical_data_zeros(15)
            with ctx.cuda_kernel(DEVICE, out.write()) as t:
                t.launch(values, 1, 1, [out, *row])
            expected = [float(getattr(value, "value", value)) for value in row[:11]]
            expected[8] = float(np.float32(0.1))
            np.testing.assert_array_equal(ctx.wait(out), [*expected, 2.5, 5.0, 1.0, -2.0])


@pytest.mark.gpu
@on_both
def test_dynamic_shared_memory(kernel, use_graph):
    x = np.random.default_rng(2).integers(0, 100, (16, 256)).astype(float)
    block_sums = kernel("block_sums")
    with stf.context(use_graph=use_graph) as ctx:
        a, sums = ctx.logical_data(x), ctx.logical_data_empty(16)
        with ctx.cuda_kernel(DEVICE, a.read(), sums.write()) as t:
            t.launch(block_sums, 16, 256, [a, sums], 256 * 8)
        np.testing.assert_array_equal(ctx.wait(sums), x.sum(axis=1))


@pytest.mark.gpu
@on_both
def test_memory_of_others(kernel, use_graph):
    x, n = np.arange(1000.0), 1000
    axpy = kernel("axpy")
    array = stf.DeviceArray.from_host(x, stf.data_place.device(0))
    with stf.context(use_graph=use_graph) as ctx:
        y = ctx.logical_data_ones(n)
        with ctx.cuda_kernel(DEVICE, y.rw()) as t:
            t.launch(axpy, 4, 256, [array, y, 2.0, n])
        np.testing.assert_array_equal(ctx.wait(y), 1 + 2 * x)


@pytest.mark.gpu
@on_both
def test_each_place_of_a_grid_does_its_part(kernel, use_graph):
    half = 5000
    axpy = kernel("axpy")
    x, y = np.arange(2.0 * half), np.ones(2 * half)
    grid = stf.exec_place_grid.create(list(stf.green_places(16, 2)))
    memory = stf.data_place.device(0)
    with stf.context(use_graph=use_graph) as ctx:
        a, b = ctx.logical_data(x), ctx.logical_data(y)
        for _ in range(3):
            with ctx.cuda_kernel(grid, a.read(memory), b.rw(memory)) as t:
                for place in (0, 1):
                    at = [t.get_arg(index, place) + place * half * 8 for index in (0, 1)]
                    t.launch(axpy, 16, 256, [*at, 2.0, half], place_index=place)
    np.testing.assert_array_equal(y, 1 + 6 * np.arange(2.0 * half))


@pytest.mark.gpu
@pytest.mark.parametrize("on_stream", [False, True])
@on_both
def test_green_places_keep_their_kernels(kernel, use_graph, on_stream):
    # A graph is launched from a stream of the primary context.
    places = list(stf.green_places(16, 2))
    resources = stf.exec_place_resources()
    stream = DEVICE.pick_stream(resources) if on_stream else None
    blocks = 264
    where = kernel("where")
    found = [np.full(blocks, -1, np.int32) for _ in places]
    with stf.context(use_graph=use_graph, stream=stream) as ctx:
        for place, sms in zip(places, found, strict=True):
            data = ctx.logical_data(sms)
            with ctx.cuda_kernel(place, data.write()) as t:
                t.launch(where, blocks, 1024, [data, np.uint64(20_000)])
    if on_stream:
        runtime.current().driver.synchronize_stream(int(stream))
    ids = [set(sms.tolist()) for sms in found]
    for place, seen in zip(places, ids, strict=True):
        assert min(seen) >= 0
        assert len(seen) <= place.sm_count
    assert not ids[0] & ids[1]


@pytest.mark.gpu
def test_a_launch_that_the_driver_refuses_names_the_task(kernel):
    axpy = kernel("axpy")
    with stf.context() as ctx:
        x = ctx.logical_data_ones(4)
        with ctx.cuda_kernel(DEVICE, x.rw(), symbol="greedy") as t:
            with pytest.raises(stf.DriverError, match="greedy"):
                t.launch(axpy, 1, 1, [x, x, 1.0, 4], 1 << 30)
