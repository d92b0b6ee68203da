"""The examples on graphs, run as a user runs them, on simulated machines and on GPUs."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import stf_places as stf

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

sys.path.append(str(EXAMPLES))  # what Python does for a script there

import diffusion  # noqa: E402
import replay  # noqa: E402
import solvers  # noqa: E402
import terrain  # noqa: E402

SMALL = {
    diffusion: ["--size", "24", "--frames", "3", "--steps", "6"],
    replay: ["--size", "32", "--balls", "100", "--steps", "40"],
    solvers: ["--size", "16"],
}


@pytest.fixture(autouse=True)
def machine():
    terrain.quiet_warp()
    with stf.use_machine("sim:h200x2") as chosen:
        yield chosen


def run(example, capsys, *arguments, status=0):
    """Run an example with small sizes and return what it printed."""
    assert example.main([*SMALL[example], *arguments]) == status
    return capsys.readouterr().out


def dense(matrix):
    """Return a matrix of sparse rows with its zeros."""
    starts, columns, values = matrix
    full = np.zeros((len(starts) - 1, len(starts) - 1))
    full[np.repeat(np.arange(len(full)), np.diff(starts)), columns] = values
    return full


# ---- solvers ----------------------------------------------------------------------------------------------


def rounds_of(text):
    """Return the rounds of both methods."""
    return [int(found) for found in re.findall(r"unknowns: (\d+) rounds", text)]


@pytest.mark.parametrize("place", ["device", "green:16"])
def test_the_device_goes_round_the_solvers(capsys, place):
    printed = run(solvers, capsys, "--place", place)
    assert printed.count("on_device=True") == 2
    assert "agrees with SciPy" in printed
    assert all(20 < rounds < 1000 for rounds in rounds_of(printed))


@pytest.mark.parametrize("place", ["device", "green:16"])
def test_the_host_can_go_round_the_solvers(capsys, place):
    printed = run(solvers, capsys, "--place", place, "--loop", "host")
    assert printed.count("a graph launched by the host") == 2
    assert "agrees with SciPy" in printed


def test_host_and_device_go_round_equally_often(capsys):
    on_device, on_host = (rounds_of(run(solvers, capsys, "--loop", loop)) for loop in ("device", "host"))
    assert on_device == on_host


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("downhill", [0, 20])
def test_solvers_give_the_same_in_any_legal_order(seed, downhill):
    matrix = terrain.transport_matrix(np.random.default_rng(0).uniform(-1, 1, (6, 5)), downhill)
    b = np.arange(30.0)
    with stf.use_machine("sim:h200x2", chaos=seed) as chaotic:
        with stf.stackable_context() as ctx:
            method = solvers.BiCGStab if downhill else solvers.ConjugateGradients
            solver = method(ctx, terrain.chosen_place(16), matrix, b)
            solvers.solve_on_device(ctx, solver, 1e-26 * (b @ b))
            x = np.asarray(ctx.wait(solver.x))
        assert chaotic.conflicts == ()
    np.testing.assert_allclose(x, np.linalg.solve(dense(matrix), b), rtol=0, atol=1e-10 * np.abs(x).max())


def test_solvers_without_scipy_look_at_the_residual(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    assert "agrees with NumPy's residual" in run(solvers, capsys, "--loop", "host")


def test_a_solver_that_does_not_converge_is_a_failure(capsys, monkeypatch):
    monkeypatch.setattr(solvers, "MOST_ROUNDS", 5)
    printed = run(solvers, capsys, "--loop", "host", status=1)
    assert rounds_of(printed) == [5, 5]
    assert "DIFFERS from SciPy" in printed


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 5)])
def test_the_matrix_loses_only_what_decays(shape):
    heights = np.random.default_rng(0).uniform(-1, 1, shape)
    still, flowing = (dense(terrain.transport_matrix(heights, downhill)) for downhill in (0, 20))
    np.testing.assert_array_equal(still, still.T)
    assert np.linalg.eigvalsh(still).min() > 0.9 * terrain.DECAY
    np.testing.assert_allclose(flowing.sum(axis=0), terrain.DECAY, rtol=1e-10)
    assert heights.size == 1 or np.abs(flowing - flowing.T).max() > 0.1
    assert (np.diag(flowing) > 0).all()
    assert (flowing - np.diag(np.diag(flowing)) <= 0).all()


def test_the_matrix_has_its_columns_in_order():
    starts, columns, _ = terrain.transport_matrix(np.zeros((4, 3)), 0)
    assert [starts[0], starts[-1]] == [0, len(columns)]
    for begin, end in pairwise(starts):
        assert (np.diff(columns[begin:end]) > 0).all()


# ---- diffusion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("places", [["--devices", "1"], ["--places", "green:16x1"]])
def test_the_device_goes_round_a_loop_in_a_loop(capsys, places, dtype):
    printed = run(diffusion, capsys, *places, "--dtype", dtype)
    assert "loop over frames: on_device=True\n" in printed
    assert "loop over steps: on_device=True\n" in printed
    assert "the film agrees with NumPy's" in printed
    if dtype == "int32":
        assert "largest difference 0, allowed 0" in printed


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    ("places", "why"),
    [
        (["--devices", "2"], "2 places"),
        (["--places", "green:16x3"], "3 places"),
        (["--places", "green:64", "--devices", "2"], "4 places"),
    ],
)
def test_the_host_goes_round_over_several_places(capsys, places, why, dtype):
    printed = run(diffusion, capsys, *places, "--dtype", dtype)
    assert printed.count("on_device=False, since ") == 2
    assert why in printed
    assert "the film agrees with NumPy's" in printed


@pytest.mark.parametrize(("frames", "steps"), [("1", "2"), ("1", "10"), ("5", "2")])
@pytest.mark.parametrize("devices", ["1", "2"])
def test_a_film_can_be_short(capsys, devices, frames, steps):
    arguments = ["--devices", devices, "--dtype", "int32", "--frames", frames, "--steps", steps]
    assert "largest difference 0, allowed 0" in run(diffusion, capsys, *arguments)


def test_each_frame_shows_another_time():
    image = np.random.default_rng(0).integers(0, 1 << 20, (8, 8), np.int32)
    film = diffusion.film_numpy(image, 3, 2)
    assert film.shape == (3, 8, 8)
    assert all(np.abs(a - b).max() > 0 for a, b in pairwise(film))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("devices", "places"), [(2, None), (1, (16, 3)), (1, None)])
def test_a_film_is_the_same_in_any_legal_order(seed, devices, places):
    image = np.random.default_rng(1).integers(0, 1 << 20, (16, 8), np.int32)
    with stf.use_machine("sim:h200x2", chaos=seed) as chaotic:
        with stf.stackable_context() as ctx:
            camera = diffusion.Camera(ctx, diffusion.make_grid(chaotic, devices, places), image, 3)
            camera.shoot(3, 4)
            film = np.asarray(ctx.wait(camera.film))
        assert chaotic.conflicts == ()
    np.testing.assert_array_equal(film, diffusion.film_numpy(image, 3, 4))


# ---- replay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["device", "green:16"])
@pytest.mark.parametrize("steps", ["1", "40"])
def test_a_replayed_simulation_equals_numpys(capsys, place, steps):
    printed = run(replay, capsys, "--place", place, "--steps", steps)
    assert "agrees with NumPy: largest difference of a position 0" in printed


def test_balls_roll_and_bounce():
    heights = np.add.outer(np.arange(8), np.zeros(8)).astype(np.float32)
    balls = replay.Balls(heights, 50)
    before = balls.positions.copy()
    replay.roll_numpy(balls, 200)
    assert balls.visits.sum() == 50 * 200
    np.testing.assert_array_equal(balls.positions[:, 1], before[:, 1])
    assert (balls.positions >= 0).all() and (balls.positions <= balls.last).all()
    assert balls.positions[:, 0].mean() < before[:, 0].mean()


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_is_the_same_in_any_legal_order(seed):
    heights = np.random.default_rng(0).random((16, 16), np.float32)
    ours, expected = replay.Balls(heights, 20), replay.Balls(heights, 20)
    with stf.use_machine("sim:h200x2", chaos=seed) as chaotic:
        replay.replay(stf.exec_place.device(1), ours, 30)
        assert chaotic.conflicts == ()
    replay.roll_numpy(expected, 30)
    for mine, numpys in zip(ours.arrays(), expected.arrays(), strict=True):
        np.testing.assert_array_equal(mine, numpys)


# ---- all of them ------------------------------------------------------------------------------------------

WAYS = {diffusion: ["--devices", "2"], replay: [], solvers: ["--loop", "host"]}


@pytest.mark.parametrize("example", SMALL, ids=lambda example: example.__name__)
def test_examples_say_what_is_simulated(capsys, example):
    printed = run(example, capsys, *WAYS[example])
    assert "all times are SIMULATED, no GPU was measured" in printed
    assert "ms (simulated)" in printed
    assert "measured)" not in printed


@pytest.mark.parametrize(
    ("example", "function", "wrong"),
    [
        (diffusion, "film_numpy", lambda image, frames, steps: np.stack([image] * frames)),
        (replay, "roll_numpy", lambda balls, steps: None),
        (solvers, "difference", lambda matrix, b, x: ("SciPy", 1e-9)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_result_is_a_failure(capsys, monkeypatch, example, function, wrong):
    monkeypatch.setattr(example, function, wrong)
    assert "DIFFERS from " in run(example, capsys, *WAYS[example], status=1)


@pytest.mark.parametrize(
    ("example", "arguments", "message"),
    [
        (diffusion, ["--steps", "3"], "--steps 3: it is even"),
        (diffusion, ["--devices", "3"], "--devices 3: h200x2 has 2 device(s)"),
        (diffusion, ["--frames", "0"], "argument --frames: a whole number from 1 on: got '0'"),
        (replay, ["--size", "1"], "--size 1: a slope needs two cells in a row"),
        (replay, ["--place", "green:"], "argument --place: device or green:SMS, as green:16: got 'green:'"),
        (replay, ["--place", "green:200"], "cannot be met: device 0 has 132 SMs"),
        (solvers, ["--loop", "nobody"], "argument --loop: invalid choice: 'nobody'"),
        (solvers, ["--machine", "sim:abacus"], "abacus"),
    ],
)
def test_wrong_arguments_end_with_one_line(capsys, example, arguments, message):
    with pytest.raises(SystemExit) as ended:
        example.main([*SMALL[example], *arguments])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert error.startswith(f"{example.__name__}: ")
    assert error.count("\n") == 1


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("example", "arguments"),
    [
        (diffusion, ["--devices", "1", "--dtype", "int32"]),
        (diffusion, ["--places", "green:16x1", "--dtype", "int32"]),
        (diffusion, ["--places", "green:16x3", "--dtype", "int32"]),
        pytest.param(diffusion, ["--devices", "2", "--dtype", "int32"], marks=pytest.mark.two_gpus),
        (replay, []),
        (replay, ["--place", "green:16"]),
        (solvers, []),
        (solvers, ["--place", "green:16"]),
        (solvers, ["--loop", "host"]),
    ],
)
def test_a_gpu_gives_the_same_results(cuda, capsys, example, arguments):
    if arguments[:2] == ["--devices", "2"] and cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    printed = run(example, capsys, "--machine", "cuda", *arguments)
    assert "times are measured" in printed
    assert "simulated" not in printed.lower()
    assert "agrees with " in printed


def test_the_guide_to_graphs_prints_what_it_says(capsys):
    guide = (ROOT / "docs" / "graphs.md").read_text()
    names, said = {}, []
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", guide, re.DOTALL):
        if kind == "python":
            exec(block, names)
        else:
            said.append((block, capsys.readouterr().out))
    assert len(said) == 5
    for expected, printed in said:
        assert printed == expected
