"""The benchmark of graphs, on the simulated machine in its quick form. Nothing here looks at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stf_places as stf

ROOT = Path(__file__).parents[2]
RECORDED = [
    f"record_{kind}_{where}_{tasks}"
    for where in ("place", "partitions")
    for tasks in (100, 1000)
    for kind in ("graph", "scope")
]
LAUNCHED = ["launch_submit_100", "launch_done_100"]
LOOPS = ["loop_while", "loop_repeat"]
REPLAYED = ["replay_record", "replay_submit", "replay_done"]


def run(*arguments):
    # The environment may choose another machine; these tests choose their own.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STF_PLACES_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks", "graphs", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def records_of(folder, *arguments):
    path = folder / "records.json"
    done = run("--quick", *arguments, "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return records_of(tmp_path_factory.mktemp("graphs"), "--machine", "sim:h200x1")


@pytest.fixture(scope="module")
def records(done):
    return {record["case"]: record for record in done}


def test_every_case_is_measured_or_says_why_not(done):
    missing = {each["case"] for each in done[0].get("cases_not_measured", [])}
    assert missing <= set(LOOPS)
    cases = [case for case in RECORDED + LAUNCHED + LOOPS + REPLAYED if case not in missing]
    assert [record["case"] for record in done] == cases
    for record in done:
        assert record["name"] == "graphs"
        assert record["value"] > 0
        assert record["machine"]["kind"] == "simulated"
        assert record["work"].startswith("task.run")


@pytest.mark.parametrize("case", RECORDED)
def test_a_recording_is_one_graph_of_all_tasks(records, case):
    record = records[case]
    assert record["unit"] == "us/task"
    assert record["spread"]["repeats"] == 2
    assert record["tasks"] == int(case.rpartition("_")[2])
    assert record["counts"]["tasks"] >= record["tasks"] + 16
    assert record["counts"]["graphs_launched"] == 1
    assert record["counts"]["copies"] == 16
    assert 0 < record["close_ms"] <= record["close_and_run_ms"]


@pytest.mark.parametrize("case", LAUNCHED)
def test_the_launched_graph_has_a_node_for_each_task(records, case):
    record = records[case]
    assert record["unit"] == "us"
    assert record["spread"]["repeats"] == 5
    assert record["nodes"] == 100
    assert record["edges"] >= 2 * (100 - 8)


@pytest.mark.parametrize("case", REPLAYED)
def test_a_task_graph_is_replayed(records, case):
    record = records[case]
    assert record["tasks"] == 100
    assert record["spread"]["repeats"] == (2 if case == "replay_record" else 2 * 5)


def test_raw_calls_and_the_peer_need_a_gpu(records):
    for case in RECORDED + LAUNCHED + REPLAYED:
        assert records[case]["baselines"] == []
        missing = records[case]["baselines_not_measured"]
        assert len(missing) == (2 if case in REPLAYED else 1)
        assert all("simulated" in each["reason"] for each in missing)


def test_loops_are_measured_against_the_host(records):
    for case, baselines in {"loop_while": 2, "loop_repeat": 1}.items():
        if case not in records:
            pytest.skip("this machine has no loops in graphs")
        record = records[case]
        assert record["unit"] == "us/round"
        assert record["rounds"] == 20
        assert len(record["baselines"]) == baselines
        assert list(record["speed_against"]) == [each["name"] for each in record["baselines"]]
        mine, *others = record["loops"].values()
        assert mine == {"on_device": True, "host_reason": None}
        assert all(not each["on_device"] and "2 places" in each["host_reason"] for each in others)


def test_what_a_machine_lacks_is_named(tmp_path):
    done = records_of(tmp_path, "--machine", "sim:tiny", "--only", "record", "--repeats", 1)
    assert [record["case"] for record in done] == RECORDED[:4]
    missing = {each["case"]: each["reason"] for each in done[0]["cases_not_measured"]}
    assert list(missing) == RECORDED[4:]
    assert all(missing.values())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--machine", "sim:abacus"], "abacus"),
        (["--only", "loops"], "--only: invalid choice"),
        (["--launches", "0"], "--launches: a count of at least 1 is needed: got 0"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(arguments, text):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert text in done.stderr


@pytest.mark.gpu
def test_a_gpu_is_measured_beside_the_raw_calls(tmp_path, cuda):
    pytest.importorskip("cuda.core")
    done = records_of(tmp_path, "--machine", "cuda")
    for record in done:
        assert record["machine"]["kind"] == "real"
        assert record["work"] == "one cuda_kernel.launch"
        case = record["case"]
        if case not in LOOPS:
            assert record["baselines"][0]["name"].startswith("raw driver, C++")
        if case in LAUNCHED:
            assert (record["raw_nodes"], record["raw_edges"]) == (record["nodes"], record["edges"])


# ---- What is measured ----


@pytest.fixture
def here(monkeypatch):
    """Import the workload in this process, on a simulated machine."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    with stf.use_machine("sim:h200x1"):
        yield pytest.importorskip("benchmarks.graphs.programs")


@pytest.mark.parametrize("flows", [(), (1,), (8,), (13,), (16, 100), (100, 100, 3)])
def test_what_is_expected_is_what_the_tasks_do_one_by_one(here, flows):
    values = here.first_values()
    for tasks in flows:
        for _, target, source in here.steps(tasks):
            values[target] = 3 * values[target] + values[source]
    np.testing.assert_array_equal(here.expected(*flows), values)


def test_a_level_is_independent_and_has_a_lane_for_each_place(here):
    level = here.steps(3 * here.LANES)[here.LANES : 2 * here.LANES]
    assert [lane for lane, _, _ in level] == list(range(8))
    targets, sources = ({step[i] for step in level} for i in (1, 2))
    assert not targets & sources
    assert len(targets) == len(sources) == 8


@pytest.mark.parametrize("record", ["record_context", "record_scope"])
def test_values_that_differ_are_no_measurement(here, monkeypatch, record):
    from benchmarks.graphs import ours

    flow = here.Flow([stf.exec_place.device(0)], None)
    assert getattr(ours, record)(flow, 30).us_per_task > 0
    monkeypatch.setattr(ours, "expected", lambda *flows: here.first_values())
    with pytest.raises(here.WrongResult, match="stf_places: 16 of 16 arrays differ from NumPy's, array 0"):
        getattr(ours, record)(flow, 30)


def test_a_missing_task_is_no_measurement(here, monkeypatch):
    from benchmarks.graphs import ours

    flow = here.Flow([stf.exec_place.device(0)], None)
    plan = here.Flow.plan
    monkeypatch.setattr(here.Flow, "plan", lambda self, data, tasks: plan(self, data, tasks)[1:])
    with pytest.raises(here.WrongResult, match="46 tasks in one graph were asked for"):
        ours.record_context(flow, 30)


def test_a_launch_too_many_is_no_measurement(here):
    from benchmarks.graphs import ours

    launches = ours.Launches(here.Flow([stf.exec_place.device(0)], None), 30, ours.synchronize)
    assert launches.launch() > 0
    launches._graph.launch()
    with pytest.raises(here.WrongResult, match="differ"):
        launches.close()


@pytest.mark.parametrize("name", ["LoopOnHost", "HostLoop", "RepeatedLaunches"])
def test_a_round_too_many_is_no_measurement(here, monkeypatch, name):
    from benchmarks.graphs import loops, ours

    def count_two(rounds, keep):
        rounds[0] = keep * (rounds[0] + 2)

    loop = getattr(loops, name)(None, 7, ours.synchronize)
    assert loop.measure() > 0
    loop.close()
    monkeypatch.setattr(loops, "count", count_two)
    loop = getattr(loops, name)(None, 7, ours.synchronize)
    with pytest.raises(here.WrongResult, match=f"{name}: (8|14) rounds, and 7 were asked for"):
        loop.measure()
    loop.close()
