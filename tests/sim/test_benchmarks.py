"""The benchmarks' command line, run as users run it. Nothing here looks at a time."""

import json
import math
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    # The environment may choose another machine; these tests choose their own.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STF_PLACES_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmarks") / "records.json"
    arguments = ["--tasks", 200, "--repeats", 2, "--machine", "sim:tiny", "--json", path]
    result = run("task_overhead", *arguments)
    assert result.returncode == 0, result.stderr
    return result, json.loads(path.read_text())


@pytest.fixture(scope="module")
def records(done):
    return {record["case"]: record for record in done[1]}


CASES = ["chain", "two_dependencies", "tokens", "simulated_throughput"]


def test_every_case_has_one_record(done):
    assert [record["case"] for record in done[1]] == CASES
    assert {record["name"] for record in done[1]} == {"task_overhead"}


@pytest.mark.parametrize("case", CASES)
def test_record_says_what_and_where(records, case):
    record = records[case]
    assert record["unit"] == ("tasks/s" if case == "simulated_throughput" else "us/task")
    assert math.isfinite(record["value"]) and record["value"] > 0
    assert record["spread"].keys() == {"min", "max", "repeats"}
    assert record["spread"]["min"] <= record["value"] <= record["spread"]["max"]
    assert record["spread"]["repeats"] == 2
    assert record["machine"]["name"] == "tiny"
    assert record["machine"]["kind"] == "simulated"
    assert record["machine"]["sm_count"] > 0
    assert record["driver"].startswith("CUDA ") and record["driver"].endswith("(simulated)")
    assert record["python"].endswith(sys.version.split()[0].rstrip("+"))
    assert record["commit"] == "unknown" or len(record["commit"]) == 40
    assert datetime.fromisoformat(record["date"]).tzinfo is not None


@pytest.mark.parametrize("case", CASES[:3])
def test_baselines_are_measured_or_say_why_not(records, case):
    measured = records[case]["baselines"]
    assert [baseline["name"] for baseline in measured] == ["bare Python objects, nothing done"]
    assert all(math.isfinite(baseline["value"]) and baseline["value"] > 0 for baseline in measured)
    missing = records[case]["baselines_not_measured"]
    assert {baseline["name"].partition(",")[0] for baseline in missing} == {
        "raw driver",
        "cuda.stf._experimental",
    }
    assert all("simulated" in baseline["reason"] for baseline in missing)


@pytest.mark.parametrize("case", CASES)
def test_figures_from_elsewhere_stand_apart_with_their_source(records, case):
    assert records[case]["reference_figures"]["source"]
    assert "goal" in records[case]["reference_figures"]


@pytest.mark.parametrize("case", ["chain", "two_dependencies"])
def test_a_chain_records_no_event(records, case):
    counts = records[case]["counts"]
    assert (counts["tasks"], counts["events_recorded"], counts["waits"]) == (200, 0, 0)


def test_fan_out_waits(records):
    counts = records["tokens"]["counts"]
    assert counts["tasks"] == 200
    assert counts["waits"] > 0


def test_table_comes_last_and_names_the_machine(done):
    lines = done[0].stdout.splitlines()
    assert any(line.startswith("task_overhead / chain") for line in lines)
    assert lines[-1].startswith("tiny (simulated machine")


def test_list_names_the_workloads():
    result = run("--list")
    assert result.returncode == 0
    assert "task_overhead" in [line.split()[0] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "a workload is needed"),
        (["no_such_workload"], "no_such_workload"),
        (["task_overhead", "--tasks", "0"], "--tasks: a count of at least 1 is needed: got 0"),
        (["task_overhead", "--tasks", "many"], "--tasks: invalid"),
        (["task_overhead", "--device", "-1"], "devices count from 0: got -1"),
        (["task_overhead", "--device", "9", "--machine", "sim:tiny"], "--device 9: tiny has"),
        (["task_overhead", "--machine", "sim:no_such_machine"], "no_such_machine"),
        (["task_overhead", "--no-such-option"], "--no-such-option"),
        (["task_overhead", "--json", "no_such_folder/records.json"], "--json: no such folder"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(arguments, text):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert text in result.stderr
