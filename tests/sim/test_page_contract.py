"""What every driver promises about page-mapped memory: the same bodies on the simulated and on the real one."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stf_places import errors
from stf_places._native import drivers, pages
from stf_places.machines import specs


def granularity(driver):
    """Return what suits the pages of all devices."""
    return max(pages.page_granularity(driver, device) for device in range(driver.device_count()))


class Range:
    """A reserved range; pieces are mapped into it by offset."""

    def __init__(self, driver, nbytes):
        self.driver, self.nbytes = driver, nbytes
        self.address = pages.reserve_pages(driver, nbytes)
        self.pieces = {}

    def map(self, offset, nbytes, device):
        pages.map_pages(self.driver, self.address + offset, nbytes, device)
        self.pieces[offset] = nbytes

    def unmap(self, offset, nbytes):
        pages.unmap_pages(self.driver, self.address + offset, nbytes)
        self.pieces = {at: size for at, size in self.pieces.items() if not offset <= at < offset + nbytes}

    def grant(self, offset, nbytes, devices):
        pages.grant_access(self.driver, self.address + offset, nbytes, devices)

    def write(self, offset, device, data, stream):
        self.driver.copy(self.address + offset, device, data.ctypes.data, "host", data.nbytes, stream)
        self.driver.synchronize_stream(stream)

    def read(self, offset, device, nbytes, stream):
        data = np.empty(nbytes, np.uint8)
        self.driver.copy(data.ctypes.data, "host", self.address + offset, device, nbytes, stream)
        self.driver.synchronize_stream(stream)
        return data

    def close(self):
        for offset, nbytes in self.pieces.items():
            pages.unmap_pages(self.driver, self.address + offset, nbytes)
        pages.release_pages(self.driver, self.address, self.nbytes)


@pytest.fixture
def reserve(driver):
    with contextlib.ExitStack() as stack:

        def make(nbytes):
            made = Range(driver, nbytes)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def streams(driver):
    """Return a stream of each device."""
    made = [driver.create_stream(driver.primary_context(device)) for device in range(driver.device_count())]
    yield made
    for stream in made:
        driver.destroy_stream(stream)


@pytest.fixture
def page(driver):
    return granularity(driver)


def random_bytes(nbytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def second_device(driver):
    if driver.device_count() < 2:
        pytest.skip("needs two devices")
    if not (driver.link(0, 1)["peer"] and driver.link(1, 0)["peer"]):
        pytest.skip("needs two devices that reach each other's memory")
    return 1


def free_memory(driver, device):
    return driver.memory_info(device)[0]


# ---- What works --------------------------------------------------------------------------------------------


def test_granularity_is_a_power_of_two(driver):
    for device in range(driver.device_count()):
        found = pages.page_granularity(driver, device)
        assert found >= 4096
        assert found & (found - 1) == 0


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_written_is_read(driver, reserve, streams, page, count):
    made = reserve(count * page)
    assert made.address % page == 0
    made.map(0, made.nbytes, 0)
    made.grant(0, made.nbytes, [0])
    data = random_bytes(made.nbytes)
    made.write(0, 0, data, streams[0])
    assert np.array_equal(made.read(0, 0, made.nbytes, streams[0]), data)
    driver.fill(made.address + 8, 0, b"\1\2", 100, streams[0])
    data[8:208] = [1, 2] * 100
    assert np.array_equal(made.read(0, 0, made.nbytes, streams[0]), data)


def test_two_pieces_of_one_device_are_one_array(driver, reserve, streams, page):
    made = reserve(3 * page)
    made.map(page, 2 * page, 0)
    made.map(0, page, 0)
    made.grant(0, 3 * page, [0])
    data = random_bytes(3 * page)
    made.write(0, 0, data, streams[0])
    across = made.read(page - 100, 0, 200, streams[0])
    assert np.array_equal(across, data[page - 100 : page + 100])
    driver.fill(made.address + page - 50, 0, b"\7", 100, streams[0])
    data[page - 50 : page + 50] = 7
    assert np.array_equal(made.read(0, 0, 3 * page, streams[0]), data)


def test_each_device_writes_and_reads_every_page(driver, reserve, streams, page):
    other = second_device(driver)
    made = reserve(4 * page)
    owners = [0, other, other, 0]
    for number, owner in enumerate(owners):
        made.map(number * page, page, owner)
    made.grant(0, 4 * page, [0, other])
    for writer in (0, other):
        data = random_bytes(4 * page, seed=writer)
        for number, owner in enumerate(owners):
            made.write(number * page, owner, data[number * page :][:page], streams[writer])
        for reader in (0, other):
            for number, owner in enumerate(owners):
                seen = made.read(number * page, owner, page, streams[reader])
                assert np.array_equal(seen, data[number * page :][:page])


def test_pages_are_copied_to_plain_memory_and_to_each_other(driver, reserve, streams, page):
    other = second_device(driver)
    made = reserve(2 * page)
    made.map(0, page, 0)
    made.map(page, page, other)
    made.grant(0, 2 * page, [0, other])
    data = random_bytes(page)
    block = driver.allocate_device(0, page, streams[0])
    driver.copy(block, 0, data.ctypes.data, "host", page, streams[0])
    driver.copy(made.address, 0, block, 0, page, streams[0])
    driver.copy(made.address + page, other, made.address, 0, page, streams[0])
    driver.fill(block, 0, b"\0", page, streams[0])
    driver.copy(block, 0, made.address + page, other, page, streams[0])
    seen = np.empty_like(data)
    driver.copy(seen.ctypes.data, "host", block, 0, page, streams[0])
    driver.synchronize_stream(streams[0])
    assert np.array_equal(seen, data)
    driver.free_device(0, block, streams[0])
    driver.synchronize_stream(streams[0])


def test_pieces_that_stay_keep_their_bytes(driver, reserve, streams, page):
    made = reserve(2 * page)
    made.map(0, page, 0)
    made.map(page, page, 0)
    made.grant(0, 2 * page, [0])
    data = random_bytes(2 * page)
    made.write(0, 0, data, streams[0])
    made.unmap(0, page)
    made.map(0, page, driver.device_count() - 1)
    assert np.array_equal(made.read(page, 0, page, streams[0]), data[page:])


def test_a_range_can_be_reserved_again_and_again(driver, page):
    for _ in range(50):
        address = pages.reserve_pages(driver, 8 * page)
        pages.release_pages(driver, address, 8 * page)


def test_memory_is_taken_when_mapped_and_given_back_when_unmapped(driver, reserve, page):
    nbytes = 64 * page
    before = free_memory(driver, 0)
    made = reserve(nbytes)
    assert before - free_memory(driver, 0) < nbytes
    made.map(0, nbytes, 0)
    assert before - free_memory(driver, 0) >= nbytes
    made.unmap(0, nbytes)
    assert before - free_memory(driver, 0) < nbytes


# ---- What is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [-1, 99])
def test_a_device_that_does_not_exist_is_named(driver, reserve, page, device):
    made = reserve(page)
    with pytest.raises(errors.InvalidDevice, match=f"got {device}$"):
        pages.page_granularity(driver, device)
    with pytest.raises(errors.InvalidDevice, match=f"got {device}$"):
        made.map(0, page, device)
    made.map(0, page, 0)
    with pytest.raises(errors.InvalidDevice, match=f"got {device}$"):
        made.grant(0, page, [0, device])


def test_sizes_and_offsets_are_multiples_of_the_granularity(driver, reserve, page):
    made = reserve(2 * page)
    for nbytes in (0, page - 1, page + 1):
        with pytest.raises(errors.DriverError, match=str(nbytes)):
            made.map(0, nbytes, 0)
    with pytest.raises(errors.DriverError):
        made.map(1, page, 0)
    with pytest.raises(errors.DriverError):
        pages.reserve_pages(driver, 0)
    made.map(0, 2 * page, 0)


def test_pieces_do_not_overlap(reserve, page):
    made = reserve(3 * page)
    made.map(page, page, 0)
    for offset, nbytes in ((0, 2 * page), (page, page), (page, 2 * page), (0, 3 * page)):
        with pytest.raises(errors.DriverError):
            made.map(offset, nbytes, 0)
    made.map(0, page, 0)
    made.map(2 * page, page, 0)


def test_pages_lie_within_a_range(driver, reserve, page):
    made = reserve(2 * page)
    with pytest.raises(errors.DriverError):
        made.map(page, 2 * page, 0)
    with pytest.raises(errors.DriverError):
        pages.map_pages(driver, page, page, 0)


def test_pieces_are_unmapped_whole(reserve, streams, page):
    made = reserve(4 * page)
    made.map(0, 2 * page, 0)
    made.map(2 * page, page, 0)
    for offset, nbytes in ((0, page), (page, page), (page, 2 * page), (0, 4 * page), (3 * page, page)):
        with pytest.raises(errors.DriverError):
            pages.unmap_pages(made.driver, made.address + offset, nbytes)
        with pytest.raises(errors.DriverError):
            made.grant(offset, nbytes, [0])
    made.grant(0, 3 * page, [0])
    data = random_bytes(3 * page)
    made.write(0, 0, data, streams[0])
    assert np.array_equal(made.read(0, 0, 3 * page, streams[0]), data)
    made.unmap(0, 3 * page)
    with pytest.raises(errors.DriverError):
        pages.unmap_pages(made.driver, made.address, 2 * page)


def test_a_range_is_released_whole_and_empty(driver, reserve, page):
    made = reserve(2 * page)
    made.map(page, page, 0)
    with pytest.raises(errors.DriverError):
        pages.release_pages(driver, made.address, 2 * page)
    made.unmap(page, page)
    with pytest.raises(errors.DriverError):
        pages.release_pages(driver, made.address, page)
    made.map(0, page, 0)


def test_too_much_memory_maps_nothing(driver, reserve, page):
    total = driver.memory_info(0)[1]
    nbytes = (total // page + 1) * page
    before = free_memory(driver, 0)
    made = reserve(nbytes)
    with pytest.raises(errors.OutOfMemory, match=str(nbytes)) as caught:
        made.map(0, nbytes, 0)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.call
    with pytest.raises(errors.DriverError):
        pages.unmap_pages(driver, made.address, nbytes)
    assert before - free_memory(driver, 0) < nbytes
    made.map(0, page, 0)


def test_access_is_refused_where_it_was_not_given(driver, reserve, streams, page):
    if not driver.simulated:
        pytest.skip(
            "needs a driver that checks access at the call: on a real one it is an error of the context"
        )
    other = second_device(driver)
    made = reserve(2 * page)
    made.map(0, page, 0)
    made.map(page, page, other)
    made.grant(0, 2 * page, [0])
    for owner, offset in ((0, 0), (other, page)):
        with pytest.raises(errors.DriverError, match="device 1 has no access to pages of range"):
            made.read(offset, owner, page, streams[other])
        with pytest.raises(
            errors.DriverError, match="task 'remote': device 1 has no access to pages of range"
        ):
            driver.host_work(streams[other], symbol="remote", accesses=[(made.address + offset, page, False)])
    made.grant(0, 2 * page, [other])
    driver.host_work(streams[other], symbol="remote", accesses=[(made.address, 2 * page, True)])
    driver.synchronize_stream(streams[other])


def test_devices_that_do_not_reach_each_other_are_named():
    driver = drivers.sim_driver(specs.load("nopeer2").to_dict())
    page = granularity(driver)
    made = Range(driver, 2 * page)
    made.map(0, page, 0)
    made.map(page, page, 1)
    with pytest.raises(errors.NotSupported, match="device 0 cannot reach the memory of device 1"):
        made.grant(0, 2 * page, [0])
    made.grant(0, page, [0])
    made.close()
    assert driver.live_allocations() == 0


# ---- Any sequence of calls, against a model: simulated machines only ------------------------------------------

PAGES = 8


class Model:
    """The pages of one range: whose each is, and with which others it was mapped."""

    def __init__(self):
        self.driver = drivers.sim_driver(specs.load("tiny").to_dict())
        self.page = granularity(self.driver)
        self.range = Range(self.driver, PAGES * self.page)
        self.stream = self.driver.create_stream(self.driver.primary_context(0))
        self.pieces = {}  # (first page, pages) -> device
        self.content = {}  # page -> byte

    def covered(self, first, count):
        return [p for p in self.pieces if p[0] < first + count and first < p[0] + p[1]]

    def whole(self, first, count):
        """Tell whether the pages are whole pieces without a gap."""
        inside = self.covered(first, count)
        return (
            sum(p[1] for p in inside) == count
            and all(first <= p[0] and p[0] + p[1] <= first + count for p in inside)
        )  # fmt: skip

    def map(self, first, count, device):
        works = first + count <= PAGES and not self.covered(first, count)
        with contextlib.nullcontext() if works else pytest.raises(errors.DriverError):
            self.range.map(first * self.page, count * self.page, device)
        if works:
            self.pieces[first, count] = device
            self.content.update(dict.fromkeys(range(first, first + count), 0))
            self.range.grant(first * self.page, count * self.page, [0])

    def unmap(self, first, count, _):
        works = first + count <= PAGES and self.whole(first, count)
        with contextlib.nullcontext() if works else pytest.raises(errors.DriverError):
            pages.unmap_pages(self.driver, self.range.address + first * self.page, count * self.page)
        if works:
            for piece in self.covered(first, count):
                del self.pieces[piece]
            for number in range(first, first + count):
                del self.content[number]

    def write(self, first, count, value):
        owners = {
            number: self.pieces[piece]
            for number in range(first, first + count)
            for piece in self.covered(number, 1)
        }
        works = len(owners) == count and len(set(owners.values())) == 1
        with contextlib.nullcontext() if works else pytest.raises(errors.DriverError):
            self.driver.fill(
                self.range.address + first * self.page,
                owners.get(first, 0),
                bytes([value + 1]),
                count * self.page,
                self.stream,
            )
        self.driver.synchronize_stream(self.stream)
        if works:
            self.content.update(dict.fromkeys(range(first, first + count), value + 1))

    def check(self):
        for device in (0, 1):
            taken = sum(count for (_, count), owner in self.pieces.items() if owner == device)
            assert self.driver.used_memory(device) == taken * self.page
        for (first, count), device in self.pieces.items():
            seen = self.range.read(first * self.page, device, count * self.page, self.stream)
            expected = [self.content[number] for number in range(first, first + count)]
            assert np.array_equal(seen, np.repeat(np.array(expected, np.uint8), self.page))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["map", "map", "write", "unmap"]),
            st.integers(0, PAGES - 1),
            st.integers(1, 4),
            st.integers(0, 1),
        ),
        max_size=30,
    )
)
def test_any_sequence_of_calls(calls):
    model = Model()
    for name, *arguments in calls:
        getattr(model, name)(*arguments)
    model.check()
    assert model.driver.live_allocations() == 1 + len(model.pieces)
    assert model.driver.conflicts() == []
