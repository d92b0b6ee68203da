"""Warp kernels on SM partitions: the same bodies on a simulated machine and on a GPU."""

import gc
import weakref

import numpy as np
import pytest

import stf_places as stf
from stf_places._native import runtime
from stf_places.interop import warp as stf_warp

wp = pytest.importorskip("warp", reason="needs Warp")

needs_cuda = pytest.mark.gpu


@wp.kernel
def step(x: wp.array(dtype=wp.float32), y: wp.array(dtype=wp.float32), factor: wp.float32):
    i = wp.tid()
    y[i] = factor * x[i] + wp.sin(x[i])


def stepped(x, factor):
    return np.float32(factor) * x + np.sin(x)


@pytest.fixture
def cuda_machine(cuda):
    with stf.use_machine("cuda") as chosen:
        yield chosen


def current_context():
    return runtime.current().driver.current_context()


def test_kernels_on_four_partitions_at_once_agree_with_the_cpu(machine):
    rng = np.random.default_rng(5)
    values = rng.random((4, 1 << 16), np.float32)
    with stf.context() as ctx:
        results = []
        for number, place in enumerate(stf.green_places(16, 4)):
            x = ctx.logical_data(values[number])
            y = ctx.logical_data_empty(x.shape, x.dtype)
            for _ in range(10):
                with ctx.task(place, x.read(), y.write(), symbol=f"step {number}") as t:
                    inputs = [stf_warp.array(t, 0), stf_warp.array(t, 1), float(number)]
                    stf_warp.launch(t, step, dim=x.shape, inputs=inputs)
            results.append(y)
        found = [ctx.wait(y) for y in results]
    for number in range(4):
        np.testing.assert_allclose(found[number], stepped(values[number], number), rtol=1e-5)


def test_a_kernel_is_right_on_one_place_then_another_then_the_whole_device(machine):
    # JIT handles that belong to one context must not be used in the next.
    values = np.random.default_rng(6).random(4096, np.float32)
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        for place in (*stf.green_places([8, 16]), stf.exec_place.device(0)):
            y = ctx.logical_data_empty(x.shape, x.dtype)
            with ctx.task(place, x.read(), y.write()) as t:
                stf_warp.launch(
                    t, step, dim=x.shape, inputs=[stf_warp.array(t, 0), stf_warp.array(t, 1), 2.0]
                )
            np.testing.assert_allclose(ctx.wait(y), stepped(values, 2.0), rtol=1e-5)


def test_a_grid_of_partitions_launches_on_each_place(machine):
    values = np.random.default_rng(7).random((3, 512), np.float32)
    grid = stf.exec_place_grid.create(stf.green_places(16, 3))
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        y = ctx.logical_data_empty(values.shape, values.dtype)
        device = stf.data_place.device(0)
        with ctx.task(grid, x.read(device), y.write(device)) as t:
            source, target = stf_warp.array(t, 0), stf_warp.array(t, 1)
            for number in range(3):
                inputs = [source[number], target[number], 3.0]
                stf_warp.launch(t, step, dim=512, inputs=inputs, index=number)
        np.testing.assert_allclose(ctx.wait(y), stepped(values, 3.0), rtol=1e-5)


def test_launches_leave_the_current_context_alone(machine):
    before = current_context()
    place = stf.green_places(16, 1)[0]
    with stf.context() as ctx:
        x = ctx.logical_data_ones(64, np.float32)
        with ctx.task(place, x.rw()) as t:
            inside = current_context()
            stf_warp.launch(t, step, dim=64, inputs=[stf_warp.array(t, 0), stf_warp.array(t, 0), 1.0])
            assert current_context() == inside
    assert current_context() == before


@needs_cuda
def test_a_partition_has_a_warp_device_of_its_own_while_it_lives(cuda_machine):
    place, other = stf.green_places([16, 8])
    before = current_context()
    device = stf_warp.device(place)
    assert current_context() == before
    assert device.context == place.backing_context.handle
    assert device.alias.startswith("cuda:0/16sm/")
    assert stf_warp.device(place) is device
    assert stf_warp.device(other) is not device
    alias = device.alias
    gone = weakref.ref(place)
    del place, device
    gc.collect()
    assert gone() is None
    assert alias not in [each.alias for each in wp.get_cuda_devices()]


@needs_cuda
def test_the_device_stays_until_the_last_object_for_the_place_is_gone(cuda_machine):
    place = stf.green_places(16, 1)[0]
    again = stf.exec_place.from_context(place.backing_context)
    alias = stf_warp.device(place).alias
    assert stf_warp.device(again).alias == alias
    del place
    gc.collect()
    assert wp.get_device(alias).context == again.backing_context.handle


@needs_cuda
def test_a_mapped_device_runs_kernels_on_arrays_of_tasks(cuda_machine):
    values = np.random.default_rng(8).random(2048, np.float32)
    place = stf.green_places(16, 1)[0]
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        y = ctx.logical_data_empty(x.shape, x.dtype)
        with ctx.task(place, x.read(), y.write()) as t:
            device = stf_warp.device(place)
            stream = wp.Stream(device, cuda_stream=int(t.stream_ptr()))
            inputs = [stf_warp.array(t, 0), stf_warp.array(t, 1), 4.0]
            wp.launch(step, dim=2048, inputs=inputs, stream=stream)
        np.testing.assert_allclose(ctx.wait(y), stepped(values, 4.0), rtol=1e-5)


@needs_cuda
def test_a_body_that_leaves_another_context_current_does_not_disturb_the_next_task(cuda_machine):
    values = np.random.default_rng(9).random(256, np.float32)
    place = stf.green_places(16, 1)[0]
    before = current_context()
    with stf.context() as ctx:
        x = ctx.logical_data(values)
        with ctx.task(place, x.rw()):
            runtime.current().driver.set_current_context(place.backing_context.handle)
        assert current_context() == before
        y = ctx.logical_data_empty(x.shape, x.dtype)
        with ctx.task(stf.exec_place.device(0), x.read(), y.write()) as t:
            stf_warp.launch(t, step, dim=256, inputs=[stf_warp.array(t, 0), stf_warp.array(t, 1), 1.0])
        np.testing.assert_allclose(ctx.wait(y), stepped(values, 1.0), rtol=1e-5)
