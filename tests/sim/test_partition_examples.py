"""The examples and benchmarks about SM partitions. Times are looked at on the simulated clock only."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stf_places as stf

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
sys.path.append(str(EXAMPLES))  # what Python does for a script there

import concurrent_kernels  # noqa: E402
import latency_isolation  # noqa: E402
import spin_kernels  # noqa: E402

#: Measured on an H200 (facts/h200.md); the simulated one is to agree within 15 %.
MEASURED_MS = {"1 stream": 8.11, "8 streams of the whole GPU": 1.09, "8 partitions of 8 SMs": 1.10}
MEASURED_US = {"plain streams": 1161, "highest priority": 140, "own 8-SM partition": 45}
CASES = {
    "concurrent": [
        f"{kernels}_kernels_{way}"
        for kernels in (8, 15)
        for way in ("1_stream", "8_streams", f"{kernels}_partitions")
    ],
    "latency": ["plain_streams", "highest_priority", "own_partition"],
    "partitions": ["first", "again"],
}
MACHINES = ["sim:h200x1", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def chosen(request):
    """Skip where the real machine is asked for and is not there, or lacks cuda.core."""
    if request.param == "cuda":
        request.getfixturevalue("cuda")
        found = run_python("-c", "import cuda.core")
        if found.returncode != 0:
            pytest.skip("needs cuda.core")
    return request.param


@pytest.fixture(autouse=True)
def machine():
    """Keep the machine in use as it was, whatever a test chooses."""
    with stf.use_machine("sim:h200x1") as simulated:
        yield simulated


def run_python(*arguments):
    # The environment may choose another machine; these tests choose their own.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STF_PLACES_")}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def rows_of(text):
    """Return the rows of the printed table as (what stands left of the numbers, first number)."""
    rows = re.findall(r"^(?: *(\d+) )? *(\S.*?) {2,}([\d.]+) +[\d.]+(?: +[\d.]+)?$", text, re.MULTILINE)
    return [(kernels, way, float(value)) for kernels, way, value in rows]


def agrees(simulated, measured):
    return simulated == pytest.approx(measured, rel=0.15)


# ---- The examples ----


def test_simulated_kernels_run_at_the_same_time_as_on_an_h200(capsys):
    assert concurrent_kernels.main(["--machine", "sim:h200x1"]) == 0
    printed = capsys.readouterr().out
    times = {(kernels, way): ms for kernels, way, ms in rows_of(printed)}
    for way, measured in MEASURED_MS.items():
        assert agrees(times["8", way], measured)
    assert agrees(times["15", "1 stream"], 15.2)
    assert agrees(times["15", "8 streams of the whole GPU"], 2.1)
    assert agrees(times["15", "15 partitions of 8 SMs"], 1.1)
    assert "SIMULATED" in printed
    assert printed.endswith("all results agree with NumPy\n")


def test_simulated_latencies_are_those_of_an_h200(capsys):
    assert latency_isolation.main(["--machine", "sim:h200x1"]) == 0
    printed = capsys.readouterr().out
    latencies = {way: us for _, way, us in rows_of(printed)}
    assert latencies.keys() == MEASURED_US.keys()
    for way, measured in MEASURED_US.items():
        assert agrees(latencies[way], measured)
    assert latencies["plain streams"] >= 20 * latencies["own 8-SM partition"]
    assert "SIMULATED" in printed


def test_the_bulk_kernel_loses_what_the_partition_takes():
    rows = latency_isolation.compare(spin_kernels.SpinKernels(stf.machine()), probes=2)
    assert rows[-1].bulk_us / rows[0].bulk_us == pytest.approx(
        12 / 11, rel=0.01
    )  # waves on 124 and on 132 SMs


@pytest.mark.parametrize("example", [concurrent_kernels, latency_isolation])
def test_simulated_times_are_the_same_in_every_run(capsys, example):
    printed = []
    for _ in range(2):
        assert example.main([]) == 0  # the machine in use
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_each_partition_runs_its_own_kernels(machine):
    machine.record_timeline()
    places = stf.green_places(concurrent_kernels.BLOCKS, 3)
    concurrent_kernels.measure(spin_kernels.SpinKernels(machine), places, 3, 6)
    kernels = [entry for entry in machine.timeline() if entry.kind == "kernel"]
    streams = [set(), set(), set()]
    for entry in kernels:
        number = int(re.search(r"kernel (\d)", entry.symbol)[1])
        streams[number % 3].add(entry.stream)
    assert len(kernels) == 12
    assert {entry.sms for entry in kernels} == {8}
    assert [len(each) for each in streams] == [1, 1, 1]
    assert len(set.union(*streams)) == 3


@pytest.mark.parametrize(
    ("example", "message"), [(concurrent_kernels, "differ"), (latency_isolation, "once")]
)
def test_a_wrong_result_is_a_failure(capsys, monkeypatch, example, message):
    submit = spin_kernels.SpinKernels.submit

    def submit_twice(self, *arguments):
        submit(self, *arguments)
        return submit(self, *arguments)

    monkeypatch.setattr(spin_kernels.SpinKernels, "submit", submit_twice)
    assert example.main([]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert "agree" not in captured.out


@pytest.fixture
def old_driver(tmp_path):
    """Return a machine whose driver has no partitions."""
    description = json.loads(
        (Path(stf.__file__).parent / "machines" / "data" / "h200x1.json").read_text(encoding="utf-8")
    )
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**description, "name": "old", "driver_version": 12030}))
    return f"sim:{path}"


@pytest.mark.parametrize(
    ("example", "arguments", "message"),
    [
        (concurrent_kernels, ["--machine", "abacus"], "got 'abacus'"),
        (concurrent_kernels, ["--machine", "sim:tiny"], "cannot be met: device 0 has 16 SMs"),
        (concurrent_kernels, ["--what"], "unrecognized arguments: --what"),
        (latency_isolation, ["--machine", "sim:abacus"], "abacus"),
        (latency_isolation, ["--probes", "0"], "a whole number from 1 on: got '0'"),
        (latency_isolation, ["--probes", "x"], "a whole number from 1 on: got 'x'"),
    ],
)
def test_wrong_arguments_end_with_one_line(capsys, example, arguments, message):
    assert_one_line(capsys, example, arguments, message)


@pytest.mark.parametrize("example", [concurrent_kernels, latency_isolation])
def test_a_machine_without_partitions_ends_with_one_line(capsys, example, old_driver):
    assert_one_line(capsys, example, ["--machine", old_driver], "12.5")


def assert_one_line(capsys, example, arguments, message):
    with pytest.raises(SystemExit) as ended:
        example.main(arguments)
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith(f"{example.__name__}: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("blocks", [1, 8, 16, 17, 100])
def test_waves_and_sms_follow_from_blocks_and_place(blocks):
    (place,) = stf.green_places(8, 1)
    spin = spin_kernels.Spin(place, blocks, 1.0)
    assert spin.sms == min(blocks, 8)
    assert spin.waves == int(np.ceil(blocks / 16))


@pytest.mark.parametrize("chosen", MACHINES, indirect=True)
@pytest.mark.parametrize(
    ("example", "arguments"), [("concurrent_kernels", []), ("latency_isolation", ["--probes", 3])]
)
def test_an_example_runs_as_a_script(chosen, example, arguments):
    done = run_python(EXAMPLES / f"{example}.py", "--machine", chosen, *arguments)
    assert done.returncode == 0, done.stderr
    assert ("SIMULATED" in done.stdout) == (chosen != "cuda")
    assert len(rows_of(done.stdout)) == (6 if example == "concurrent_kernels" else 3)


# ---- The benchmarks ----


def records_of(tmp_path, name, machine, *arguments):
    path = tmp_path / "records.json"
    done = run_python("-m", "benchmarks", name, "--machine", machine, "--json", path, *arguments)
    assert done.returncode == 0, done.stderr
    return {record["case"]: record for record in json.loads(path.read_text())}


@pytest.mark.parametrize("chosen", MACHINES, indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_records_each_case_beside_its_baselines(tmp_path, chosen, name):
    arguments = ["--repeats", 2, *(["--probes", 3] if name == "latency" else [])]
    records = records_of(tmp_path, name, chosen, *arguments)
    assert list(records) == CASES[name]
    for record in records.values():
        assert record["name"] == name
        assert record["unit"] == ("us" if name == "latency" else "ms")
        assert record["value"] > 0
        assert record["spread"]["repeats"] == 2
        measured, missing = record["baselines"], record["baselines_not_measured"]
        assert len(measured) + len(missing) == (2 if name == "partitions" else 1)
        if chosen == "cuda":
            assert missing == []
            assert all(baseline["spread"]["repeats"] == 2 for baseline in measured)
        else:
            assert record["machine"]["kind"] == "simulated"
            assert all("simulated" in baseline["reason"] for baseline in missing)


def test_the_concurrent_benchmark_tells_virtual_from_cpu_time(tmp_path):
    records = records_of(tmp_path, "concurrent", "sim:h200x1", "--repeats", 1)
    for case, measured in {
        "8_kernels_1_stream": 8.11,
        "8_kernels_8_streams": 1.09,
        "8_kernels_8_partitions": 1.10,
    }.items():
        assert agrees(records[case]["simulated_ms"], measured)


def test_the_latency_benchmark_tells_virtual_from_cpu_time(tmp_path):
    records = records_of(tmp_path, "latency", "sim:h200x1", "--repeats", 1, "--probes", 3)
    for case, measured in zip(CASES["latency"], MEASURED_US.values(), strict=True):
        assert agrees(records[case]["simulated_p50_us"], measured)
        assert records[case]["sm_counts"]["urgent"] == (8 if case == "own_partition" else 132)
    assert records["own_partition"]["plain_p50_over_partition_p50"] >= 20
    assert records["own_partition"]["bulk_slowdown_on_the_rest"] == pytest.approx(12 / 11, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["concurrent", "--machine", "sim:tiny"], "this workload needs SM partitions"),
        (["concurrent", "--repeats", "0"], "a count of at least 1 is needed: got 0"),
        (["latency", "--probes", "0"], "a count of at least 1 is needed: got 0"),
        (["latency", "--machine", "sim:abacus"], "abacus"),
        (["partitions", "--machine", "sim:tiny"], "this workload needs SM partitions"),
    ],
)
def test_what_a_benchmark_cannot_use_is_one_line(arguments, message):
    done = run_python("-m", "benchmarks", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
