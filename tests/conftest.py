"""Fixtures that run one test body on the simulated and on the real driver."""

import pytest

from stf_places import errors
from stf_places._native import drivers

GIB = 1 << 30


def small_machine(devices: int = 2) -> dict:
    """Return a simulated machine of a few equal devices that all reach each other."""
    device = {
        "name": "Small",
        "sm_count": 16,
        "compute_major": 9,
        "min_partition": 2,
        "alignment": 2,
        "aligned_sms": 16,
        "memory": GIB,
        "bandwidth": 1000.0,
        "copy_engines": 2,
    }
    ends = range(-1, devices)
    links = [
        {"from": a, "to": b, "peer": a >= 0 and b >= 0, "bandwidth": 50.0, "latency_us": 1.0}
        for a in ends
        for b in ends
        if a != b
    ]
    costs = {"event_record": 0.3, "event_wait": 0.2, "kernel_launch": 2.0, "kernel_latency": 2.0}
    return {"name": "small", "devices": [device] * devices, "links": links, "costs": costs}


@pytest.fixture(scope="session")
def cuda():
    """Open the real driver, or skip where the machine has no GPU."""
    try:
        handle = drivers.cuda_driver()
    except (errors.NotSupported, errors.InvalidDevice) as error:
        pytest.skip(f"needs a GPU: {error}")
    if handle.device_count() == 0:
        pytest.skip("needs a GPU: the driver sees none")
    for device in range(handle.device_count()):
        handle.primary_context(device)  # kept for the session: making one takes a third of a second
    return handle


@pytest.fixture(params=["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def driver(request):
    """Give each test body the simulated driver, then the real one."""
    if request.param == "sim":
        return drivers.sim_driver(small_machine())
    return request.getfixturevalue("cuda")


@pytest.fixture(params=["sim:h200x2", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request):
    """Give each test body a simulated machine of two devices in use, then the real one."""
    from stf_places.machines import use_machine

    if request.param == "cuda":
        request.getfixturevalue("cuda")  # skips where there is no GPU
    with use_machine(request.param) as chosen:
        yield chosen


@pytest.fixture
def simulated():
    """Put a simulated machine of two devices in use."""
    from stf_places.machines import use_machine

    with use_machine("sim:h200x2") as chosen:
        yield chosen
