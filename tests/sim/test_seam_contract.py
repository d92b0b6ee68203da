"""What every driver behind the seam promises: the same bodies on the simulated and on the real one."""

import ctypes
import sys
import threading
import time

import numpy as np
import pytest

from stf_places import errors

KINDS = ["pageable", "pinned", "device", "managed"]


class Memory:
    """A block of any kind of memory, written and read through the driver alone."""

    def __init__(self, driver, kind, nbytes, stream, device=0):
        self.driver, self.kind, self.nbytes, self.stream, self.device = driver, kind, nbytes, stream, device
        self.location = {"device": device, "managed": "managed"}.get(kind, "host")
        if kind == "pageable":
            self.array = np.zeros(nbytes, np.uint8)
            self.address = self.array.ctypes.data
        elif kind == "pinned":
            self.address = driver.allocate_host(nbytes)
        elif kind == "managed":
            self.address = driver.allocate_managed(nbytes, device)
        else:
            self.address = driver.allocate_device(device, nbytes, stream)

    def write(self, data):
        self.driver.copy(self.address, self.location, data.ctypes.data, "host", data.nbytes, self.stream)
        self.driver.synchronize_stream(self.stream)

    def read(self):
        data = np.empty(self.nbytes, np.uint8)
        self.driver.copy(data.ctypes.data, "host", self.address, self.location, self.nbytes, self.stream)
        self.driver.synchronize_stream(self.stream)
        return data

    def free(self):
        self.driver.synchronize_stream(self.stream)
        if self.kind == "pinned":
            self.driver.free_host(self.address)
        elif self.kind == "managed":
            self.driver.free_managed(self.address)
        elif self.kind == "device":
            self.driver.free_device(self.device, self.address, self.stream)
            self.driver.synchronize_stream(self.stream)


@pytest.fixture
def context(driver):
    return driver.primary_context(0)


@pytest.fixture
def stream(driver, context):
    made = driver.create_stream(context)
    yield made
    driver.destroy_stream(made)


@pytest.fixture
def allocate(driver, stream):
    blocks = []

    def make(kind, nbytes, device=0, on=None):
        blocks.append(Memory(driver, kind, nbytes, stream if on is None else on, device))
        return blocks[-1]

    yield make
    for block in blocks:
        block.free()


def random_bytes(nbytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def second_device(driver):
    if driver.device_count() < 2:
        pytest.skip("needs two devices")
    return 1


def in_new_thread(function):
    """Run in a thread that has no current context yet, and raise here what it raises."""
    caught = []

    def body():
        try:
            function()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if caught:
        raise caught[0]


# ---- Devices -------------------------------------------------------------------------------------------


def test_says_what_it_is(driver):
    assert driver.name in ("sim", "cuda")
    assert driver.simulated == (driver.name == "sim")
    assert driver.executes
    assert driver.version() >= 12000
    assert driver.name in repr(driver) and driver.machine in repr(driver)


def test_device_properties(driver):
    for device in range(driver.device_count()):
        found = driver.device_properties(device)
        assert found["name"] and found["sm_count"] > 0 and found["total_memory"] > 0
        assert found["compute_major"] > 0 and found["copy_engines"] > 0 and found["memory_pools"]
        assert found["memory_bandwidth"] >= 0
        free, total = driver.memory_info(device)
        assert 0 < free <= total <= found["total_memory"]


@pytest.mark.parametrize("device", [-2, 99])
@pytest.mark.parametrize(
    "call",
    [
        lambda driver, device: driver.device_properties(device),
        lambda driver, device: driver.memory_info(device),
        lambda driver, device: driver.primary_context(device),
        lambda driver, device: driver.link(0, device),
        lambda driver, device: driver.enable_peer_access(0, device),
        lambda driver, device: driver.allocate_device(device, 16, 0),
        lambda driver, device: driver.trim_device(device),
    ],
    ids=["properties", "memory_info", "primary_context", "link", "peer", "allocate", "trim"],
)
def test_a_device_that_does_not_exist_is_named(driver, call, device):
    with pytest.raises(errors.InvalidDevice, match=rf"device.*\b{driver.device_count() - 1}: got {device}$"):
        call(driver, device)


def test_links(driver):
    assert not driver.link(-1, 0)["peer"]
    assert driver.link(0, 0)["peer"]
    assert driver.link(0, -1)["bandwidth"] >= 0


# ---- Contexts ------------------------------------------------------------------------------------------


def test_primary_context_is_one(driver, context):
    assert context != 0
    assert driver.primary_context(0) == context
    assert driver.context_device(context) == 0


def test_current_context_is_set_for_the_thread(driver, context):
    def body():
        assert driver.current_context() == 0
        driver.set_current_context(context)
        assert driver.current_context() == context
        driver.set_current_context(0)
        assert driver.current_context() == 0

    in_new_thread(body)


def use_everything(driver, device):
    context = driver.primary_context(device)
    stream = driver.create_stream(context)
    event = driver.create_event(context)
    data = random_bytes(1000)
    block = Memory(driver, "device", 1000, stream, device)
    block.write(data)
    driver.fill(block.address, device, b"\0", 10, stream)
    driver.record_event(event, stream)
    driver.wait_event(stream, event)
    driver.synchronize_event(event)
    driver.host_function(stream, lambda: None)
    assert np.array_equal(block.read()[10:], data[10:])
    assert driver.query_stream(stream) and driver.query_event(event)
    assert driver.query_default_streams(context)
    assert not driver.stream_capturing(stream)
    assert driver.stream_context(stream) == context
    for kind in ("pinned", "managed"):
        Memory(driver, kind, 64, stream, device).free()
    driver.memory_info(device)
    driver.trim_device(device)
    block.free()
    driver.destroy_event(event)
    driver.destroy_stream(stream)


def test_operations_leave_the_current_context(driver, context):
    def body():
        for device in range(min(2, driver.device_count())):
            for before in (0, context):
                driver.set_current_context(before)
                use_everything(driver, device)
                assert driver.current_context() == before

    in_new_thread(body)


def test_threads_side_by_side(driver):
    caught = []

    def body():
        try:
            for _ in range(5):
                use_everything(driver, 0)
        except BaseException as error:
            caught.append(error)

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == []


# ---- Streams and events --------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1000, -1, 0, 1, 1000])
def test_priorities_are_clamped(driver, context, priority):
    stream = driver.create_stream(context, priority)
    assert driver.stream_context(stream) == context
    driver.synchronize_stream(stream)
    driver.destroy_stream(stream)


def test_context_0_has_no_streams(driver):
    with pytest.raises(errors.DriverError):
        driver.create_stream(0)


def test_host_functions_run_in_stream_order(driver, stream):
    seen = []
    for i in range(50):
        driver.host_function(stream, lambda i=i: seen.append(i))
    driver.synchronize_stream(stream)
    assert seen == list(range(50))
    assert driver.query_stream(stream)


def test_a_destroyed_stream_finishes_its_work(driver, context):
    done = threading.Event()
    stream = driver.create_stream(context)
    driver.host_function(stream, done.set)
    driver.destroy_stream(stream)
    other = driver.create_stream(context)
    deadline = time.monotonic() + 10
    while not done.is_set() and time.monotonic() < deadline:
        if driver.simulated:
            driver.drain()
        driver.synchronize_stream(other)
    driver.destroy_stream(other)
    assert done.is_set()


def test_a_wait_orders_two_streams(driver, context, stream):
    other = driver.create_stream(context)
    event = driver.create_event(context)
    seen = []
    driver.host_function(stream, lambda: (time.sleep(0.02), seen.append("first")))
    driver.record_event(event, stream)
    driver.wait_event(other, event)
    driver.host_function(other, lambda: seen.append("second"))
    driver.synchronize_stream(other)
    assert seen == ["first", "second"]
    assert driver.query_event(event)
    driver.destroy_event(event)
    driver.destroy_stream(other)


def test_an_event_stands_for_what_was_before_it(driver, context, stream):
    event = driver.create_event(context)
    seen = []
    driver.host_function(stream, lambda: seen.append("before"))
    driver.record_event(event, stream)
    driver.synchronize_event(event)
    assert seen == ["before"]
    driver.destroy_event(event)


def test_an_event_that_was_never_recorded_is_ready(driver, context, stream):
    event = driver.create_event(context)
    assert driver.query_event(event)
    driver.wait_event(stream, event)
    driver.synchronize_event(event)
    driver.synchronize_stream(stream)
    driver.destroy_event(event)


def test_elapsed_time(driver, context, stream, allocate):
    first, last = driver.create_event(context, True), driver.create_event(context, True)
    block = allocate("device", 1 << 24)
    driver.record_event(first, stream)
    driver.fill(block.address, 0, b"\1", block.nbytes, stream)
    driver.record_event(last, stream)
    driver.synchronize_event(last)
    assert 0 < driver.elapsed_us(first, last) < 1e6
    driver.destroy_event(first)
    driver.destroy_event(last)


def test_an_exception_in_a_host_function_goes_to_the_hook(driver, stream, monkeypatch):
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: caught.append(str(report.exc_value)))
    driver.host_function(stream, lambda: 1 // 0)
    driver.synchronize_stream(stream)
    assert len(caught) == 1 and "zero" in caught[0]


# ---- Memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 4097, 1 << 20])
@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_copies(driver, allocate, source, target, nbytes):
    data = random_bytes(nbytes)
    one, two = allocate(source, nbytes), allocate(target, nbytes)
    one.write(data)
    driver.copy(two.address, two.location, one.address, one.location, nbytes, two.stream)
    assert np.array_equal(two.read(), data)


def test_a_part_is_copied_and_nothing_else(driver, stream, allocate):
    data, zeros = random_bytes(1000), np.zeros(1000, np.uint8)
    one, two = allocate("device", 1000), allocate("device", 1000)
    one.write(data)
    two.write(zeros)
    driver.copy(two.address + 13, 0, one.address + 7, 0, 100, stream)
    driver.copy(two.address, 0, one.address, 0, 0, stream)
    expected = zeros.copy()
    expected[13:113] = data[7:107]
    assert np.array_equal(two.read(), expected)


def fill_values(width):
    yield bytes(width)
    yield bytes([7]) * width
    yield bytes(range(1, width + 1))
    if width > 2:
        yield bytes(range(1, width // 2 + 1)) * 2


@pytest.mark.parametrize("count", [0, 1, 3, 32768, 65536, 100_001])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_fills(driver, allocate, kind, width, count):
    margin = 32
    block = allocate(kind, width * count + 2 * margin)
    for value in fill_values(width):
        before = random_bytes(block.nbytes, seed=width)
        block.write(before)
        driver.fill(block.address + margin, block.location, value, count, block.stream)
        expected = before.copy()
        expected[margin : margin + width * count] = np.tile(np.frombuffer(value, np.uint8), count)
        assert np.array_equal(block.read(), expected)


def test_fills_of_other_widths_are_refused(driver, stream, allocate):
    block = allocate("device", 64)
    with pytest.raises(errors.DriverError, match=r"1, 2, 4, 8 or 16.*3"):
        driver.fill(block.address, 0, b"abc", 4, stream)


def test_memory_follows_stream_order(driver, stream):
    data = random_bytes(1 << 16)
    for _ in range(20):
        block = Memory(driver, "device", data.nbytes, stream)
        driver.copy(block.address, 0, data.ctypes.data, "host", data.nbytes, stream)
        back = np.empty_like(data)
        driver.copy(back.ctypes.data, "host", block.address, 0, data.nbytes, stream)
        driver.free_device(0, block.address, stream)
        driver.synchronize_stream(stream)
        assert np.array_equal(back, data)
    driver.trim_device(0)


def test_too_large_an_allocation_names_the_size(driver, stream, allocate):
    nbytes = 1 << 50
    with pytest.raises(errors.OutOfMemory, match=str(nbytes)) as caught:
        driver.allocate_device(0, nbytes, stream)
    assert isinstance(caught.value, MemoryError) and caught.value.call
    data = random_bytes(100)
    block = allocate("device", 100)
    block.write(data)
    assert np.array_equal(block.read(), data)


def test_pinned_memory_is_the_hosts_too(driver, stream, allocate):
    block = allocate("pinned", 100)
    view = np.frombuffer((ctypes.c_ubyte * 100).from_address(block.address), np.uint8)
    data = random_bytes(100)
    block.write(data)
    assert np.array_equal(view, data)


# ---- Two devices ---------------------------------------------------------------------------------------


def check_copy_to(driver, device):
    context = driver.primary_context(device)
    there = driver.create_stream(context)
    here = driver.create_stream(driver.primary_context(0))
    data = random_bytes(100_000)
    one = Memory(driver, "device", data.nbytes, here, 0)
    two = Memory(driver, "device", data.nbytes, there, device)
    one.write(data)
    driver.synchronize_stream(there)
    for stream in (here, there):
        driver.copy(two.address, device, one.address, 0, data.nbytes, stream)
        driver.synchronize_stream(stream)
        assert np.array_equal(two.read(), data)
        driver.fill(two.address, device, b"\0", data.nbytes, there)
        driver.synchronize_stream(there)
    one.free()
    two.free()
    driver.destroy_stream(here)
    driver.destroy_stream(there)


def test_copies_between_devices(driver):
    other = second_device(driver)
    check_copy_to(driver, other)
    if driver.link(0, other)["peer"]:
        for _ in range(2):
            driver.enable_peer_access(0, other)
            driver.enable_peer_access(other, 0)
        check_copy_to(driver, other)
    else:
        with pytest.raises(errors.NotSupported, match="cannot reach"):
            driver.enable_peer_access(0, other)


def test_a_wait_orders_two_devices(driver, context, stream):
    other = second_device(driver)
    there = driver.create_stream(driver.primary_context(other))
    event = driver.create_event(context)
    seen = []
    driver.host_function(stream, lambda: (time.sleep(0.02), seen.append("first")))
    driver.record_event(event, stream)
    driver.wait_event(there, event)
    driver.host_function(there, lambda: seen.append("second"))
    driver.synchronize_stream(there)
    assert seen == ["first", "second"]
    driver.destroy_event(event)
    driver.destroy_stream(there)
