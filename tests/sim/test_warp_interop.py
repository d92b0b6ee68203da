"""Warp kernels in task bodies, on simulated machines."""

import subprocess
import sys

import numpy as np
import pytest
import warp as wp

import stf_places as stf
from stf_places.interop import warp as stf_warp

DEVICE = stf.exec_place.device


@wp.kernel
def scale(x: wp.array(dtype=wp.float32), factor: wp.float32):
    i = wp.tid()
    x[i] = factor * x[i]


@wp.kernel
def lengths(v: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.float32)):
    i = wp.tid()
    out[i] = wp.length(v[i])


@pytest.fixture(autouse=True)
def machine():
    with stf.use_machine("sim:h200x2") as chosen:
        yield chosen


@pytest.fixture
def ctx():
    with stf.context() as made:
        yield made


def run_scale(ctx, data, place, factor):
    with ctx.task(place, data.rw(), symbol="scale") as t:
        stf_warp.launch(t, scale, dim=data.shape, inputs=[stf_warp.array(t, 0), factor])


def test_launches_follow_the_order_of_tasks_over_devices(ctx):
    x = ctx.logical_data(np.arange(5, dtype=np.float32))
    for place, factor in ((DEVICE(0), 2.0), (DEVICE(1), 3.0), (stf.exec_place.host(), 5.0)):
        run_scale(ctx, x, place, factor)
    np.testing.assert_array_equal(ctx.wait(x), 30 * np.arange(5))


@pytest.mark.parametrize("seed", range(3))
def test_launches_are_ordered_in_chaos_too(seed):
    with stf.use_machine("sim:h200x2", chaos=seed), stf.context() as ctx:
        x = ctx.logical_data(np.ones(4, np.float32))
        for step in range(8):
            run_scale(ctx, x, DEVICE(step % 2), 2.0)
        np.testing.assert_array_equal(ctx.wait(x), np.full(4, 256.0))


def test_launches_run_in_the_order_of_the_stream_behind_other_work(ctx):
    x = ctx.logical_data_ones(3, np.float32)
    with ctx.task(x.rw()) as t:
        t.run(np.add, t.numpy(0), 1, t.numpy(0))
        stf_warp.launch(t, scale, dim=3, inputs=[stf_warp.array(t, 0), 10.0])
    np.testing.assert_array_equal(ctx.wait(x), np.full(3, 20.0))


def test_a_machine_that_moves_no_bytes_runs_no_kernel():
    with stf.use_machine("sim:h200x2", execute=False), stf.context() as ctx:
        x = ctx.logical_data_empty(1 << 30, np.float32)
        with ctx.task(x.write()) as t:
            stf_warp.launch(t, scale, dim=1 << 30, inputs=[stf_warp.array(t, 0), 2.0])
        assert ctx.stats.tasks == 1


def test_grid_tasks_launch_on_the_stream_of_a_place(ctx):
    grid = stf.exec_place_grid.from_devices([0, 1])
    x = ctx.logical_data(np.ones(4, np.float32))
    with ctx.task(grid, x.rw(stf.data_place.device(0))) as t:
        stf_warp.launch(t, scale, dim=4, inputs=[stf_warp.array(t, 0), 7.0], index=1)
        with pytest.raises(IndexError, match="place index 2"):
            stf_warp.launch(t, scale, dim=4, inputs=[stf_warp.array(t, 0), 7.0], index=2)
    np.testing.assert_array_equal(ctx.wait(x), np.full(4, 7.0))


def test_a_shard_is_work_like_a_task(ctx):
    x = ctx.logical_data(np.ones(4, np.float32))
    with ctx.task(DEVICE(1), x.rw()) as t:
        for shard in t.shards(0):
            stf_warp.launch(shard, scale, dim=4, inputs=[stf_warp.array(shard, 0), 4.0])
    np.testing.assert_array_equal(ctx.wait(x), np.full(4, 4.0))


def test_no_threads_launch_nothing(ctx):
    x = ctx.logical_data_empty(0, np.float32)
    with ctx.task(x.write()) as t:
        empty = stf_warp.array(t, 0)
        assert empty.shape == (0,)
        stf_warp.launch(t, scale, dim=0, inputs=[empty, 1.0])


def test_wrong_arguments_are_refused_at_the_launch(ctx):
    x = ctx.logical_data_zeros(3, np.float64)
    with ctx.task(x.rw()) as t:
        with pytest.raises(RuntimeError, match="scale"):
            stf_warp.launch(t, scale, dim=3, inputs=[stf_warp.array(t, 0), 1.0])
        with pytest.raises(
            TypeError, match=r"launch\(\) takes stream, record_cmd from the task: leave it out"
        ):
            stf_warp.launch(t, scale, dim=3, record_cmd=True, stream=None)
    with pytest.raises(stf.TaskStateError, match="belongs inside the task's body"):
        stf_warp.launch(t, scale, dim=3)


def test_arrays_are_views_of_the_dependency(ctx):
    x = ctx.logical_data(np.arange(12, dtype=np.int16).reshape(3, 4))
    with ctx.task(DEVICE(1), x.rw()) as t:
        view = stf_warp.array(t, 0)
        assert (view.ptr, view.shape, view.dtype) == (t.get_arg(0), (3, 4), wp.int16)
        assert view.device == wp.get_device("cpu")
        assert stf_warp.array(t, 0, ndim=1).shape == (12,)
        assert stf_warp.array(t, 0, ndim=2).shape == (3, 4)
        assert stf_warp.array(t, 0, shape=(2, 6)).shape == (2, 6)
        with pytest.raises(
            ValueError, match=r"shape of argument 0 must keep its 12 elements \(3, 4\): got \(5,\)"
        ):
            stf_warp.array(t, 0, shape=(5,))
        with pytest.raises(
            ValueError, match=r"argument 0 has shape \(3, 4\): ndim is 2, or 1 to flatten; got 3"
        ):
            stf_warp.array(t, 0, ndim=3)


def test_trailing_dimensions_fold_into_vectors_and_matrices(ctx):
    v = ctx.logical_data(np.array([[3, 4, 0], [0, 5, 12]], np.float32))
    m = ctx.logical_data_zeros((2, 5, 3, 3), np.float32)
    out = ctx.logical_data_empty(2, np.float32)
    with ctx.task(v.read(), m.read(), out.write()) as t:
        assert stf_warp.array(t, 1, wp.mat33).shape == (2, 5)
        vectors = stf_warp.array(t, 0, wp.vec3)
        stf_warp.launch(t, lengths, dim=2, inputs=[vectors], outputs=[stf_warp.array(t, 2)])
        with pytest.raises(ValueError, match=r"trailing dimensions \(4,\): argument 0 has shape \(2, 3\)"):
            stf_warp.array(t, 0, wp.vec4)
        with pytest.raises(TypeError, match="argument 0 holds float32, vec3d is made of float64: convert"):
            stf_warp.array(t, 0, wp.vec3d)
    np.testing.assert_array_equal(ctx.wait(out), [5, 13])


def test_types_are_those_of_the_data(ctx):
    plain = ctx.logical_data_zeros(3, np.float32)
    pairs = ctx.logical_data_zeros(3, np.complex64)
    token = ctx.token()
    with ctx.task(plain.read(), pairs.read(), token.read()) as t:
        assert stf_warp.array(t, 0, float).dtype is wp.float32
        with pytest.raises(TypeError, match="argument 0 holds float32, int32 is made of int32"):
            stf_warp.array(t, 0, wp.int32)
        with pytest.raises(TypeError, match="Warp has no type for NumPy's complex64: pass dtype="):
            stf_warp.array(t, 1)
        with pytest.raises(TypeError, match="token"):
            stf_warp.array(t, 2)
        with pytest.raises(IndexError, match="argument 3"):
            stf_warp.array(t, 3)


def test_struct_types_fit_structured_data(ctx):
    @wp.struct
    class Particle:
        position: wp.vec3
        mass: wp.float32

    particles = ctx.logical_data(np.zeros(4, Particle.numpy_dtype()))
    with ctx.task(particles.read()) as t:
        assert stf_warp.array(t, 0, Particle).shape == (4,)


def test_simulated_places_are_warps_cpu_and_have_no_stream(ctx):
    for place in (DEVICE(1), stf.exec_place.host(), stf.exec_place_grid.from_devices([0, 1])):
        assert stf_warp.device(place) == wp.get_device("cpu")
    with (
        ctx.task(DEVICE(1), ctx.token().rw()) as t,
        pytest.raises(stf.NotSupported, match=r"device\(1\).* has none"),
    ):
        stf_warp.stream(t)


def test_a_device_that_warp_does_not_see_is_named():
    count = wp.get_cuda_device_count()
    with pytest.raises(stf.InvalidDevice, match=rf"sees {count} CUDA device\(s\), not device {count}"):
        stf_warp._cuda_device(count)


def test_warps_own_state_stays(ctx):
    before = wp.get_device()
    run_scale(ctx, ctx.logical_data_ones(3, np.float32), DEVICE(1), 2.0)
    assert wp.get_device() == before


def test_missing_warp_is_named_with_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['warp'] = None\n"
        "import stf_places as stf; from stf_places.interop import warp as stf_warp\n"
        "stf.use_machine('sim:tiny')\n"
        "try: stf_warp.device(stf.exec_place.device(0))\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Warp is not installed: pip install 'stf-places[warp]'\n"
