"""Warp kernels on the streams of tasks on GPUs."""

import gc

import numpy as np
import pytest

import stf_places as stf
from stf_places.interop import warp as stf_warp

wp = pytest.importorskip("warp", reason="needs Warp")
pytestmark = pytest.mark.gpu


@wp.kernel
def scale(x: wp.array(dtype=wp.float32), factor: wp.float32):
    i = wp.tid()
    x[i] = factor * x[i]


@pytest.fixture
def machine(cuda):
    with stf.use_machine("cuda") as chosen:
        yield chosen


def test_launches_follow_the_order_of_tasks_over_devices(machine):
    values = np.arange(1 << 20, dtype=np.float32)
    expected = values.copy()
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        for step in range(20):
            factor = (3.0, 0.5)[step % 2]
            place = stf.exec_place.device(step % machine.device_count)
            with ctx.task(place, x.rw(), symbol="scale") as t:
                stf_warp.launch(t, scale, dim=len(values), inputs=[stf_warp.array(t, 0), factor])
            expected *= np.float32(factor)
    np.testing.assert_array_equal(values, expected)


def test_streams_and_devices_are_those_of_the_task(machine):
    with stf.context() as ctx:
        for number in range(machine.device_count):
            place = stf.exec_place.device(number)
            assert stf_warp.device(place) == wp.get_device(f"cuda:{number}")
            with ctx.task(place, ctx.token().rw()) as t:
                stream = stf_warp.stream(t)
                assert stream.cuda_stream == int(t.stream_ptr())
                assert stream.device == wp.get_device(f"cuda:{number}")
                assert stf_warp.stream(t) is stream


def test_a_host_task_runs_on_warps_cpu(machine):
    if not wp.is_cpu_available():
        pytest.skip("needs Warp's CPU compiler, which this installation lacks")
    values = np.ones(8, np.float32)
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        for place in (stf.exec_place.device(0), stf.exec_place.host()):
            with ctx.task(place, x.rw()) as t:
                stf_warp.launch(t, scale, dim=8, inputs=[stf_warp.array(t, 0), 4.0])
    np.testing.assert_array_equal(values, np.full(8, 16.0))


def test_warps_device_and_streams_stay_what_they_were(machine):
    last = machine.device_count - 1
    before = wp.get_device(), wp.get_stream("cuda:0").cuda_stream, wp.get_stream(f"cuda:{last}").cuda_stream
    with stf.context() as ctx:
        x = ctx.logical_data_ones(8, np.float32)
        with ctx.task(stf.exec_place.device(last), x.rw()) as t:
            stf_warp.launch(t, scale, dim=8, inputs=[stf_warp.array(t, 0), 2.0])
        np.testing.assert_array_equal(ctx.wait(x), np.full(8, 2.0))
    after = wp.get_device(), wp.get_stream("cuda:0").cuda_stream, wp.get_stream(f"cuda:{last}").cuda_stream
    assert after == before
    assert stf.exec_place.current_device() == stf.exec_place.device(before[0].ordinal)


def test_kept_streams_may_outlive_their_context(machine):
    for _ in range(3):
        with stf.context() as ctx:
            x = ctx.logical_data_ones(8, np.float32)
            with ctx.task(stf.exec_place.device(0), x.rw()) as t:
                stf_warp.launch(t, scale, dim=8, inputs=[stf_warp.array(t, 0), 2.0])
            np.testing.assert_array_equal(ctx.wait(x), np.full(8, 2.0))
    stf_warp._kept_stream.cache_clear()
    gc.collect()
