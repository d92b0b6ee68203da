"""cuda_kernel on the stand-in for libcuda, whose kernels are host functions: what a launch is given gets there."""

import pytest

PRELUDE = """
import ctypes, enum, gc, struct, time
import numpy as np
import stf_places as stf

BODY = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_char))

class Kernel:
    # A kernel that knows the format of its parameters, as struct writes it without padding.
    class Handle(ctypes.Structure):
        _fields_ = [("body", BODY), ("count", ctypes.c_uint64), ("sizes", ctypes.POINTER(ctypes.c_uint64))]

    def __init__(self, function, *formats):
        def body(dims, parameters):
            raw = parameters[:sum(struct.calcsize(one) for one in formats)]
            function(tuple(dims[:7]), *struct.unpack("=" + "".join(formats), raw))
        self.body = BODY(body)
        self.sizes = (ctypes.c_uint64 * len(formats))(*map(struct.calcsize, formats))
        self.own = Kernel.Handle(self.body, len(formats), self.sizes)
        self.handle = ctypes.addressof(self.own)

def seen_by_kernel(formats, values, use_graph=False, **options):
    seen = []
    kernel = Kernel(lambda dims, *given: seen.append((dims, given)), *formats)
    with stf.context(use_graph) as ctx, ctx.cuda_kernel(stf.exec_place.device(0), symbol="look") as t:
        t.launch(kernel, 1, 1, values, **options)
    (found,) = seen
    return found

def array_at(address, count):
    return np.frombuffer((ctypes.c_double * count).from_address(address))

def add(dims, x, y, factor, count):
    array_at(y, count)[:] += factor * array_at(x, count)
"""


@pytest.fixture
def on_stand_in(run):
    """Return a function that runs a program on the stand-in as the machine in use."""
    return lambda program, **settings: run(PRELUDE + program, STF_PLACES_DRIVER="cuda", **settings)


def test_values_keep_their_type(on_stand_in):
    on_stand_in("""
class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_double), ("b", ctypes.c_int * 5)]
class Colour(enum.IntEnum):
    RED = 7

integers = [(np.int8, "b"), (np.uint8, "B"), (np.int16, "h"), (np.uint16, "H"), (np.int32, "i"), (np.uint32, "I"),
            (np.int64, "q"), (np.uint64, "Q"), (np.longlong, "q"), (np.ulonglong, "Q")]
for kind, form in integers:
    ends = np.iinfo(kind)
    for value in (ends.min, ends.max, 3):
        assert seen_by_kernel([form], [kind(value)])[1] == (value,), (kind, value)
for value, form, expected in [
    (np.float16(1.5), "e", 1.5), (np.float32(0.1), "f", float(np.float32(0.1))), (np.float64(0.1), "d", 0.1),
    (0.1, "d", 0.1), (-5, "q", -5), (2**64 - 1, "Q", 2**64 - 1), (-2**63, "q", -2**63), (-5, "i", -5),
    (True, "?", True), (False, "?", False), (np.bool_(True), "?", True), (Colour.RED, "q", 7),
    (ctypes.c_int8(-3), "b", -3), (ctypes.c_float(0.5), "f", 0.5), (ctypes.c_void_p(99), "Q", 99),
    (ctypes.c_uint64(2**64 - 1), "Q", 2**64 - 1), (np.datetime64(5, "s"), "q", 5),
]:
    assert seen_by_kernel([form], [value])[1] == (expected,), value
for value in (1 + 2j, np.complex128(1 + 2j)):
    assert seen_by_kernel(["16s"], [value])[1] == (struct.pack("dd", 1, 2),)
assert seen_by_kernel(["8s"], [np.complex64(1 + 2j)])[1] == (struct.pack("ff", 1, 2),)
pair = Pair(0.5, (1, 2, 3, 4, 5))
assert seen_by_kernel(["32s"], [pair])[1] == (bytes(pair),)
row = np.array([(1.5, (1, 2, 3, 4, 5))], np.dtype([("a", "f8"), ("b", "i4", 5)]))[0]
assert seen_by_kernel(["28s"], [row])[1] == (row.tobytes(),)
""")


def test_any_number_of_arguments_in_order(on_stand_in):
    on_stand_in("""
for count in (0, 1, 31, 32, 33, 200):
    assert seen_by_kernel("q" * count, list(range(count)))[1] == tuple(range(count))
    assert seen_by_kernel("q" * count, tuple(range(count)), True)[1] == tuple(range(count))
""")


def test_extents_and_shared_memory(on_stand_in):
    on_stand_in("""
def dims(grid, block, shmem=0):
    seen = []
    kernel = Kernel(lambda dims: seen.append(dims))
    with stf.context() as ctx, ctx.cuda_kernel(stf.exec_place.device(0)) as t:
        t.launch(kernel, grid, block, [], shmem)
    return seen[0]
assert dims(5, 1024) == (5, 1, 1, 1024, 1, 1, 0)
assert dims([2, 3], (4, 5, 6), 100) == (2, 3, 1, 4, 5, 6, 100)
assert dims(np.int64(7), np.array([8, 2]), np.uint8(3)) == (7, 1, 1, 8, 2, 1, 3)
assert dims((2**31 - 1, 1, 1), 1, 2**32 - 1) == (2**31 - 1, 1, 1, 1, 1, 1, 2**32 - 1)
""")


@pytest.mark.parametrize("last_first", ["0", "1"])
@pytest.mark.parametrize("use_graph", [False, True])
def test_data_of_the_task_in_all_its_forms(on_stand_in, use_graph, last_first):
    on_stand_in(
        f"""
x, y = np.arange(4.0), np.ones(4)
kernel = Kernel(add, "Q", "Q", "d", "i")
with stf.context(use_graph={use_graph}) as ctx:
    a, b = ctx.logical_data(x), ctx.logical_data(y)
    reads, changes = a.read(), b.rw()
    for _ in range(3):
        with ctx.cuda_kernel(stf.exec_place.device(0), reads, changes) as t:
            t.launch(kernel, 1, 1, [a, b, 1.0, 4])
            t.launch(kernel, 1, 1, [reads, changes, 1.0, 4])
            t.launch(kernel.handle, 1, 1, [a.read(), b.rw(), 1.0, 4])
            t.launch(kernel, 1, 1, [*t.args_cai(), 1.0, 4])
            t.launch(kernel, 1, 1, [t.get_arg(0), t.get_arg(1), 1.0, np.int32(4)])
        del t
    t = ctx.cuda_kernel(changes, stf.exec_place.device(1)).start()
    t.launch(kernel, 1, 1, [b, b, 1.0, 4])
    t.end()
    assert t.exec_place == stf.exec_place.device(1)
np.testing.assert_array_equal(y, 2 * (1 + 15 * np.arange(4.0)))
""",
        FAKE_LAST_FIRST=last_first,
    )


def test_a_place_of_a_grid_gets_its_own_replica(on_stand_in):
    on_stand_in("""
grid = stf.exec_place_grid.from_devices([0, 1])
seen = []
look = Kernel(lambda dims, address: seen.append(address), "Q")
for use_graph in (False, True):
    seen.clear()
    with stf.context(use_graph) as ctx:
        x = ctx.logical_data_ones(4)
        with ctx.cuda_kernel(grid, x.read(stf.data_place.replicated())) as t:
            known = [t.get_arg(0, 0), t.get_arg(0, 1)]
            for place in (0, 1):
                t.launch(look, 1, 1, [x], place_index=place)
    assert sorted(seen) == sorted(known) and len(set(seen)) == 2, (seen, known)
""")


def test_arrays_of_others_are_waited_for(on_stand_in, tmp_path):
    log = tmp_path / "log"
    on_stand_in(
        """
class Other:
    def __init__(self, stream):
        self.__cuda_array_interface__ = {"shape": (1,), "typestr": "<f8", "data": (4096, False), "version": 3,
                                         "stream": stream}
def calls(name):
    return sum(line.strip() == "!" + name for line in open(os.environ["FAKE_LOG"]))
look = Kernel(lambda dims, address: print(address), "Q")
resources = stf.exec_place_resources()
foreign = int(stf.exec_place.device(0).pick_stream(resources))
for use_graph in (False, True):
    with stf.context(use_graph) as ctx, ctx.cuda_kernel(stf.exec_place.device(0)) as t:
        counts = []
        for stream in (None, int(t.stream_ptr()), foreign):
            before = calls("cuStreamQuery")
            t.launch(look, 1, 1, [Other(stream)])
            counts.append(calls("cuStreamQuery") - before)
    assert counts[:2] == [0, 0] and counts[2] > 0, counts
array = stf.DeviceArray.from_host(np.ones(3), stf.data_place.device(0))
assert seen_by_kernel("Q", [array])[1] == (array.ptr,)
""",
        FAKE_LOG=str(log),
    )


def test_a_kernel_object_lives_until_its_context_is_finalized(on_stand_in):
    on_stand_in("""
import weakref
seen = []
for use_graph in (False, True):
    kernel = Kernel(lambda dims: seen.append(dims))
    gone = weakref.ref(kernel)
    ctx = stf.context(use_graph)
    with ctx.cuda_kernel(stf.exec_place.device(0)) as t:
        t.launch(kernel, 1, 1, [])
        t.launch(kernel, 1, 1, [])
    del kernel
    gc.collect()
    assert gone() is not None
    ctx.finalize()
    gc.collect()
    assert gone() is None
assert len(seen) == 4
""")


def test_what_the_driver_refuses_names_the_task(on_stand_in):
    out = on_stand_in(
        """
kernel = Kernel(lambda dims: None)
with stf.context() as ctx:
    for symbol in ("culprit", None):
        with ctx.cuda_kernel(stf.exec_place.device(0), symbol=symbol) as t:
            print(failure(t.launch, kernel, 1, 1, []))
""",
        FAKE_FAIL="cuLaunchKernel=1",
    )
    assert "kernel of task 'culprit'" in out and "kernel of task 'task 2'" in out
