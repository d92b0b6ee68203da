"""SM partitions on a GPU: contexts of cuda.core, what one fault does to all, and which devices are visible."""

import os
import subprocess
import sys

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import runtime

pytestmark = pytest.mark.gpu


@pytest.fixture
def machine(cuda):
    with stf.use_machine("cuda") as chosen:
        yield chosen


@pytest.fixture
def green():
    """Return a function that makes a green context of cuda.core with some groups of 8 SMs."""
    core = pytest.importorskip("cuda.core", reason="needs cuda.core")

    def make(groups):
        driver = runtime.current().driver
        before = driver.current_context()
        device = core.Device(0)
        device.set_current()
        found, _ = device.resources.sm.split(core.SMResourceOptions(count=(8,) * groups))
        context = device.create_context(core.ContextOptions(resources=found))
        driver.set_current_context(before)
        return context

    return make


def double_on(place, times=5):
    values = np.random.default_rng(3).random(1 << 12)
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    expected = values * 2.0**times
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        for _ in range(times):
            with ctx.task(place, x.rw()) as t, cupy.cuda.Stream.from_external(t.stream_ptr()):
                cupy.asarray(t.get_arg_cai(0))[:] *= 2.0
    np.testing.assert_array_equal(values, expected)


def test_a_context_of_cuda_core_is_a_place(machine, green):
    context = green(3)
    place = stf.exec_place.from_context(context, 0)
    assert place.sm_count == 24
    assert place.device_id == 0
    assert place.backing_context is context
    assert place == stf.exec_place.from_context(int(context.handle))
    double_on(place)


def test_a_place_keeps_its_context_when_the_user_closes_it(machine, green):
    context = green(2)
    place = stf.exec_place.from_context(context)
    context.close()
    double_on(place)
    with pytest.raises(ValueError, match="is closed"):
        stf.exec_place.from_context(context)


def test_a_place_keeps_its_context_when_the_user_forgets_it(machine, green):
    place = stf.exec_place.from_context(green(2))
    double_on(place)


def test_our_context_is_one_of_cuda_core(machine):
    core = pytest.importorskip("cuda.core", reason="needs cuda.core")
    place = stf.green_places(16, 1)[0]
    context = place.backing_context.to_cuda_core()
    assert int(context.handle) == place.backing_context.handle
    assert context.resources.sm.sm_count == 16
    assert isinstance(context, core._context.Context)


def test_a_context_of_another_device_is_refused(machine, green):
    with pytest.raises(ValueError, match="belongs to device 0: got dev_id=5"):
        stf.exec_place.from_context(green(1), 5)


REQUESTS = [
    *[((count,), {}) for count in (1, 8, 9, 16, 24, 40, 64, 66, 72, 120, 128, 130, 132, 133)],
    *[((count, 2), {}) for count in (8, 16, 56, 64, 66, 72)],
    *[
        (([8, 16, 24],), {}),
        (([104, 8, 8],), {}),
        (([64, 32, 32],), {}),
        (([16] * 8,), {}),
        (([8] * 15,), {}),
    ],
    *[(([120, 8],), {}), ((8, 16), {}), ((12, 4), {"exact": True}), ((2, 66), {"fine_grained": True})],
    *[(([2, 30, 100],), {"fine_grained": True}), (([6, 128],), {"fine_grained": True})],
]


def test_the_simulated_h200_plans_what_the_real_one_grants(machine):
    if machine.devices[0].sm_count != 132:
        pytest.skip("needs a GPU of 132 SMs")
    real = [stf.plan_green_places(*asked, **options) for asked, options in REQUESTS]
    for (asked, options), plan in zip(REQUESTS, real, strict=True):
        if plan.fits:
            places = stf.green_places(*asked, **options)
            assert tuple(place.sm_count for place in places) == plan.sm_counts
            assert (places.remainder.sm_count if plan.remainder else 0) == plan.remainder
            del places
    with stf.use_machine("sim:h200x1"):
        assert [stf.plan_green_places(*asked, **options) for asked, options in REQUESTS] == real


PROGRAM = """
import stf_places as stf
with stf.use_machine("cuda"):
    place = stf.green_places(8, 1, device_id=0)[0]
    print(place.sm_count, place.device_id)
"""
FAULT = """
import numpy as np
import stf_places as stf
import cupy
from stf_places._native import runtime

crash = cupy.RawKernel('extern "C" __global__ void crash(int* p) { *p = 1; }', "crash")
with stf.use_machine("cuda"):
    one, other = stf.green_places(8, 2)
    ctx = stf.context()
    x = ctx.logical_data(np.ones(4))
    try:
        with ctx.task(one, x.rw(), symbol="culprit") as t:
            with cupy.cuda.Stream.from_external(t.stream_ptr()):
                crash((1,), (1,), (16,))
        ctx.wait(x)
    except stf.DeviceLost:
        print("the culprit's place is lost")
    try:
        second = stf.context()
        y = second.logical_data(np.ones(4))
        with second.task(other, y.rw()):
            pass
        second.wait(y)
    except stf.DeviceLost:
        print("the other place is lost")
    import os, sys
    sys.stdout.flush()
    os._exit(0)
"""


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_devices_may_be_chosen_by_uuid(machine):
    uuid = runtime.current().driver.device_properties(0)["uuid"]
    assert run(PROGRAM, CUDA_VISIBLE_DEVICES=f"GPU-{uuid.removeprefix('GPU-')}").split() == ["8", "0"]


@pytest.mark.parametrize("visible", ["", "MIG-00000000-0000-0000-0000-000000000000", "GPU-none"])
def test_no_visible_device_is_said(machine, visible):
    out = run(PROGRAM, CUDA_VISIBLE_DEVICES=visible)
    assert "CUDA_VISIBLE_DEVICES" in out
    assert "stf_places.errors" in out


def test_a_fault_on_one_partition_loses_the_others_too(machine):
    pytest.importorskip("cupy", reason="needs CuPy")
    out = run(FAULT)
    assert "the culprit's place is lost" in out
    assert "the other place is lost" in out
