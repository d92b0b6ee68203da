"""The examples, run as a user runs them, on simulated machines."""

import importlib.util
import json
import os
import pty
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import stf_places as stf

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


heat = load("heat")


@pytest.fixture(autouse=True)
def machine():
    with stf.use_machine("sim:h200x2") as chosen:
        yield chosen


def run_heat(tmp_path, *arguments):
    return heat.main(["--output", str(tmp_path / "out"), "--size", "48", "--steps", "20", *arguments])


def table_of(text):
    """Return the rows of the printed table by place."""
    rows = [line.split() for line in text.splitlines()]
    start = next(i for i, row in enumerate(rows) if row and row[0] == "place")
    return {row[0]: row[1:] for row in rows[start + 1 :] if row and row[0].endswith(")")}


def test_first_program_prints_what_the_readme_shows(capsys):
    heat.quiet_warp()
    runpy.run_path(str(EXAMPLES / "first_program.py"))
    printed = capsys.readouterr().out
    program = (EXAMPLES / "first_program.py").read_text()
    readme = (ROOT / "README.md").read_text()
    assert "[  0. 100. 200. 300.]" in printed
    assert printed in readme
    assert program[program.index("import numpy") :] in readme


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [8, 33])
def test_heat_agrees_with_numpy_for_any_number_of_devices(tmp_path, capsys, devices, size):
    arguments = ["--machine", "sim:h200x8", "--devices", str(devices), "--size", str(size)]
    assert run_heat(tmp_path, *arguments) == 0
    printed = capsys.readouterr().out
    assert "agrees with NumPy" in printed
    places = table_of(printed)
    assert [places[f"device({i})"][0] for i in range(devices)] == ["20"] * devices


def test_heat_says_what_is_simulated_and_writes_pictures_and_timeline(tmp_path, capsys):
    assert run_heat(tmp_path) == 0
    captured = capsys.readouterr()
    assert captured.out.count("h200x2, simulated") == len(table_of(captured.out))
    assert captured.err == ""
    before, after = (
        matplotlib.image.imread(tmp_path / "out" / f"{name}.png") for name in ("before", "after")
    )
    assert before.shape == after.shape == (48, 48, 4)
    assert np.abs(before - after).max() > 0.01
    timeline = json.loads((tmp_path / "out" / "timeline.json").read_text())
    assert timeline["metadata"]["times"] == "simulated"
    tasks = [event for event in timeline["traceEvents"] if event.get("cat") == "task"]
    assert {event["name"] for event in tasks} == {"diffuse 0", "diffuse 1"}


def test_heat_moves_only_edge_rows_between_devices(machine):
    width, steps = 64, 10
    image = np.random.default_rng(0).random((40, width), np.float32)
    with stf.context(trace=True) as ctx:
        heat.spread(ctx, stf.exec_place_grid.from_devices([0, 1]), image, steps)
    between = [record for record in ctx.trace if record.kind == "copy" and "host" not in record.place]
    assert {record.nbytes for record in between} == {4 * width}
    assert len(between) == 2 * (steps - 1)


@pytest.mark.parametrize("seed", range(3))
def test_heat_gives_the_same_result_in_any_legal_order(seed):
    image = np.random.default_rng(1).random((16, 8), np.float32)
    with stf.use_machine("sim:h200x4", chaos=seed) as chaotic:
        with stf.context() as ctx:
            result = heat.spread(ctx, stf.exec_place_grid.from_devices(range(4)), image, 12)
        assert chaotic.conflicts == ()
    np.testing.assert_allclose(result, heat.diffuse_numpy(image, 12), rtol=0, atol=heat.tolerance(image, 12))


def test_heat_without_steps_changes_nothing(tmp_path, capsys):
    assert run_heat(tmp_path, "--steps", "0") == 0
    assert "largest difference 0," in capsys.readouterr().out


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)])
def test_heat_takes_any_picture(tmp_path, capsys, shape):
    picture = np.random.default_rng(2).random(shape)
    matplotlib.image.imsave(tmp_path / "in.png", picture)
    assert run_heat(tmp_path, "--input", str(tmp_path / "in.png")) == 0
    assert "agrees with NumPy" in capsys.readouterr().out


def test_a_wrong_result_is_a_failure(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(heat, "diffuse_numpy", lambda image, steps: image + 1)
    assert run_heat(tmp_path) == 1
    assert "DIFFERS from NumPy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "-1"], "argument --steps: a whole number from 0 on: got '-1'"),
        (["--size", "x"], "argument --size: a whole number from 1 on: got 'x'"),
        (["--devices", "0"], "argument --devices: a whole number from 1 on: got '0'"),
        (["--devices", "3"], "--devices 3: h200x2 has 2 device(s)"),
        (["--devices", "2", "--size", "1"], "--devices 2: a picture of 1 row(s) has at most as many blocks"),
        (["--machine", "abacus"], "got 'abacus'"),
        (["--machine", "sim:abacus"], "abacus"),
        (["--input", "nowhere.png"], "nowhere.png"),
        (["--input", str(EXAMPLES / "heat.py")], "heat.py"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_wrong_arguments_end_with_one_line(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        run_heat(tmp_path, *arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert error.startswith("heat: ")
    assert error.count("\n") == 1


def test_a_file_in_the_way_of_the_output_ends_with_one_line(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    with pytest.raises(SystemExit) as ended:
        run_heat(tmp_path)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


# Test runners in parallel ignore Ctrl-C, and what they start inherits that.
AS_ON_A_TERMINAL = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def heat_process(tmp_path, *arguments, **options):
    script = [sys.executable, "-c", AS_ON_A_TERMINAL, EXAMPLES / "heat.py"]
    command = [*script, "--output", tmp_path / "out", *arguments]
    environment = {**os.environ, "STF_PLACES_DRIVER": "sim"}
    return subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, **options)


def test_a_progress_bar_is_drawn_on_a_terminal_only(tmp_path):
    ours, theirs = pty.openpty()
    with heat_process(
        tmp_path, "--size", "16", "--steps", "4", stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        output = process.communicate(timeout=120)[0]
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert process.returncode == 0
    assert "] 1/4" in drawn
    assert "] 4/4" in drawn
    assert "#" not in output


def test_ctrl_c_ends_cleanly(tmp_path):
    ours, theirs = pty.openpty()
    endless = ("--size", "256", "--steps", "10000000")
    with heat_process(tmp_path, *endless, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        late = threading.Timer(120, process.kill)
        late.start()
        while b"]" not in (drawn := os.read(ours, 4096)):
            pass
        process.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(ours, 4096):
                drawn += chunk
        except OSError:  # how a terminal says that nobody writes to it any more
            pass
        process.communicate()
        late.cancel()
    os.close(ours)
    assert process.returncode == 130
    assert b"interrupted" in drawn
    assert b"Traceback" not in drawn
