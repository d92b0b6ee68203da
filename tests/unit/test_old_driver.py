"""CudaDriver on drivers that nobody has at hand: older, without devices, failing.

Each test runs a small program in a process of its own, which finds tests/native/fake_libcuda as its libcuda.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

CONTRACT = str(Path(__file__).parents[1] / "sim" / "test_seam_contract.py")
NEWER = {
    "cuGreenCtxStreamCreate",
    "cuDevSmResourceSplit",
}  # without them there are no green contexts, or less


def test_the_whole_contract_on_the_stand_in(run):
    for settings in ({}, {"FAKE_NO_PEERS": "1"}):
        out = run(None, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", CONTRACT, **settings)
        assert " passed" in out and "skipped" not in out


def test_entry_points_are_taken_when_they_are_needed(run, tmp_path):
    log = tmp_path / "log"
    run("cuda_driver()", FAKE_LOG=str(log))
    asked = [line.split()[0] for line in log.read_text().splitlines() if not line.startswith("!")]
    assert asked == ["cuInit", "cuDeviceGetCount", "cuDeviceGet"]


def test_no_signature_newer_than_the_oldest_supported_driver_is_asked_for(run, tmp_path):
    log = tmp_path / "log"
    run(None, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda", CONTRACT, FAKE_LOG=str(log))
    asked = [line.split() for line in log.read_text().splitlines() if not line.startswith("!")]
    versions = [int(version) for name, version in asked if name not in NEWER]
    assert len(versions) > 40 and max(versions) <= 12040


def test_a_missing_entry_point_names_the_version_that_brings_it(run):
    out = run(
        """
driver = cuda_driver()
stream = driver.create_stream(driver.primary_context(0))
error = failure(driver.allocate_device, 0, 16, stream)
assert type(error) is errors.NotSupported, type(error)
assert error.call == "cuMemPoolCreate"
print(error)
address = driver.allocate_host(16)
driver.fill(address, "host", b"a", 16, stream)
driver.synchronize_stream(stream)
driver.free_host(address)
print(driver.device_properties(0)["name"])
""",
        FAKE_WITHOUT="cuMemPoolCreate",
    )
    assert "does not have cuMemPoolCreate, which comes with CUDA 11.2" in out
    assert out.endswith("Fake 0\n")


def test_what_is_optional_may_be_missing(run):
    out = run(
        """
driver = cuda_driver()
found = driver.device_properties(0)
print(repr(found["uuid"]), found["memory_bandwidth"])
driver.free_managed(driver.allocate_managed(64, 1))
""",
        FAKE_WITHOUT="cuDeviceGetUuid,cuMemAdvise",
    )
    assert out == "'' 256.0\n"


def test_properties(run):
    out = run("print(cuda_driver().device_properties(1))")
    assert "'uuid': 'GPU-10111213-1415-1617-1819-1a1b1c1d1e1f'" in out
    assert "'sm_count': 132" in out and "'copy_engines': 3" in out


def test_no_device(run):
    program = """
error = failure(cuda_driver)
print(type(error).__name__, error.code, error)
"""
    out = run(program, FAKE_FAIL="cuInit=100")
    assert out.startswith("InvalidDevice 100 cuInit failed: CUDA_ERROR_NO_DEVICE (100)")
    assert "CUDA_VISIBLE_DEVICES" in out


def test_zero_devices(run):
    out = run(
        """
driver = cuda_driver()
assert driver.device_count() == 0
print(failure(driver.primary_context, 0))
""",
        FAKE_DEVICES="0",
    )
    assert "this process sees no device: got 0" in out


def test_device_numbers_are_named(run):
    program = "print(failure(cuda_driver().primary_context, 7))"
    assert "this process sees 2 devices, 0 to 1: got 7" in run(program)
    assert "this process sees 1 device, 0: got 7" in run(program, FAKE_DEVICES="1")


def test_a_driver_that_cannot_be_asked_is_too_old(fake_libcuda, run, tmp_path):
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    (tmp_path / "empty.c").write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    options = ["-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "empty.c")]
    subprocess.run([compiler, *options], check=True)
    out = run("print(repr(failure(cuda_driver)))", LD_LIBRARY_PATH=str(tmp_path))
    assert "NotSupported" in out and "a driver for CUDA 12.4 or newer is needed" in out


@pytest.mark.parametrize("code", [214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721])
def test_sticky_errors_lose_the_device(run, code):
    out = run(
        """
driver = cuda_driver()
stream = driver.create_stream(driver.primary_context(0))
for call in (driver.query_stream, driver.synchronize_stream):
    error = failure(call, stream)
    assert type(error) is errors.DeviceLost and error.call == "cuStreamQuery", error
print(error.code, error.name, error)
""",
        FAKE_FAIL=f"cuStreamQuery={code}",
    )
    assert out.startswith(f"{code} CUDA_ERROR_") and "sticky" in out and "start a new one" in out


def test_not_ready_is_no_failure(run):
    out = run(
        """
driver = cuda_driver()
context = driver.primary_context(0)
stream = driver.create_stream(context)
print(driver.query_stream(stream), driver.query_default_streams(context))
""",
        FAKE_FAIL="cuStreamQuery=600",
    )
    assert out == "False False\n"


def test_a_signal_ends_a_long_wait(run):
    out = run(
        """
import signal, time
class Stop(Exception): pass
def stop(number, frame): raise Stop()
signal.signal(signal.SIGALRM, stop)
driver = cuda_driver()
context = driver.primary_context(0)
for wait, handle in ((driver.synchronize_stream, driver.create_stream(context)),
                     (driver.synchronize_event, driver.create_event(context))):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    start = time.monotonic()
    try:
        wait(handle)
    except Stop:
        print("stopped", time.monotonic() - start < 5)
""",
        FAKE_FAIL="cuStreamQuery=600,cuEventQuery=600",
    )
    assert out == "stopped True\nstopped True\n"


def test_out_of_memory_says_what_there_was(run):
    out = run(
        """
driver = cuda_driver()
stream = driver.create_stream(driver.primary_context(0))
error = failure(driver.allocate_device, 0, 1 << 40, stream)
assert isinstance(error, MemoryError) and error.name == "CUDA_ERROR_OUT_OF_MEMORY"
print(error)
"""
    )
    assert "asked for 1099511627776 bytes on device 0, where 1073741824 of 1073741824 are free" in out


def test_the_child_of_a_fork_is_told_to_spawn(run):
    out = run(
        """
driver = cuda_driver()
context = driver.primary_context(0)
child = os.fork()
if child == 0:
    for error in (failure(driver.device_count), failure(driver.primary_context, 0), failure(driver.version),
                  failure(driver.create_stream, context), failure(cuda_driver)):
        assert "multiprocessing.get_context('spawn')" in str(error), error
    del driver
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(driver.device_count())
"""
    )
    assert out == "2\n"


@pytest.mark.parametrize(("before", "after"), [(None, "32"), ("8", "8")])
def test_hardware_queues_are_raised_unless_set(run, before, after):
    setting = "" if before is None else f"os.environ['CUDA_DEVICE_MAX_CONNECTIONS'] = '{before}'"
    out = run(
        f"""
import ctypes
{setting}
cuda_driver()
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b"CUDA_DEVICE_MAX_CONNECTIONS").decode())
"""
    )
    assert out == after + "\n"


def test_copies_between_devices_use_the_peer_call_only_without_access(run, tmp_path):
    program = """
driver = cuda_driver()
driver.set_current_context(driver.primary_context(0))
stream = driver.create_stream(driver.primary_context(0))
one, two = (driver.allocate_device(device, 16, stream) for device in (0, 1))
if os.environ.get("ENABLE"):
    driver.enable_peer_access(0, 1)
driver.copy(two, 1, one, 0, 16, stream)
"""
    for enable, expected in (("", "!cuMemcpyPeerAsync"), ("1", "!cuMemcpyAsync")):
        log = tmp_path / f"log{enable}"
        run(program, FAKE_LOG=str(log), ENABLE=enable)
        assert [line for line in log.read_text().splitlines() if line.startswith("!cuMemcpy")] == [expected]


def test_peer_access_needs_devices_that_reach_each_other(run):
    program = "print(repr(failure(cuda_driver().enable_peer_access, 0, 1)))"
    out = run(program, FAKE_NO_PEERS="1")
    assert (
        out.startswith("NotSupported")
        and "device 0 to memory of device 1" in out
        and "copies still work" in out
    )


def test_only_a_simulated_machine_has_a_virtual_clock(run):
    out = run("print(repr(failure(cuda_driver().now_us)))")
    assert out.startswith("NotSupported") and "'cuda'" in out
    out = run("driver = cuda_driver(); print(repr(failure(driver.host_work, 1, print)))")
    assert out.startswith("NotSupported") and "simulated machine only" in out
