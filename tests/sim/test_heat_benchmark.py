"""The benchmarks of arrays over grids: the heat equation and composite places. Only simulated times are looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import stf_places as stf

ROOT = Path(__file__).parents[2]
DEVICES = ["strong_1_device", "strong_2_devices", "weak_1_device", "weak_2_devices"]
PARTITIONS = [
    f"{scaling}_{count}_partition{'s' * (count > 1)}"
    for scaling in ("strong", "weak")
    for count in (1, 2, 4, 8)
]
SMALL = ["--size", "96", "--partition-size", "96", "--steps", "3", "--repeats", "2"]


def run(*arguments):
    # The environment may choose another machine; these tests choose their own.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STF_PLACES_")}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def records_of(folder, *arguments):
    path = folder / "records.json"
    done = run(*arguments, "--json", path)
    assert done.returncode == 0, done.stderr
    return {record["case"]: record for record in json.loads(path.read_text())}


@pytest.fixture(scope="module")
def heat(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heat")
    arguments = ["--machine", "sim:h200x2", *SMALL, "--plot", folder / "heat.png"]
    return records_of(folder, "heat", *arguments), folder / "heat.png"


def test_each_number_of_places_is_a_case_of_both_scalings(heat):
    records, _ = heat
    assert list(records) == DEVICES + PARTITIONS
    for name, record in records.items():
        places = int(name.split("_")[1])
        assert record["unit"] == "ms/step"
        assert record["value"] > 0
        assert record["spread"]["repeats"] == 2
        assert record["machine"]["kind"] == "simulated"
        assert record["places"] == places
        assert record["sms_of_a_place"] == (16 if "partition" in name else 132)
        most = 2 if "device" in name else 8
        assert record["rows"] == (96 if name.startswith("strong") else 96 // most * places)
        assert record["columns"] == 96


def test_a_simulated_machine_has_no_baselines_and_says_why(heat):
    for name, record in heat[0].items():
        assert record["baselines"] == []
        names = [each["name"] for each in record["baselines_not_measured"]]
        assert len(names) == (3 if "device" in name else 1)
        assert all("simulated" in each["reason"] for each in record["baselines_not_measured"])
        assert not {"gb_s", "speed_up"} & record.keys()


def test_speed_ups_are_those_of_the_simulated_clock(heat):
    records, _ = heat
    one = records["strong_1_partition"]["simulated_ms_per_step"]
    for name, record in records.items():
        assert 0 < record["simulated_percent_of_copy_bandwidth"] < 100
        if name.startswith("strong") and "partition" in name:
            assert record["simulated_speed_up"] == pytest.approx(one / record["simulated_ms_per_step"])
    assert records["weak_1_device"]["simulated_speed_up"] == 1


@pytest.mark.parametrize(
    ("only", "size", "least"),
    [
        ("partitions", 2048, {"strong_4_partitions": 3, "weak_4_partitions": 3.5, "weak_8_partitions": 4}),
        ("devices", 4096, {"strong_2_devices": 1.6, "weak_2_devices": 1.8}),
    ],
)
def test_larger_arrays_scale_on_the_simulated_clock(tmp_path, only, size, least):
    sizes = ["--size", size, "--partition-size", size, "--steps", "4", "--repeats", "1"]
    records = records_of(tmp_path, "heat", "--machine", "sim:h200x2", "--only", only, *sizes)
    assert {only[:-1] in name for name in records} == {True}
    for name, speed_up in least.items():
        assert records[name]["simulated_speed_up"] > speed_up


def test_the_plot_is_a_picture(heat):
    picture = matplotlib.image.imread(heat[1])
    assert picture.shape[0] > 300
    assert picture.shape[1] > 600


def test_what_a_machine_lacks_is_named(tmp_path):
    records = records_of(tmp_path, "heat", "--machine", "sim:tiny", *SMALL)
    missing = next(iter(records.values()))["cases_not_measured"]
    assert all(each["reason"] for each in missing)
    named = {each["case"] for each in missing}
    assert not named & records.keys()
    assert {"strong_2_partitions", "weak_8_partitions"} <= named


@pytest.mark.gpu
def test_a_gpu_is_measured_beside_its_baselines(tmp_path, cuda):
    pytest.importorskip("cuda.core")
    records = records_of(tmp_path, "heat", "--machine", "cuda", *SMALL, "--plot", tmp_path / "heat.svg")
    assert set(DEVICES if cuda.device_count() > 1 else DEVICES[::2]) <= records.keys()
    for name, record in records.items():
        assert record["machine"]["kind"] == "real"
        assert record["speed_up"] > 0
        assert 0 < record["percent_of_copy_bandwidth"] < 200
        measured = [each["name"].partition(":")[0] for each in record["baselines"]]
        expected = ["plain Warp, one whole device, same kernel", "cuda.core by hand"]
        assert measured[:2] == expected[: 2 if "device" in name else 1]
        assert list(record["speed_against"]) == [each["name"] for each in record["baselines"]]
    assert (tmp_path / "heat.svg").stat().st_size > 1000


@pytest.fixture
def here(monkeypatch):
    """Import the workload in this process, on a simulated machine."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    with stf.use_machine("sim:h200x2"):
        yield pytest.importorskip("benchmarks.heat.programs")


def test_a_wrong_kernel_is_no_measurement(here, monkeypatch):
    from benchmarks.heat import ours, warp_plain

    case = here.Case("strong", "devices", 2, 64, 64)
    plain = warp_plain.Plain(case, 3)
    plain.measure_ms()
    grid = ours.rows_over([stf.exec_place.device(i) for i in range(2)])
    assert ours.Ours(case, grid, 3, plain).measure_ms() > 0
    with pytest.raises(here.WrongResult, match="stf_places: a cell differs by"):
        ours.Ours(case, grid, 2, plain).measure_ms()
    monkeypatch.setattr(warp_plain, "WARM_UP", here.WARM_UP + 1)
    with pytest.raises(here.WrongResult, match="plain Warp"):
        plain.measure_ms()


@pytest.mark.parametrize("shape", [(7, 5), (64, 96), (200, 30)])
def test_patches_are_cells_of_the_whole_result(here, shape):
    case = here.Case("strong", "devices", 3, *shape)
    u = here.first_values(slice(0, shape[0]), slice(0, shape[1]))
    for _ in range(9):
        padded = np.pad(u, 1, mode="edge")
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        u = u + np.float32(here.RATE) * (around - np.float32(4) * u)
    found = here.patches(case, 9)
    assert len(found) >= 1
    for patch in found:
        np.testing.assert_array_equal(patch.values, u[patch.rows, patch.columns])


# ---- Composite places ----


COPIES = {
    "host_to_composite": ["host to device 0", "host to device 1"],
    "composite_to_host": ["device 0 to host", "device 1 to host"],
    "composite_to_device": ["device 1 to device 0"],
}


@pytest.fixture(scope="module")
def composite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("composite")
    return records_of(folder, "composite", "--machine", "sim:h200x2", "--repeats", "2")


def test_the_first_write_of_a_composite_array_costs_what_the_driver_costs(composite):
    assert list(composite) == ["first", "again", *COPIES]
    for name in ("first", "again"):
        record = composite[name]
        assert record["unit"] == "ms"
        assert record["value"] > 0
        assert record["nbytes"] == 4 << 30
        assert record["pieces"] == 2
        assert [each["spread"]["repeats"] for each in record["baselines"]] == [2]
        assert record["raw_driver_ms"].keys() == {"reserve", "map", "grant"}
    # facts/h200.md: 17.5 ms to set access on 4 GiB in two pieces
    assert composite["first"]["simulated_ms"] == pytest.approx(18.0, rel=0.15)
    assert composite["again"]["simulated_ms"] < 0.1


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_a_composite_array_are_as_fast_as_the_slower_of_their_links(composite, name):
    record = composite[name]
    assert record["unit"] == "GB/s"
    assert record["value"] > 0
    assert (record["nbytes"], record["pieces"]) == (64 << 20, 2)
    assert [each["name"].partition(", ")[2] for each in record["baselines"]] == COPIES[name]
    assert all(each["value"] > 0 and each["spread"]["repeats"] == 2 for each in record["baselines"])
    assert record["ratio_to_slower_link"] > 0
    assert record["simulated_gb_s"] >= 0.99 * record["simulated_slower_link_gb_s"] > 0


def test_copies_over_eight_devices_are_measured_alone(tmp_path):
    options = ["--only", "copies", "--devices", "8", "--copy-mib", "32", "--repeats", "1"]
    records = records_of(tmp_path, "composite", "--machine", "sim:h200x8", *options)
    assert list(records) == list(COPIES)
    assert [len(record["baselines"]) for record in records.values()] == [8, 8, 7]
    assert {record["pieces"] for record in records.values()} == {8}


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_composite_arrays_are_measured_on_two_gpus(tmp_path, cuda):
    if cuda.device_count() < 2 or not (cuda.link(0, 1)["peer"] and cuda.link(1, 0)["peer"]):
        pytest.skip("needs two devices that reach each other's memory")
    sizes = ["--mib", "64", "--copy-mib", "64", "--repeats", "2"]
    records = records_of(tmp_path, "composite", "--machine", "cuda", *sizes)
    assert list(records) == ["first", "again", *COPIES]
    for record in records.values():
        assert record["machine"]["kind"] == "real"
        assert record["value"] > 0
        assert not [name for name in record if name.startswith("simulated")]


@pytest.fixture
def copies(here):
    """Return the module that copies, and something to measure on two simulated devices."""
    from benchmarks.composite import copies as module

    ours = module.Copies(8 << 20, 2)
    yield module, ours
    ours.close()


def test_copies_bring_what_was_sent(copies):
    module, ours = copies
    for case in module.CASES * 2:
        rates = ours.measure(case)
        assert rates.wall > 0
        assert rates.simulated > 0
    ours.check()


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("lost", ["target", "all"])
def test_a_copy_that_brings_nothing_is_no_measurement(copies, monkeypatch, name, lost):
    module, ours = copies
    case = next(case for case in module.CASES if case.name == name)
    ours.measure(case)
    send = ours._send

    def stay(place):
        if lost == "target" and place != case.target:
            send(place)

    monkeypatch.setattr(ours, "_send", stay)
    with pytest.raises(module.WrongResult, match=name):
        ours.measure(case)


def test_a_word_that_changes_on_its_way_is_no_measurement(copies):
    module, ours = copies
    ours.measure(module.CASES[0])
    ours._words[12345] += 1
    with pytest.raises(module.WrongResult, match="words from 0 on"):
        ours.check()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["heat", "--machine", "sim:abacus"], "abacus"),
        (["heat", "--machine", "sim:tiny", "--only", "partitions", "--sms", "64"], "no case can be measured"),
        (["heat", "--size", "0"], "--size: a count of at least 1 is needed: got 0"),
        (["heat", "--machine", "sim:h200x1", "--plot", "no_such_folder/heat.png"], "--plot: no such folder"),
        (["composite", "--machine", "sim:h200x1"], "--devices 2: an array is spread over 2 or more"),
        (["composite", "--machine", "sim:h200x2", "--devices", "1"], "--devices 1: an array is spread over"),
        (["composite", "--machine", "sim:h200x2", "--mib", "2"], "--mib 2: 2 devices have two pages"),
        (
            ["composite", "--machine", "sim:h200x2", "--copy-mib", "2"],
            "--copy-mib 2: 2 devices have two pages",
        ),
        (["composite", "--machine", "sim:nopeer2"], "device 0 cannot reach"),
        (["composite", "--machine", "sim:tiny"], "--mib 4096: no memory"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(arguments, text):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Warp CUDA warning")]
    assert len(lines) == 1
    assert text in lines[0]
