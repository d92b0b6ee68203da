"""The examples, run as a user runs them, on simulated machines."""

import json
import os
import pty
import re
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


sys.path.append(str(EXAMPLES))  # what Python does for a script there

import heat  # noqa: E402


@pytest.fixture(autouse=True)
def machine():
    with stf.use_machine("sim:h200x2") as chosen:
        yield chosen


def run_heat(tmp_path, *arguments):
    return heat.main(["--output", str(tmp_path / "out"), "--size", "48", "--steps", "20", *arguments])


def table_of(text):
    """Return the rows of the printed table: place, first and last row of the picture, steps, machine."""
    found = re.findall(
        r"^(.*device \d+)  +(?:(\d+) to (\d+)|none) +(\d+) +[\d.]+  +(.+)$", text, re.MULTILINE
    )
    return [(place.strip(), first, last, int(steps), where) for place, first, last, steps, where in found]


def test_first_program_prints_what_the_readme_shows(capsys):
    heat.quiet_warp()
    runpy.run_path(str(EXAMPLES / "first_program.py"))
    printed = capsys.readouterr().out
    program = (EXAMPLES / "first_program.py").read_text()
    readme = (ROOT / "README.md").read_text()
    assert "[  0. 100. 200. 300.]" in printed
    assert printed in readme
    assert program[program.index("import numpy") :] in readme


def test_the_guide_to_arrays_over_grids_prints_what_it_says(capsys):
    guide = (ROOT / "docs" / "data_partitions.md").read_text()
    names = {}
    said = []
    for kind, block in re.findall(r"```(python|text|console)\n(.*?)```", guide, re.DOTALL):
        if kind == "python":
            exec(block, names)
        else:
            said.append((kind, block, capsys.readouterr().out))
    assert [kind for kind, *_ in said].count("console") == 3
    for _, expected, printed in said:
        assert printed == expected


def test_the_readme_shows_the_heart_of_the_example():
    readme, program = (ROOT / "README.md").read_text(), (EXAMPLES / "heat.py").read_text()
    shown = readme[readme.index("        with ctx.task(grid, u.read()") : readme.index("        u, v = v, u")]
    lines = [line.partition("  # ")[0].strip() for line in shown.splitlines()]
    assert len(lines) == 4
    assert all(line.replace("diffuse", "kernel") in program for line in lines)


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 5, 8, 33])
def test_heat_agrees_with_numpy_for_any_number_of_devices(tmp_path, capsys, devices, size):
    arguments = ["--machine", "sim:h200x8", "--devices", str(devices), "--size", str(size)]
    assert run_heat(tmp_path, *arguments) == 0
    printed = capsys.readouterr().out
    assert "agrees with NumPy" in printed
    places = table_of(printed)
    assert [(place, steps) for place, _, _, steps, _ in places] == [
        (f"device {i}", 20) for i in range(devices)
    ]
    owned = [(int(first), int(last)) for _, first, last, _, _ in places if first]
    assert [first for first, _ in owned] == [0, *(last + 1 for _, last in owned[:-1])]
    assert owned[-1][1] == size - 1


#: Arguments and the places that they mean on a machine of two H200s.
PLACES = [
    ([], ["device 0", "device 1"]),
    (["--devices", "1"], ["device 0"]),
    (["--devices", "2", "--places", "devices"], ["device 0", "device 1"]),
    (["--places", "green:16"], ["16 SMs of device 0"] * 8),
    (["--places", "green:16x3"], ["16 SMs of device 0"] * 3),
    (["--places", "green:64", "--devices", "2"], ["64 SMs of device 0"] * 2 + ["64 SMs of device 1"] * 2),
    (["--places", "green:12x2"], ["16 SMs of device 0"] * 2),
]


@pytest.mark.parametrize(("arguments", "expected"), PLACES)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_same_program_runs_on_devices_and_on_their_partitions(
    tmp_path, capsys, arguments, expected, dtype
):
    assert run_heat(tmp_path, *arguments, "--dtype", dtype) == 0
    printed = capsys.readouterr().out
    places = table_of(printed)
    assert [place for place, *_ in places] == expected
    assert {(steps, where) for _, _, _, steps, where in places} == {(20, "h200x2, simulated")}
    assert "agrees with NumPy" in printed
    if dtype == "int32":
        assert "largest difference 0, allowed 0;" in printed


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_results_are_the_same_on_all_machines_and_places(dtype):
    # 1000 rows of 4000 bytes: two pages of 2 MiB, so that two devices have one each
    image = heat.resample(np.random.default_rng(3).random((200, 150), np.float32) - 0.5, 1000, dtype)
    results = []
    for name, devices, places in [
        ("sim:h200x1", None, None),
        ("sim:h200x2", 2, None),
        ("sim:h200x2", 1, (16, None)),
        ("sim:h200x2", 2, (16, 8)),
        ("sim:h200x8", 8, None),
    ]:
        with stf.use_machine(name) as chosen:
            grid = heat.make_grid(chosen, devices, places)
            with stf.context() as ctx:
                results.append(heat.spread(ctx, grid, image, 12))
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    allowed = 0 if dtype == "int32" else 1e-6 * np.abs(image).max()
    np.testing.assert_allclose(results[0], heat.diffuse_numpy(image, 12), rtol=0, atol=allowed)
    assert np.abs(results[0] - image).max() > 0.01 * np.abs(image).max()


def test_heat_says_what_is_simulated_and_writes_pictures_and_timeline(tmp_path, capsys):
    assert run_heat(tmp_path) == 0
    captured = capsys.readouterr()
    assert [where for *_, where in table_of(captured.out)] == ["h200x2, simulated"] * 2
    assert captured.err == ""
    before, after = (
        matplotlib.image.imread(tmp_path / "out" / f"{name}.png") for name in ("before", "after")
    )
    assert before.shape == after.shape == (48, 48, 4)
    assert np.abs(before - after).max() > 0.01
    timeline = json.loads((tmp_path / "out" / "timeline.json").read_text())
    assert timeline["metadata"]["times"] == "simulated"
    tasks = [event for event in timeline["traceEvents"] if event.get("cat") == "task"]
    assert {event["name"] for event in tasks} == {"heat"}
    assert len(tasks) == 2 * 20


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    ("devices", "places"),
    [
        (1, None),
        (1, (16, 8)),
        pytest.param(2, None, marks=pytest.mark.two_gpus),
        pytest.param(2, (16, None), marks=pytest.mark.two_gpus),
    ],
)
def test_a_gpu_gives_the_result_of_numpy_as_simulated_machines_do(cuda, devices, places, dtype):
    if cuda.device_count() < devices:
        pytest.skip("needs two GPUs")
    image = heat.resample(heat.load(None), 1500, dtype)
    with stf.use_machine("cuda") as chosen, stf.context() as ctx:
        result = heat.spread(ctx, heat.make_grid(chosen, devices, places), image, 50)
    allowed = 0 if dtype == "int32" else 1e-6 * np.abs(image).max()
    np.testing.assert_allclose(result, heat.diffuse_numpy(image, 50), rtol=0, atol=allowed)


def test_heat_copies_nothing_between_devices(machine):
    image = np.random.default_rng(0).random((1024, 1024), np.float32)
    with stf.context(trace=True) as ctx:
        heat.spread(ctx, heat.make_grid(machine, None, None), image, 6)
    copies = [record for record in ctx.trace if record.kind == "copy"]
    assert len(copies) == 6  # a piece a device: in at first, the result out, and back to the picture's copy
    assert all("host" in record.place for record in copies)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("places", [None, (16, 3)])
def test_heat_gives_the_same_result_in_any_legal_order(seed, places):
    image = np.random.default_rng(1).random((16, 8), np.float32)
    with stf.use_machine("sim:h200x4", chaos=seed) as chaotic:
        with stf.context() as ctx:
            result = heat.spread(ctx, heat.make_grid(chaotic, 4, places), image, 12)
        assert chaotic.conflicts == ()
    np.testing.assert_allclose(result, heat.diffuse_numpy(image, 12), rtol=0, atol=heat.tolerance(image, 12))


def test_integers_are_exact_and_floats_nearly_so():
    image = np.ones((4, 4), np.float32)
    assert heat.tolerance(image.astype(np.int32), 200) == 0
    assert heat.tolerance(image, 200) == pytest.approx(1e-6)
    assert heat.tolerance(image, 3500) == pytest.approx(4e-6)


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
        (
            ["--places", "green:"],
            "argument --places: devices, green:SMS or green:SMSxCOUNT, as green:16x8: got 'green:'",
        ),
        (["--places", "green:0"], "got 'green:0'"),
        (["--places", "green:16x"], "got 'green:16x'"),
        (["--places", "rooms"], "got 'rooms'"),
        (["--places", "green:16x9"], "cannot be met: device 0 has 132 SMs"),
        (["--places", "green:16", "--devices", "3"], "--devices 3: h200x2 has 2 device(s)"),
        (["--dtype", "float64"], "argument --dtype: invalid choice: 'float64'"),
        (["--machine", "sim:nopeer2", "--devices", "2"], "device 0 cannot reach"),
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
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
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
