"""Page-mapped memory of CudaDriver, on the stand-in for libcuda: pages of 2 MiB, 1 GiB a device."""

import pytest

PRELUDE = """
from stf_places._native.pages import *
driver = cuda_driver()
PAGE = page_granularity(driver, 0)
"""
# Two pages of device 0 and one of device 1, of a range of four.
MAPPED = """
base = reserve_pages(driver, 4 * PAGE)
map_pages(driver, base, 2 * PAGE, 0)
map_pages(driver, base + 2 * PAGE, PAGE, 1)
"""
# Nothing is current: none of the operations may need that, or leave anything current.
COPIES = """
stream, other = (driver.create_stream(driver.primary_context(device)) for device in (0, 1))
pool = driver.allocate_device(1, 16, other)
"""
CALLS = [
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemSetAccess",
]


def test_a_range_over_two_devices(look):
    out, calls = look(
        MAPPED
        + """
import ctypes
free = driver.memory_info(0)[0]
assert driver.current_context() == 0
grant_access(driver, base, 3 * PAGE, [1, 0, 1])
assert driver.current_context() == 0
stream = driver.create_stream(driver.primary_context(0))
sent = bytearray(os.urandom(3 * PAGE)), bytearray(3 * PAGE)
addresses = [ctypes.addressof(ctypes.c_char.from_buffer(block)) for block in sent]
driver.copy(base, 0, addresses[0], "host", 3 * PAGE, stream)
driver.copy(addresses[1], "host", base, 0, 3 * PAGE, stream)
print(sent[0] == sent[1], PAGE, (1 << 30) - free == 2 * PAGE)
unmap_pages(driver, base, 3 * PAGE)
print(driver.memory_info(0)[0] - free == 2 * PAGE)
release_pages(driver, base, 4 * PAGE)
"""
    )
    assert out == "True 2097152 True\nTrue\n"
    assert calls.count("access of 2 devices to 3 pages") == calls.count("cuMemSetAccess") == 1
    assert calls.count("cuMemUnmap") == 1 and calls.count("cuMemCreate") == calls.count("cuMemRelease") == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("reserve_pages(driver, 0)", "multiples of 2097152 bytes, 1 or more of them: got 0"),
        ("reserve_pages(driver, PAGE + 1)", "multiples of 2097152 bytes, 1 or more of them: got 2097153"),
        ("map_pages(driver, base + 3 * PAGE, 0, 0)", "multiples of 2097152 bytes: got 0 bytes at {base}+3"),
        ("map_pages(driver, base + 3 * PAGE, 4096, 0)", "multiples of 2097152 bytes: got 4096 bytes"),
        ("map_pages(driver, base + 4096, PAGE, 0)", "multiples of 2097152 bytes: got"),
        ("map_pages(driver, base + 3 * PAGE, 2 * PAGE, 0)", "the range is 8388608 bytes at {base}+0"),
        ("map_pages(driver, base - PAGE, 2 * PAGE, 0)", "addresses that reserve_pages gave"),
        ("map_pages(driver, base + PAGE, PAGE, 1)", "the piece of 4194304 bytes at {base}+0 on device 0"),
        ("map_pages(driver, base, 4 * PAGE, 1)", "the piece of 4194304 bytes at {base}+0 on device 0"),
        ("unmap_pages(driver, base, PAGE)", "which ends within the piece of 4194304 bytes at {base}+0"),
        ("unmap_pages(driver, base + PAGE, PAGE)", "which begins within the piece of 4194304 bytes"),
        ("unmap_pages(driver, base, 4 * PAGE)", "but nothing is mapped at {base}+3; map_pages comes first"),
        ("unmap_pages(driver, base, 0)", "whole pieces, all of them mapped: got 0 bytes at {base}+0"),
        ("unmap_pages(driver, base, 5 * PAGE)", "within one range, here 8388608 bytes at {base}+0"),
        ("unmap_pages(driver, 4096, PAGE)", "2097152 bytes at 0x1000, which reserve_pages did not give"),
        ("grant_access(driver, base, 4 * PAGE, [0])", "but nothing is mapped at {base}+3"),
        ("grant_access(driver, base, PAGE, [0])", "which ends within the piece of 4194304 bytes"),
        ("grant_access(driver, base, 4 * PAGE, [])", "but nothing is mapped at {base}+3"),
        (
            "release_pages(driver, base, PAGE)",
            "as a whole: got 2097152 bytes at {base}+0; the range is 8388608",
        ),
        ("release_pages(driver, base, 4 * PAGE)", "with the piece of 4194304 bytes at {base}+0 on device 0"),
        ("release_pages(driver, 4096, PAGE)", "got 2097152 bytes at 0x1000, where none are"),
    ],
)
def test_what_is_refused_says_what_is_there_and_changes_nothing(look, call, text):
    out, calls = look(
        MAPPED
        + f"""
error = failure(lambda: {call})
print(type(error).__name__, error)
print(*(hex(base + page * PAGE) for page in range(4)))
grant_access(driver, base, 3 * PAGE, [0, 1])
unmap_pages(driver, base, 3 * PAGE)
release_pages(driver, base, 4 * PAGE)
"""
    )
    error, pages = out.splitlines()
    for number, address in enumerate(pages.split()):
        text = text.replace(f"{{base}}+{number}", address)
    assert error.startswith("DriverError cuMem") and text in error
    # The driver was not asked for what it would have refused.
    assert [calls.count(name) for name in CALLS[1:]] == [1, 1, 2, 2, 1, 2, 1]


def test_pages_are_mapped_anew_without_the_access_of_before(look):
    out, _ = look(
        MAPPED
        + COPIES
        + """
grant_access(driver, base, 2 * PAGE, [0, 1])
driver.copy(pool, 1, base, 0, 16, other)
unmap_pages(driver, base, 2 * PAGE)
map_pages(driver, base, 2 * PAGE, 0)
print(failure(driver.copy, base, 0, base + PAGE, 0, 16, stream).name)
"""
    )
    assert out == "CUDA_ERROR_INVALID_VALUE\n"


def test_granting_nobody_is_nothing_to_do(look):
    _, calls = look(MAPPED + "grant_access(driver, base, 3 * PAGE, [])")
    assert "cuMemSetAccess" not in calls


def test_access_needs_contexts_of_all_devices_concerned(look):
    _, calls = look(MAPPED + "grant_access(driver, base + 2 * PAGE, PAGE, [0])")
    assert calls.count("cuDevicePrimaryCtxRetain") == 2


def test_devices_that_do_not_reach_each_other_are_named(look):
    out, calls = look(
        MAPPED
        + """
for address, nbytes, devices in ((base, 2 * PAGE, [0, 1]), (base, 3 * PAGE, [0])):
    error = failure(grant_access, driver, address, nbytes, devices)
    print(type(error).__name__, error)
grant_access(driver, base, 2 * PAGE, [0])
grant_access(driver, base + 2 * PAGE, PAGE, [1])
""",
        FAKE_NO_PEERS="1",
    )
    first, second = out.splitlines()
    assert first.startswith("NotSupported") and "device 1 cannot reach the memory of device 0: " in first
    assert second.startswith("NotSupported") and "device 0 cannot reach the memory of device 1: " in second
    assert calls.count("cuMemSetAccess") == 2


def test_devices_that_are_not_there_are_named(look):
    out, calls = look(
        MAPPED
        + """
for error in (failure(page_granularity, driver, 2), failure(map_pages, driver, base + 3 * PAGE, PAGE, -1),
              failure(grant_access, driver, base, 2 * PAGE, [0, 7])):
    print(type(error).__name__, error)
"""
    )
    for line, device in zip(out.splitlines(), (2, -1, 7), strict=True):
        assert line.startswith("InvalidDevice") and f"2 devices, 0 to 1: got {device}" in line
    assert calls.count("cuMemCreate") == 2 and "cuMemSetAccess" not in calls


def test_out_of_memory_names_the_device_and_leaves_nothing(look):
    out, _ = look(
        """
base = reserve_pages(driver, 1 << 31)
error = failure(map_pages, driver, base, 1 << 31, 1)
assert isinstance(error, MemoryError) and error.name == "CUDA_ERROR_OUT_OF_MEMORY", error
print(error.call, error)
map_pages(driver, base, 1 << 30, 1)
stream = driver.create_stream(driver.primary_context(1))
print(failure(driver.allocate_device, 1, 16, stream))
unmap_pages(driver, base, 1 << 30)
driver.allocate_device(1, 1 << 30, stream)
print(failure(map_pages, driver, base, PAGE, 1))
release_pages(driver, base, 1 << 31)
"""
    )
    first, second, third = out.splitlines()
    assert first.startswith("cuMemCreate ")
    assert "asked for 2147483648 bytes on device 1, where 1073741824 of 1073741824 are free" in first
    assert "asked for 16 bytes on device 1, where 0 of 1073741824 are free" in second
    assert "asked for 2097152 bytes on device 1, where 0 of 1073741824 are free" in third


@pytest.mark.parametrize("code", [1, 2])
def test_memory_that_cannot_be_mapped_is_given_back(look, code):
    out, calls = look(
        """
base = reserve_pages(driver, PAGE)
error = failure(map_pages, driver, base, PAGE, 0)
print(error.call, error.code, driver.memory_info(0)[0] == 1 << 30)
release_pages(driver, base, PAGE)
""",
        FAKE_FAIL=f"cuMemMap={code}",
    )
    assert out == f"cuMemMap {code} True\n"
    assert calls.count("cuMemRelease") == 1


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cuMemUnmap", "unmap_pages(driver, base, 3 * PAGE)"),
        ("cuMemSetAccess", "grant_access(driver, base, 3 * PAGE, [0, 1])"),
        ("cuMemAddressFree", "release_pages(driver, spare, PAGE)"),
    ],
)
def test_what_the_driver_refuses_stays_as_it_was(look, name, call):
    out, calls = look(
        MAPPED
        + f"""
spare = reserve_pages(driver, PAGE)
for again in range(2):
    error = failure(lambda: {call})
    print(error.call, error.code, error)
""",
        FAKE_FAIL=f"{name}=1",
    )
    for line in out.splitlines():
        assert line.startswith(f"{name} 1 {name} failed: CUDA_ERROR_INVALID_VALUE (1): ")
        assert " bytes at 0x" in line
    assert calls.count(name) == 2


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_entry_point_names_the_version_that_brings_it(run, name):
    out = run(
        """
from stf_places._native.pages import *
driver = cuda_driver()
def use():
    PAGE = page_granularity(driver, 0)
    base = reserve_pages(driver, PAGE)
    map_pages(driver, base, PAGE, 0)
    grant_access(driver, base, PAGE, [0])
    unmap_pages(driver, base, PAGE)
    release_pages(driver, base, PAGE)
error = failure(use)
print(type(error).__name__, error.call, error)
""",
        FAKE_WITHOUT=name,
    )
    assert out.startswith(f"NotSupported {name} ") and "comes with CUDA 10.2" in out


def test_a_device_without_virtual_memory_management(look):
    out, calls = look(
        """
base = reserve_pages(driver, 2 * PAGE)
map_pages(driver, base, PAGE, 0)
for error in (failure(page_granularity, driver, 1), failure(map_pages, driver, base + PAGE, PAGE, 1),
              failure(grant_access, driver, base, PAGE, [0, 1])):
    assert type(error) is errors.NotSupported, error
    print(error)
grant_access(driver, base, PAGE, [0])
""",
        FAKE_NO_PAGES="1",
    )
    lines = out.splitlines()
    assert len(lines) == 3
    assert all("virtual memory management, which device 1 does not have" in line for line in lines)
    assert calls.count("cuMemCreate") == calls.count("cuMemSetAccess") == 1


def test_no_device_with_virtual_memory_management(run):
    out = run(
        """
from stf_places._native.pages import *
driver = cuda_driver()
print(repr(failure(reserve_pages, driver, 1 << 21)))
stream = driver.create_stream(driver.primary_context(0))
driver.allocate_device(0, 16, stream)
""",
        FAKE_NO_PAGES="0,1",
    )
    assert out.startswith("NotSupported") and "allocations that lie on one device still work" in out


@pytest.mark.parametrize(
    ("granted", "peers", "expected"),
    [
        ([0, 1], [(0, 1)], "cuMemcpyAsync"),
        ([0, 1], [], "cuMemcpyPeerAsync"),  # on a stream of device 0, which does not reach the pool of 1
        ([0], [(0, 1), (1, 0)], "cuMemcpyPeerAsync"),  # enable_peer_access says nothing about pages
    ],
)
def test_copies_to_memory_of_another_device_go_by_what_was_granted(look, granted, peers, expected):
    _, calls = look(
        MAPPED
        + COPIES
        + f"""
grant_access(driver, base, 2 * PAGE, {granted})
for pair in {peers}:
    driver.enable_peer_access(*pair)
for on in (stream, other):
    driver.copy(pool, 1, base, 0, 16, on)
    driver.copy(base + 16, 0, pool, 1, 16, on)
"""
    )
    assert {call for call in calls if call.startswith("cuMemcpy")} == {expected}


def test_copies_between_pieces_of_one_range_go_by_what_was_granted(look):
    for granted, expected in (("[0, 1]", "cuMemcpyAsync"), ("[device]", "cuMemcpyPeerAsync")):
        _, calls = look(
            MAPPED
            + COPIES
            + f"""
for device, address, nbytes in ((0, base, 2 * PAGE), (1, base + 2 * PAGE, PAGE)):
    grant_access(driver, address, nbytes, {granted})
driver.copy(base + 2 * PAGE, 1, base, 0, 16, stream)
driver.copy(base, 0, base + 2 * PAGE, 1, 16, other)
"""
        )
        assert [call for call in calls if call.startswith("cuMemcpy")] == [expected] * 2


def test_the_child_of_a_fork_is_told_to_spawn(run):
    out = run(
        PRELUDE
        + MAPPED
        + """
child = os.fork()
if child == 0:
    for address in (base, 4096):
        for error in (failure(page_granularity, driver, 0), failure(reserve_pages, driver, PAGE),
                      failure(release_pages, driver, address, 4 * PAGE),
                      failure(map_pages, driver, address, PAGE, 0), failure(unmap_pages, driver, address, PAGE),
                      failure(grant_access, driver, address, 2 * PAGE, [0])):
            assert "multiprocessing.get_context('spawn')" in str(error), error
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    )
    assert out == "0\n"


def test_threads_map_and_unmap_side_by_side(look):
    out, _ = look(
        """
import threading
failures = []
def work(device):
    try:
        for _ in range(50):
            base = reserve_pages(driver, 4 * PAGE)
            for piece in range(4):
                map_pages(driver, base + piece * PAGE, PAGE, device)
            grant_access(driver, base, 4 * PAGE, [0, 1])
            unmap_pages(driver, base, 4 * PAGE)
            release_pages(driver, base, 4 * PAGE)
    except Exception as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failures, driver.memory_info(0)[0] == driver.memory_info(1)[0] == 1 << 30)
"""
    )
    assert out == "[] True\n"


SHORT = """
import numpy as np
import stf_places as stf

with stf.use_machine("cuda"), stf.context() as ctx:
    data = ctx.logical_data_empty((8 << 20,), np.uint8, name="u")
    grid = stf.exec_place_grid.from_devices([0, 1]).with_data(stf.blocked("x"))
    error = failure(ctx.task(grid, data.write()).start)
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("call", ["cuMemSetAccess", "cuMemAddressReserve", "cuMemCreate"])
def test_composite_data_for_which_the_driver_has_no_memory_is_refused_by_name(run, call):
    assert run(SHORT, FAKE_FAIL=f"{call}=2").startswith(
        "OutOfMemory no memory for 'u': 8388608 bytes on composite"
    )
