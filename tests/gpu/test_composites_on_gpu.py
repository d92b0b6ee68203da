"""Arrays over two GPUs, of up to 32 GiB: who reads and writes their pages, and room for pages and other memory."""

import functools
import gc

import numpy as np
import pytest

import stf_places as stf
from stf_places import DeviceArray, blocked, data_place, exec_place, exec_place_grid, partition, whole
from stf_places._native import drivers, pages
from stf_places._native import runtime as runtimes

pytestmark = pytest.mark.gpu

MIB, GIB = 1 << 20, 1 << 30
SIZES = [64 * MIB, GIB, 32 * GIB]
#: Rows of an array are pages, so that these are halves, and every second page.
HALVES, PAGE_WISE = partition(blocked("x"), whole), partition(stf.block_cyclic("x", 1), whole)
LINE = partition(blocked("x"))
#: Threads that share a row.
THREADS = 512

each_size = pytest.mark.parametrize("nbytes", SIZES, ids=lambda nbytes: f"{nbytes // MIB}MiB")
each_layout = pytest.mark.parametrize("spec", [HALVES, PAGE_WISE], ids=["halves", "page-wise"])


@pytest.fixture
def driver(cuda):
    """Give a driver of its own, with the device's whole memory in reach."""
    gc.collect()
    made = drivers.cuda_driver()
    made.set_current_context(made.primary_context(0))
    return made


@pytest.fixture
def stream(driver):
    made = driver.create_stream(driver.primary_context(0))
    yield made
    driver.destroy_stream(made)


@pytest.fixture
def machine(cuda):
    """Put GPUs in use that hold nothing of earlier tests."""
    gc.collect()
    with stf.use_machine("cuda") as chosen:
        yield chosen


@pytest.fixture
def grid(machine, cuda):
    """Give two devices that reach each other's memory."""
    if machine.device_count < 2:
        pytest.skip("needs two devices")
    if not (cuda.link(0, 1)["peer"] and cuda.link(1, 0)["peer"]):
        pytest.skip("needs two devices that reach each other's memory")
    return exec_place_grid.from_devices([0, 1])


def on(device):
    return exec_place.device(device)


def free_memory(device):
    return runtimes.current().driver.memory_info(device)[0]


def free_on_both():
    return [free_memory(device) for device in (0, 1)]


def page_of_both():
    return max(pages.page_granularity(runtimes.current().driver, device) for device in (0, 1))


def page_rows(nbytes, itemsize):
    """Return the shape of an array whose rows are pages; skip where the devices have no room for it."""
    page = page_of_both()
    least = nbytes // 2 + GIB if nbytes > GIB else nbytes // 2
    if min(free_on_both()) < least:
        pytest.skip(f"needs two devices with {least // MIB} MiB free")
    return nbytes // page, page // itemsize


# ---- Every device writes and reads every page


@each_layout
@each_size
def test_what_a_device_fills_every_device_reads(grid, nbytes, spec):
    shape = page_rows(nbytes, 4)
    place = data_place.composite(grid, spec)
    readers = [exec_place_grid.from_devices([device]).with_data(place) for device in (1, 0)]
    before = free_on_both()
    for writer in (0, 1):
        value = 1000 * (writer + 1) - 1
        with stf.context() as ctx:
            data = ctx.logical_data_full(shape, value, "i4", where=place, exec_place=on(writer))
            results = [stf.reduce(ctx, data, op, reader) for reader in readers for op in ("min", "max")]
            assert [ctx.wait(result).tolist() for result in results] == [[value]] * 4
            assert ctx.stats.bytes_copied <= 4 * 8, "the pages are to be read where they are"
    if nbytes >= GIB:  # less is lost in what kernels and contexts take
        taken = [old - new for old, new in zip(before, free_on_both(), strict=True)]
        assert all(abs(each - nbytes // 2) < nbytes // 8 for each in taken), taken


@functools.cache
def kernels():
    """Return a kernel that gives each element a value of its own, and one that counts the threads that see others."""
    wp = pytest.importorskip("warp", reason="needs Warp")

    @wp.func
    def value_of(i: int, j: int, seed: int) -> wp.int64:
        return (wp.int64(i) << wp.int64(32)) + wp.int64(j) * wp.int64(3) + wp.int64(seed)

    @wp.kernel
    def write(x: wp.array2d(dtype=wp.int64), seed: int):
        i, first = wp.tid()
        for j in range(first, x.shape[1], THREADS):
            x[i, j] = value_of(i, j, seed)

    @wp.kernel
    def count_others(x: wp.array2d(dtype=wp.int64), seed: int, found: wp.array(dtype=wp.int32)):
        i, first = wp.tid()
        others = wp.int32(0)
        for j in range(first, x.shape[1], THREADS):
            if x[i, j] != value_of(i, j, seed):
                others += 1
        if others > 0:
            wp.atomic_add(found, 0, 1)

    return write, count_others


@each_layout
@each_size
def test_every_element_that_a_kernel_writes_every_device_reads(grid, nbytes, spec):
    from stf_places.interop import warp as stf_warp

    write, count_others = kernels()
    shape = page_rows(nbytes, 8)
    place = data_place.composite(grid, spec)
    with stf.context() as ctx:
        data, counts = ctx.logical_data_empty(shape, "i8"), []
        for seed in (0, 1, 2):
            writer = on(seed % 2)
            with ctx.task(writer, data.write(place)) as t:
                stf_warp.launch(t, write, (shape[0], THREADS), [stf_warp.array(t, 0), seed])
            for reader in (0, 1):
                counts.append(ctx.logical_data_zeros(1, "i4", where=data_place.device(reader)))
                with ctx.task(on(reader), data.read(place), counts[-1].rw()) as t:
                    arrays = stf_warp.array(t, 0), seed, stf_warp.array(t, 1)
                    stf_warp.launch(t, count_others, (shape[0], THREADS), arrays)
        wrong = ctx.logical_data_zeros(1, "i4", where=data_place.device(0))
        with ctx.task(on(0), data.read(place), wrong.rw()) as t:  # what was written before is not there
            arrays = stf_warp.array(t, 0), 1, stf_warp.array(t, 1)
            stf_warp.launch(t, count_others, (shape[0], THREADS), arrays)
        assert [ctx.wait(one).tolist() for one in counts] == [[0]] * 6
        assert ctx.wait(wrong).tolist() == [shape[0] * THREADS]


@each_layout
@pytest.mark.parametrize("nbytes", SIZES[:2], ids=["64MiB", "1GiB"])
def test_random_values_come_back_from_every_place(grid, nbytes, spec):
    shape = page_rows(4 * nbytes, 8)  # the route needs more than the array itself
    shape = shape[0] // 4, shape[1]
    rng = np.random.default_rng(nbytes)
    values = rng.integers(-(1 << 62), 1 << 62, shape)
    source = values.copy()
    layouts = [grid.with_data(HALVES if spec is PAGE_WISE else PAGE_WISE), grid.with_data(spec)]
    with stf.context() as ctx:
        data = ctx.logical_data(source)
        for place in (layouts[1], on(1), layouts[0], on(0), layouts[1]):
            with ctx.task(place, data.rw()):
                pass  # its copy is the only valid one now
        found = ctx.wait(data)
        for _ in range(20):
            first, count = int(rng.integers(values.size)), int(rng.integers(1, 1 << 20))
            piece = slice(first, first + count)
            assert np.array_equal(found.ravel()[piece], values.ravel()[piece])
        assert np.array_equal(found, values)
        source[:] = 0
    assert np.array_equal(source, values)


# ---- Room for pages and for other memory


def keep_a_range(grid, nbytes_a_device):
    """Use an array over both devices and let it go; return what is free then on each."""
    rows = nbytes_a_device // page_of_both()
    with stf.context() as ctx:
        ctx.logical_data_full((2 * rows, page_of_both()), 5, "u1", where=data_place.composite(grid, HALVES))
    return free_on_both()


def share_of(part):
    """Return a part of what is free on the fuller device, in whole pages."""
    return int(min(free_on_both()) * part) // page_of_both() * page_of_both()


def want_array(device, nbytes, grid):
    array = DeviceArray(nbytes, "u1", data_place.device(device))
    array[-8:].copy_to_device(np.arange(8, dtype="u1"))
    assert array[-8:].copy_to_host().tolist() == list(range(8))


def want_data(device, nbytes, grid):
    with stf.context() as ctx:
        data = ctx.logical_data_full(nbytes, 7, "u1", where=data_place.device(device))
        with ctx.task(on(device), data.rw()) as t:
            assert t.get_arg(0) != 0


def want_pages(device, nbytes, grid):
    rows = 2 * (nbytes // page_of_both())
    array = DeviceArray((rows, page_of_both()), "u1", data_place.composite(grid[::-1], HALVES))
    row = array[(rows - 1) * (1 - device)]  # the first lies on device 1
    row.copy_to_device(np.full(page_of_both(), 9, "u1"))
    assert (row.copy_to_host() == 9).all()


WANTED = [want_array, want_data, want_pages]
each_want = pytest.mark.parametrize("want", WANTED, ids=["array", "data", "other pages"])


@each_want
@pytest.mark.parametrize("device", [0, 1])
def test_ranges_that_are_kept_give_way(grid, want, device):
    before = free_on_both()
    kept = share_of(1 / 8)
    left = keep_a_range(grid, kept)
    assert all(old - new >= kept for old, new in zip(before, left, strict=True)), "it is kept"
    nbytes = min(left) + kept // 2
    want(device, nbytes // page_of_both() * page_of_both(), grid)


def test_the_largest_array_leaves_room_for_the_next(grid):
    shape = page_rows(SIZES[-1], 1)
    place = data_place.composite(grid, PAGE_WISE)
    addresses = []
    for _ in range(2):
        with stf.context() as ctx:
            data = ctx.logical_data_full(shape, 3, "u1", where=place)
            with ctx.task(grid, data.read(place)) as t:
                addresses.append(t.get_arg(0))
    assert addresses[0] == addresses[1], "the range is used again"
    left = free_on_both()
    want_array(0, left[0] + SIZES[-1] // 4, grid)
    gc.collect()
    after = free_on_both()
    assert after[1] - left[1] > SIZES[-1] // 2 - GIB, "the range went as a whole"


def test_what_is_kept_goes_with_the_machine(cuda):
    if cuda.device_count() < 2 or not (cuda.link(0, 1)["peer"] and cuda.link(1, 0)["peer"]):
        pytest.skip("needs two devices that reach each other's memory")
    gc.collect()
    before = [cuda.memory_info(device)[0] for device in (0, 1)]
    with stf.use_machine("cuda"):
        kept = share_of(1 / 8)
        keep_a_range(exec_place_grid.from_devices([0, 1]), kept)
        held = [cuda.memory_info(device)[0] for device in (0, 1)]
        assert all(old - new >= kept for old, new in zip(before, held, strict=True))
    gc.collect()
    after = [cuda.memory_info(device)[0] for device in (0, 1)]
    assert all(old - new < kept // 2 for old, new in zip(before, after, strict=True))


def use_array(device, nbytes):
    array = DeviceArray(nbytes, "u1", data_place.device(device))
    array[-1:].copy_to_device(np.ones(1, "u1"))


def use_data(device, nbytes):
    with stf.context() as ctx:
        ctx.logical_data_full(nbytes, 1, "u1", where=data_place.device(device))


@each_want
@pytest.mark.parametrize("use", [use_array, use_data])
def test_freed_blocks_of_a_pool_give_way(grid, use, want):
    nbytes = share_of(5 / 8)
    for device in (0, 1):
        use(device, nbytes)
    want(1, nbytes, grid)


def test_blocks_that_a_context_keeps_give_way_to_pages(grid):
    nbytes = share_of(5 / 8)
    rows = 2 * (nbytes // page_of_both())
    with stf.context() as ctx:
        for device in (0, 1):
            ctx.logical_data_full(nbytes, 1, "u1", where=data_place.device(device))
        place = data_place.composite(grid, HALVES)
        data = ctx.logical_data_full((rows, page_of_both()), 2, "u1", where=place)
        with ctx.task(grid, data.rw(place)) as t:
            assert t.get_arg(0) != 0
        del data, t
        for device in (1, 0):
            ctx.logical_data_full(nbytes, 3, "u1", where=data_place.device(device))


def test_values_survive_where_room_is_scarce(grid):
    page = page_of_both()
    room = min(3 * GIB, int(min(free_on_both()) * 3 / 4)) // (12 * page) * 12 * page
    ballast = [DeviceArray(free_memory(device) - room, "u1", data_place.device(device)) for device in (0, 1)]
    third = room // 3 // page
    with stf.context() as ctx:
        wide, narrow = [], []
        for number, spec in enumerate((HALVES, PAGE_WISE)):
            place = data_place.composite(grid, spec)
            wide.append(ctx.logical_data_full((2 * third, page), 10 + number, "u1", where=place))
            nbytes = third * page * 7 // 4
            narrow.append(ctx.logical_data_full(nbytes, 20 + number, "u1", exec_place=on(number)))
        assert ctx.stats.evictions > 0
        for number in (1, 0):
            assert (ctx.wait(wide[number]) == 10 + number).all()
            assert (ctx.wait(narrow[number]) == 20 + number).all()
    assert len(ballast) == 2


def ask_for_array(shape, place):
    DeviceArray(shape, "u1", place)


def ask_for_data(shape, place):
    with stf.context() as ctx:
        data = ctx.logical_data_empty(shape, "u1", name="big")
        ctx.task(on(0), data.write(place)).start()


@pytest.mark.parametrize("ask", [ask_for_array, ask_for_data])
def test_what_does_not_fit_takes_nothing(grid, ask):
    page = page_of_both()
    total = sum(runtimes.current().driver.memory_info(device)[1] for device in (0, 1))
    keep_a_range(grid, 16 * page)
    before = free_on_both()
    with pytest.raises(stf.OutOfMemory):
        ask((total // page + 2, page), data_place.composite(grid, HALVES))
    assert all(now >= then - 64 * MIB for now, then in zip(free_on_both(), before, strict=True))


# ---- One device: its pool and its pages, through the driver


def mapped_pages(driver, nbytes):
    """Return a range with so many bytes of device 0, for its own use."""
    address = pages.reserve_pages(driver, nbytes)
    try:
        pages.map_pages(driver, address, nbytes, 0)
    except stf.OutOfMemory:
        pages.release_pages(driver, address, nbytes)
        raise
    pages.grant_access(driver, address, nbytes, [0])
    return address


def give_back(driver, address, nbytes):
    pages.unmap_pages(driver, address, nbytes)
    pages.release_pages(driver, address, nbytes)


def most_of(driver, part=5 / 8):
    """Return so much that it does not fit twice, in whole pages."""
    page = pages.page_granularity(driver, 0)
    return int(driver.memory_info(0)[0] * part) // page * page


def check_ends(driver, address, nbytes, value, stream):
    ends = np.zeros(2, "u1")
    for number, offset in enumerate((0, nbytes - 1)):
        driver.copy(ends.ctypes.data + number, "host", address + offset, 0, 1, stream)
    driver.synchronize_stream(stream)
    assert ends.tolist() == [value, value]


@pytest.mark.parametrize("waited", ["not at all", "by asking", "for the stream"])
def test_a_block_that_was_freed_becomes_pages(driver, stream, waited):
    nbytes = most_of(driver)
    block = driver.allocate_device(0, nbytes, stream)
    driver.fill(block, 0, b"\1", nbytes, stream)
    driver.free_device(0, block, stream)
    if waited == "for the stream":
        driver.synchronize_stream(stream)
    while waited == "by asking" and not driver.query_stream(stream):
        pass
    driver.trim_device(0)
    address = mapped_pages(driver, nbytes)
    driver.fill(address, 0, b"\5", nbytes, stream)
    check_ends(driver, address, nbytes, 5, stream)
    give_back(driver, address, nbytes)


def test_pages_that_were_unmapped_become_a_block(driver, stream):
    nbytes = most_of(driver)
    for value in (b"\3", b"\4"):
        address = mapped_pages(driver, nbytes)
        driver.fill(address, 0, value, nbytes, stream)
        check_ends(driver, address, nbytes, value[0], stream)
        give_back(driver, address, nbytes)
        block = driver.allocate_device(0, nbytes, stream)
        driver.fill(block, 0, value, nbytes, stream)
        check_ends(driver, block, nbytes, value[0], stream)
        driver.free_device(0, block, stream)
        driver.trim_device(0)


def test_a_block_in_use_is_no_room_for_pages(driver, stream):
    nbytes = most_of(driver)
    block = driver.allocate_device(0, nbytes, stream)
    driver.fill(block, 0, b"\6", nbytes, stream)
    driver.trim_device(0)
    with pytest.raises(stf.OutOfMemory, match=str(nbytes)):
        mapped_pages(driver, nbytes)
    check_ends(driver, block, nbytes, 6, stream)
    driver.free_device(0, block, stream)
    driver.trim_device(0)
    give_back(driver, mapped_pages(driver, nbytes), nbytes)


def test_composites_of_one_device_are_ordinary_blocks(machine):
    partitions = exec_place_grid.create([on(0)] * 4)
    place = data_place.composite(partitions, LINE)
    nbytes = most_of(runtimes.current().driver)
    for _ in range(2):  # a block of the pool, which takes its own freed blocks again
        with stf.context() as ctx:
            data = ctx.logical_data_full(nbytes, 8, "u1", where=place)
            with ctx.task(on(0), data.read()) as t:
                address = t.get_arg(0)
            with ctx.task(partitions, data.read(place)) as t:
                assert t.get_arg(0) == address
            assert ctx.stats.copies == 0
