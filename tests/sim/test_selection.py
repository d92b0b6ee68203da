"""Choosing a machine, and what it says about itself."""

import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

from stf_places import errors
from stf_places._native import drivers, runtime
from stf_places.machines import SimulatedMachineWarning, machine, machine_init, use_machine
from stf_places.places import DeviceArray, data_place


@pytest.fixture
def unchosen(monkeypatch):
    """Leave no machine in use, and none named by the environment."""
    before = runtime.current_or_none()
    runtime.set_current(None)
    for name in ("STF_PLACES_DRIVER", "STF_PLACES_MACHINE"):
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    runtime.set_current(before)


@pytest.fixture
def without_cuda(unchosen):
    try:
        found = drivers.cuda_driver().device_count() > 0
    except errors.DriverError:
        found = False
    if found:
        pytest.skip("needs a machine without a usable GPU")
    return unchosen


def test_a_block_gives_way_to_the_machine_before_it(simulated):
    with use_machine("sim:h200x8") as inner:
        assert machine() == inner
        assert (machine().name, machine().device_count) == ("h200x8", 8)
        with pytest.raises(KeyError), use_machine("sim:tiny"):
            assert machine().name == "tiny"
            raise KeyError
        assert machine() == inner
    assert machine() == simulated


def test_a_plain_call_stays(simulated):
    chosen = use_machine("sim:tiny")
    assert machine() == chosen != simulated
    with chosen:
        assert machine() == chosen
    assert machine() == simulated
    with chosen:
        assert machine() == chosen
    assert machine() == simulated


def test_nothing_is_in_use_after_the_first_block(unchosen):
    with use_machine("sim:tiny"):
        pass
    assert runtime.current_or_none() is None


@pytest.mark.parametrize(
    ("spec", "error", "text"),
    [
        ("gpu", ValueError, "a machine is 'auto', 'cuda', 'sim', 'sim:NAME' or 'sim:PATH.json': got 'gpu'"),
        ("", ValueError, "a machine is 'auto'"),
        ("cuda:1", ValueError, "a machine is 'auto'"),
        ("sim:", ValueError, "a machine is 'auto'"),
        ("sim:h200x99", ValueError, "h200x99"),
        (None, TypeError, "a machine is named by a string, such as 'sim:h200x2': got None"),
    ],
)
def test_wrong_specs(simulated, spec, error, text):
    with pytest.raises(error, match=text):
        use_machine(spec)
    assert machine() == simulated


def test_wrong_options(simulated):
    for wrong in (True, 1.5, "1"):
        with pytest.raises(TypeError, match="chaos is None or a seed, an int"):
            use_machine("sim", chaos=wrong)
    with pytest.raises(ValueError, match=r"a seed is from 0 to 2\*\*64 - 1: got chaos=-1"):
        use_machine("sim", chaos=-1)
    with pytest.raises(
        ValueError,
        match=r"are for simulated machines: got execute=False, chaos=None, measure_bodies=False with 'cuda'",
    ):
        use_machine("cuda", execute=False)
    with pytest.raises(
        ValueError,
        match=r"are for simulated machines: got execute=True, chaos=3, measure_bodies=False with 'cuda'",
    ):
        use_machine("cuda", chaos=3)


def test_the_environment_chooses(unchosen):
    unchosen.setenv("STF_PLACES_DRIVER", "sim")
    unchosen.setenv("STF_PLACES_MACHINE", "h200x8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert machine().name == "h200x8"
        assert use_machine("sim").name == "h200x8"


def test_threads_open_one_default_machine(unchosen):
    unchosen.setenv("STF_PLACES_DRIVER", "sim")
    barrier = threading.Barrier(8)
    found = []

    def use():
        barrier.wait()
        found.append(machine())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_wrong_environment_opens_nothing(unchosen):
    unchosen.setenv("STF_PLACES_DRIVER", "gpu")
    with pytest.raises(ValueError, match="STF_PLACES_DRIVER"):
        machine()
    assert runtime.current_or_none() is None


def test_auto_says_that_it_simulates(without_cuda):
    with pytest.warns(SimulatedMachineWarning, match=r"no GPU can be used .*'h200x2'.*STF_PLACES_DRIVER=sim"):
        assert machine().simulated
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine()
        use_machine("sim")


def test_cuda_without_a_gpu_is_an_error(without_cuda):
    with pytest.raises(errors.DriverError):
        use_machine("cuda")
    assert runtime.current_or_none() is None


@pytest.mark.gpu
def test_auto_takes_the_gpu(cuda, unchosen):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert machine().driver == "cuda"


def test_what_a_machine_is(machine):
    assert machine.driver == ("sim" if machine.simulated else "cuda")
    assert machine.device_count == len(machine.devices) > 0
    assert machine.driver_version >= 12000
    for ordinal, device in enumerate(machine.devices):
        assert device.ordinal == ordinal
        assert device.sm_count > 0
        assert device.total_memory > 0
        assert device.compute_capability >= (1, 0)
        assert device.name
    with pytest.raises(AttributeError):
        machine.devices[0].name = "other"
    with pytest.raises(AttributeError):
        machine.name = "other"
    nature = "simulated" if machine.simulated else "real"
    assert repr(machine).startswith(f"<Machine {machine.name}: {nature}, {machine.device_count} x ")


def test_machine_init(machine):
    machine_init()
    handle = runtime.current()
    for a in range(machine.device_count):
        for b in range(machine.device_count):
            assert handle.peers(a, b) == (a == b or machine._driver.link(a, b)["peer"])
    with pytest.raises(errors.InvalidDevice, match="device 99 does not exist"):
        handle.peers(0, 99)


def test_machine_init_without_peers():
    with use_machine("sim:nopeer2"):
        machine_init()
        assert not runtime.current().peers(0, 1)


def test_the_clock_and_the_timeline(simulated):
    simulated.record_timeline()
    before, submitted = simulated.now_us, simulated.operations
    DeviceArray.from_host(np.zeros(1 << 20), data_place.device(1)).copy_to_host()
    assert simulated.now_us > before
    assert simulated.operations > submitted
    copies = [entry for entry in simulated.timeline() if entry.kind == "copy"]
    assert [entry.nbytes for entry in copies] == [8 << 20, 8 << 20]
    assert copies[0].end_us <= copies[1].start_us
    assert copies[0].device == 1


def test_memory_in_use(simulated):
    array = DeviceArray(1000, "f8", data_place.device(1))
    assert simulated.used_memory(1) >= 8000
    assert simulated.used_memory(0) == 0
    del array
    simulated._driver.drain()
    assert simulated.used_memory(1) == 0
    with pytest.raises(
        errors.InvalidDevice, match=r"device 2 does not exist: this machine \(h200x2\) has 2 device"
    ):
        simulated.used_memory(2)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (None, errors.OutOfMemory),
        ("out_of_memory", errors.OutOfMemory),
        ("invalid_value", errors.DriverError),
        ("not_supported", errors.NotSupported),
    ],
)
def test_ordered_faults(simulated, code, error):
    place = data_place.device(0)
    simulated.fail("allocation", nth=2, code=code)
    kept = place.allocate(8)
    with pytest.raises(error):
        place.allocate(8)
    place.deallocate(place.allocate(8), 8)
    place.deallocate(kept, 8)


def test_wrong_faults(simulated):
    kinds = "allocation, copy, launch, event, host_function, green_context"
    with pytest.raises(ValueError, match=f"kind is one of {kinds}: got 'free'"):
        simulated.fail("free")
    with pytest.raises(ValueError, match=r"code is one of .*: got 'bad'"):
        simulated.fail("copy", code="bad")
    with pytest.raises(ValueError, match="operations are counted from 1: got nth=0"):
        simulated.fail("copy", nth=0)


@pytest.mark.gpu
def test_a_real_machine_has_no_simulation(cuda):
    with use_machine("cuda") as real:
        for use in (
            lambda: real.now_us,
            lambda: real.conflicts,
            lambda: real.operations,
            lambda: real.live_allocations,
            lambda: real.used_memory(0),
            lambda: real.fail("copy"),
            lambda: real.timeline(),
            lambda: real.record_timeline(),
        ):
            with pytest.raises(
                errors.NotSupported, match=r"is for simulated machines: this one is real \(cuda\)"
            ):
                use()


def test_importing_opens_nothing_and_exit_is_clean():
    program = textwrap.dedent("""
        import pathlib
        import stf_places.machines, stf_places.places as places
        from stf_places._native import runtime
        grid = places.exec_place_grid.from_devices([0, 1])
        repr(grid), hash(grid), places.data_place.device(3) == places.data_place.host()
        assert runtime.current_or_none() is None
        maps = pathlib.Path("/proc/self/maps").read_text()
        assert "libcuda.so" not in maps
        stf_places.machines.use_machine("sim:tiny")
        kept = places.DeviceArray(4, "f4", places.data_place.device(0))
        capsule = kept.__dlpack__()
    """)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
