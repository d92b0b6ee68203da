"""Sets of SMs and green contexts of CudaDriver, on the stand-in for libcuda: 132 SMs in steps of 8."""

import pytest

PRELUDE = """
from stf_places._native.sm_splits import *
driver = cuda_driver()
"""
GREEN = """
groups, left = split_sms(driver, device_sms(driver, 0), 16)
green = create_green_context(driver, 0, groups[:2])
"""
NEW = {"FAKE_VERSION": "13010"}
MADE = ("cuGreenCtxCreate", "cuDevicePrimaryCtxRetain")


def test_a_driver_of_12_4_has_no_green_contexts_and_works(look):
    out, calls = look(
        """
context = driver.primary_context(0)
for error in (failure(device_sms, driver, 0), failure(context_sms, driver, context),
              failure(create_green_context, driver, 0, [])):
    assert type(error) is errors.NotSupported, error
    print(error)
stream = driver.create_stream(context)
address = driver.allocate_device(0, 16, stream)
driver.fill(address, 0, b"a", 16, stream)
driver.record_event(driver.create_event(context), stream)
driver.synchronize_stream(stream)
""",
        FAKE_VERSION="12040",
    )
    assert out.count("does not have cuGreenCtxStreamCreate, which comes with CUDA 12.5") == 3
    assert not [call for call in calls if "Green" in call or "Resource" in call]


@pytest.mark.parametrize(
    "name",
    [
        "cuDeviceGetDevResource",
        "cuDevSmResourceSplitByCount",
        "cuDevResourceGenerateDesc",
        "cuGreenCtxCreate",
        "cuGreenCtxStreamCreate",
    ],
)
def test_a_missing_entry_point_is_named_and_nothing_is_made(look, name):
    out, calls = look(
        f"""
def make():
    exec({GREEN!r}, globals())
error = failure(make)
print(type(error).__name__, error)
""",
        FAKE_WITHOUT=name,
    )
    assert out.startswith("NotSupported") and f"does not have {name}, which comes with CUDA 12." in out
    assert "cuGreenCtxCreate" not in calls


@pytest.mark.parametrize("version", ["12050", "12080", "13000", "13010"])
def test_smallest_group_and_steps_are_known_on_every_driver(look, version):
    out, calls = look(
        """
for found in (device_sms(driver, 1), context_sms(driver, driver.primary_context(1))):
    print(found.device, found.sm_count, found.min_partition, found.alignment)
""",
        FAKE_VERSION=version,
    )
    assert out == "1 132 8 8\n" * 2
    assert calls.count("cuDevSmResourceSplitByCount") == (2 if version < "13000" else 0)


def test_a_green_context_too_small_to_split_is_its_own_smallest_group(look):
    out, _ = look(
        """
groups, left = split_sms(driver, device_sms(driver, 0), 2, 1, fine=True)
found = context_sms(driver, create_green_context(driver, 0, groups))
print(found.device, found.sm_count, found.min_partition, found.alignment)
""",
        FAKE_VERSION="12080",
    )
    assert out == "0 2 2 2\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("16", "8x16 4"),
        ("8", "15x8 12"),
        ("8, 16", "15x8 12"),
        ("12, 3", "3x16 84"),
        ("1, 1", "1x8 124"),
        ("2, 0, True", "66x2 0"),
        ("33, 2, True", "2x34 64"),
        ("132", "1x132 0"),
    ],
)
def test_equal_groups(look, arguments, expected):
    out, _ = look(
        f"""
whole = device_sms(driver, 0)
groups, left = split_sms(driver, whole, {arguments})
assert {{(g.device, g.min_partition, g.alignment) for g in [*groups, left]}} == {{(0, 0, 0)}}
assert len({{g.sm_count for g in groups}}) == 1
print(f"{{len(groups)}}x{{groups[0].sm_count}} {{left.sm_count}}")
"""
    )
    assert out == expected + "\n"


def test_counts_that_do_not_fit_and_second_splits_are_refused(look):
    out, calls = look(
        """
whole = device_sms(driver, 0)
groups, left = split_sms(driver, whole, 16)
nothing = split_sms(driver, whole, 2, fine=True)[1]
for arguments in ((whole, 133), (groups[0], 8), (left, 2, 1, True)):
    error = failure(split_sms, driver, *arguments)
    assert type(error) is errors.DriverError and error.call == "cuDevSmResourceSplitByCount", error
    print(error)
for arguments in ((whole, 0), (whole, -8), (whole, 8, -1), (nothing, 8)):
    error = failure(split_sms, driver, *arguments)
    assert type(error) is errors.DriverError and error.code == 0, error
"""
    )
    assert "groups of 133 SMs out of 132" in out
    assert out.count("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION (915)") == 3
    assert "only what a device or a context has can be split" in out
    assert calls.count("cuDevSmResourceSplitByCount") == 5


def test_groups_of_given_sizes_reach_a_driver_of_13_1(look):
    out, _ = look(
        """
whole = device_sms(driver, 1)
groups, left = split_sms_unequally(driver, whole, [(64, 0), (20, 2), (0, 16)])
print([g.sm_count for g in groups], left.sm_count, {(g.device, g.alignment) for g in [*groups, left]})
for asked in ([(128, 0), (16, 0)], [(12, 8)], [], [(-8, 0)], [(8, -2)]):
    error = failure(split_sms_unequally, driver, whole, asked)
    assert type(error) is errors.DriverError and error.call == "cuDevSmResourceSplit", error
    print(error)
assert type(failure(split_sms_unequally, driver, groups[0], [(8, 0)])) is errors.DriverError
""",
        **NEW,
    )
    assert out.startswith("[64, 20, 48] 0 {(1, 0)}\n")
    assert "groups of 128, 16 SMs out of 132" in out


def test_what_13_1_brings_is_named_on_13_0(look):
    out, calls = look(
        """
groups, left = split_sms(driver, device_sms(driver, 0), 16)
for error in (failure(split_sms_unequally, driver, device_sms(driver, 0), [(8, 0)]),
              failure(create_green_context, driver, 0, groups, concurrency_limit=2)):
    assert type(error) is errors.NotSupported, error
    print(error)
"""
    )
    assert out.count("CUDA 13.1") == 2 and "this driver is for CUDA 13.0" in out
    assert not set(MADE) & set(calls)


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ("", "limit 0, scope 0"),
        ("concurrency_limit=0", "limit 4, scope 0"),
        ("concurrency_limit=7", "limit 7, scope 0"),
        ("concurrency_limit=2, balanced=True", "limit 2, scope 1"),
    ],
)
def test_work_queues_reach_a_driver_of_13_1(look, queues, expected):
    _, calls = look(
        f"""
groups, left = split_sms(driver, device_sms(driver, 0), 16)
create_green_context(driver, 0, [groups[0], left], {queues})
assert "0 or more: got -1" in str(failure(create_green_context, driver, 0, groups, concurrency_limit=-1))
""",
        **NEW,
    )
    assert f"green context of 20 SMs, {expected}" in calls


def test_only_sets_of_one_split_and_device_go_together(look):
    out, calls = look(
        """
groups, left = split_sms(driver, device_sms(driver, 0), 16)
others, nothing = split_sms(driver, device_sms(driver, 0), 2, fine=True)
for device, sets in ((0, []), (1, groups), (0, [others[0], nothing]), (0, [groups[0], others[0]])):
    error = failure(create_green_context, driver, device, sets)
    assert type(error) is errors.DriverError, error
    print(error)
assert type(failure(create_green_context, driver, 2, groups)) is errors.InvalidDevice
"""
    )
    assert "SMs of device 0 make no green context of device 1" in out
    assert "all sets of a green context come from one split" in out.splitlines()[-1]
    assert "cuGreenCtxCreate" not in calls


@pytest.mark.parametrize("name", ["cuDevResourceGenerateDesc", "cuGreenCtxCreate", "cuCtxFromGreenCtx"])
def test_a_creation_that_fails_leaves_nothing(look, name):
    out, calls = look(
        """
groups, left = split_sms(driver, device_sms(driver, 0), 16)
print(failure(create_green_context, driver, 0, groups))
""",
        FAKE_FAIL=f"{name}=2",
    )
    assert f"{name} failed: CUDA_ERROR_OUT_OF_MEMORY (2): a green context of 8 sets of SMs on device 0" in out
    made = [call for call in calls if call.startswith("green context of")]
    assert calls.count("cuGreenCtxDestroy") == len(made) == (name == "cuCtxFromGreenCtx")


def test_streams_and_events_of_a_green_context(look):
    _, calls = look(
        GREEN
        + """
primary = driver.primary_context(0)
driver.set_current_context(driver.primary_context(1))
assert green != primary and driver.context_device(green) == 0
assert context_sms(driver, green).sm_count == 32 and context_sms(driver, green).min_partition == 8
streams = [driver.create_stream(green, priority) for priority in (0, -2, -99, 5)]
assert all(driver.stream_context(stream) == green for stream in streams)
event = driver.create_event(green, timing=True)
driver.record_event(event, streams[0])
driver.wait_event(streams[1], event)
for stream in streams:
    driver.destroy_stream(stream)
destroy_green_context(driver, green)
assert driver.query_event(event)  # it is the primary context's
driver.record_event(event, driver.create_stream(primary))
assert driver.current_context() == driver.primary_context(1)
"""
    )
    assert [call[-2:] for call in calls if call.startswith("green stream of 32 SMs")] == [
        " 0",
        "-2",
        "-5",
        " 0",
    ]
    assert "green context made current" not in calls


@pytest.mark.parametrize("current", ["0", "driver.primary_context(0)", "driver.primary_context(1)"])
def test_work_on_green_streams_makes_no_green_context_current(look, current):
    _, calls = look(
        GREEN
        + f"""
stream = driver.create_stream(green)
driver.set_current_context({current})
one, two = (driver.allocate_device(device, 64, stream) for device in (0, 1))
host = driver.allocate_host(64)
for width in (1, 2, 4, 8, 16):
    driver.fill(one, 0, bytes(range(width)), 64 // width, stream)
driver.fill(host, "host", b"a", 64, stream)
driver.copy(host, "host", one, 0, 64, stream)
driver.copy(two, 1, one, 0, 64, stream)
driver.host_function(stream, print)
assert driver.query_stream(stream) and not driver.stream_capturing(stream)
driver.synchronize_stream(stream)
driver.free_device(0, one, stream)
assert driver.current_context() == {current}
""",
    )
    assert "green context made current" not in calls
    pushed = calls.count("cuCtxPushCurrent")
    assert pushed < 10 if current == "driver.primary_context(0)" else pushed > 10


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (914, "does not take resources of this type"),
        (915, "come from one split"),
        (916, "confidential computing"),
        (917, "was destroyed before the stream"),
    ],
)
def test_failures_of_resources_are_explained(look, code, advice):
    out, _ = look(
        """
error = failure(driver.query_stream, driver.create_stream(driver.primary_context(0)))
assert type(error) is errors.DriverError, error
print(error)
""",
        FAKE_FAIL=f"cuStreamQuery={code}",
    )
    assert f"({code})" in out and advice in out


def test_threads_share_green_contexts(look):
    _, calls = look(
        GREEN
        + """
from threading import Thread
done = []
def work():
    for _ in range(20):
        mine = create_green_context(driver, 0, groups[2:4])
        stream = driver.create_stream(mine)
        address = driver.allocate_device(0, 16, stream)
        driver.fill(address, 0, b"a", 16, stream)
        driver.free_device(0, address, stream)
        assert driver.stream_context(stream) == mine and driver.context_device(mine) == 0
        driver.destroy_stream(stream)
        destroy_green_context(driver, mine)
    done.append(True)
threads = [Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 4
"""
    )
    assert calls.count("cuGreenCtxDestroy") == 80 and "green context made current" not in calls


def test_default_streams_of_a_green_context_are_asked_in_it(look):
    out, calls = look(GREEN + "print(driver.query_default_streams(green), driver.current_context())")
    assert out == "True 0\n" and calls.count("green context made current") == 1


def test_only_green_contexts_that_are_there_can_be_destroyed(look):
    _, calls = look(
        GREEN
        + """
destroy_green_context(driver, green)
for context in (green, driver.primary_context(0), 0, 12345):
    error = failure(destroy_green_context, driver, context)
    assert type(error) is errors.DriverError and error.call == "cuGreenCtxDestroy", error
"""
    )
    assert calls.count("cuGreenCtxDestroy") == 1


def test_a_green_context_that_cannot_be_destroyed_stays_known(look):
    look(
        GREEN
        + """
assert "CUDA_ERROR_OUT_OF_MEMORY" in str(failure(destroy_green_context, driver, green))
assert driver.stream_context(driver.create_stream(green)) == green
""",
        FAKE_FAIL="cuGreenCtxDestroy=2",
    )


def test_the_child_of_a_fork_is_told(look):
    look(
        GREEN
        + """
whole = device_sms(driver, 0)
child = os.fork()
if child == 0:
    for call in ((device_sms, 0), (context_sms, green), (split_sms, whole, 8), (destroy_green_context, green),
                 (create_green_context, 0, groups)):
        assert "multiprocessing.get_context('spawn')" in str(failure(call[0], driver, *call[1:])), call
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    )


def test_the_python_face_of_sets(look):
    look(
        """
whole = device_sms(driver, 0)
assert repr(whole) == "<SmSet of device 0: 132 SMs>"
assert isinstance(failure(sm_ids, driver, 0), errors.NotSupported)
try:
    SmSet()
except TypeError as error:
    assert "device_sms()" in str(error)
else:
    raise AssertionError("an SmSet out of nothing")
"""
    )
