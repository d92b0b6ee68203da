"""Machine files: what ships is sound, and what is wrong with a file is said."""

import copy
import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from stf_places._native import drivers, pages, raw_graphs
from stf_places.machines import specs

TINY = json.loads((Path(specs.__file__).parent / "data" / "tiny.json").read_text())


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def changed(*where, to):
    """Return the tiny machine's file with one value replaced; a value of `None` removes the field."""
    content = copy.deepcopy(TINY)
    inner = content
    for key in where[:-1]:
        inner = inner[key]
    if to is None:
        del inner[where[-1]]
    else:
        inner[where[-1]] = to
    return content


def test_names_are_sorted():
    assert specs.names() == ("h200x1", "h200x2", "h200x4", "h200x8", "nopeer2", "tiny")


@pytest.mark.parametrize("name", specs.names())
def test_what_ships_can_be_opened(name):
    spec = specs.load(name)
    assert spec.name == name
    assert spec.estimated
    driver = drivers.sim_driver(spec.to_dict())
    assert driver.machine == name
    assert driver.device_count() == len(spec.devices)


@pytest.mark.parametrize(("name", "count"), [("h200x1", 1), ("h200x2", 2), ("h200x4", 4), ("h200x8", 8)])
def test_h200_machines_hold_what_was_measured(name, count):
    spec = specs.load(name)
    assert len(spec.devices) == count
    assert len(set(spec.devices)) == 1
    device = spec.devices[0]
    assert (device.sm_count, device.min_partition, device.alignment) == (132, 8, 8)
    assert (device.aligned_sms, device.resplit_loss) == (120, 2)
    assert (device.memory, device.bandwidth) == (143771 << 20, 2142)
    assert {(link.peer, link.bandwidth) for link in spec.links} <= {(True, 397), (False, 55)}
    assert len(spec.links) == 2 * count + count * (count - 1)
    assert (spec.costs.event_record, spec.costs.event_wait, spec.costs.kernel_launch) == (0.26, 0.21, 3.9)
    assert 1000 <= spec.costs.green_context <= 2400
    assert device.page == 2 << 20
    # 1 GiB in 512 pieces: mapped in 7.2 ms, granted in 29.8 ms; 4 GiB in two pieces: granted in 17.5 ms.
    costs = spec.costs
    assert 512 * costs.page_map == pytest.approx(7200, rel=0.02)
    assert 512 * (costs.page_access + costs.piece_access) == pytest.approx(29800, rel=0.02)
    assert 2048 * costs.page_access + 2 * costs.piece_access == pytest.approx(17500, rel=0.02)
    # Recorded in 0.84 to 1.2 us a node, instantiated in 1.9 to 8 us. A straight chain of 64,000 nodes is submitted
    # in 767 us, a mesh with two dependencies a node in 0.85 to 1.03 us a node.
    assert 0.84 <= costs.graph_node <= 1.2 and 1.9 <= costs.graph_instantiate_node <= 8
    assert costs.graph_launch + 64000 * costs.graph_launch_node == pytest.approx(767, rel=0.02)
    assert 0.85 <= costs.graph_launch_node + costs.graph_launch_edge <= 1.03
    assert not {"costs.event_record", "costs.green_context", "devices.aligned_sms"} & set(spec.estimated)


def test_everything_about_tiny_is_estimated():
    fields = {f"{part}.{name}" for part in ("devices", "links") for name in TINY[part][0]} | {
        f"costs.{name}" for name in TINY["costs"]
    }
    assert fields - set(specs.load("tiny").estimated) == {"devices.name", "links.from", "links.to"}


def test_files_of_before_there_were_pages_and_graphs_still_load(tmp_path):
    content = copy.deepcopy(TINY)
    fields = [name for name in content["costs"] if name.startswith(("page", "piece", "graph"))]
    assert len(fields) == 9
    for device in content["devices"]:
        del device["page"]
    for name in fields:
        del content["costs"][name]
    content["estimated"] = [
        name
        for name in content["estimated"]
        if name != "devices.page" and name[len("costs.") :] not in fields
    ]
    spec = specs.load(write(tmp_path / "old.json", content))
    assert [device.page for device in spec.devices] == [2 << 20] * 2
    assert [getattr(spec.costs, name) for name in fields] == [0] * 9
    assert pages.page_granularity(drivers.sim_driver(spec.to_dict()), 0) == 2 << 20


def test_a_description_without_a_page_has_pages_of_2_mib():
    spec = specs.load("tiny").to_dict()
    assert pages.page_granularity(drivers.sim_driver(spec), 0) == 4096
    del spec["devices"][0]["page"]
    assert pages.page_granularity(drivers.sim_driver(spec), 0) == 2 << 20


def test_costs_of_graphs_reach_the_machine():
    driver = drivers.sim_driver(specs.load("tiny").to_dict())
    stream = driver.create_stream(driver.primary_context(0))
    graph = raw_graphs.create_graph(driver)
    raw_graphs.begin_capture(driver, graph, stream)
    times = [driver.now_us()]
    for node in ([], []):
        raw_graphs.set_capture_dependencies(driver, stream, node)
        driver.host_work(stream, cost_us=1)
    first, second = raw_graphs.graph_nodes(driver, graph)[0]
    raw_graphs.set_capture_dependencies(driver, stream, [first, second])
    driver.host_work(stream, cost_us=1)
    times.append(driver.now_us())
    raw_graphs.end_capture(driver, stream, [])
    made = raw_graphs.instantiate_graph(driver, graph)
    times.append(driver.now_us())
    raw_graphs.launch_graph(driver, made, stream)
    times.append(driver.now_us())
    # Three nodes; one edge of the last one is off the straight line.
    expected = (3 * 1, 3 * 5, 3 + 3 * 0.012 + 0.9)
    assert np.diff(times) == pytest.approx(expected)
    driver.synchronize_stream(stream)
    raw_graphs.destroy_graph_exec(driver, made)
    raw_graphs.destroy_graph(driver, graph)


def test_devices_without_peers():
    assert not any(link.peer for link in specs.load("nopeer2").links)


def test_specs_are_values():
    spec = specs.load("tiny")
    assert spec == specs.load("tiny")
    assert hash(spec) == hash(specs.load("tiny"))
    assert spec != specs.load("h200x2")
    with pytest.raises(FrozenInstanceError):
        spec.name = "other"


def test_the_driver_takes_the_file_without_version_and_estimates():
    expected = {name: value for name, value in TINY.items() if name not in {"version", "estimated"}}
    assert specs.load("tiny").to_dict() == expected


@pytest.mark.parametrize("as_path", [False, True])
def test_a_file_of_ones_own(tmp_path, as_path):
    path = write(tmp_path / "mine.json", changed("name", to="mine"))
    assert specs.load(Path(path) if as_path else path).name == "mine"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("h200x3", r"a machine is one of h200x1, .*tiny, or a path that ends in \.json: got 'h200x3'"),
        ("", r"a machine is one of"),
        ("./h200x2", r"the path of a machine file ends in \.json: got './h200x2'"),
        (Path("h200x2"), r"the path of a machine file ends in \.json: got 'h200x2'"),
        ("absent.json", r"machine file 'absent\.json' cannot be read: .*No such file"),
    ],
)
def test_there_is_no_such_machine(given, text):
    with pytest.raises(ValueError, match=text):
        specs.load(given)


@pytest.mark.parametrize("given", [None, 2, b"tiny"])
def test_a_machine_is_given_by_name_or_path(given):
    with pytest.raises(TypeError, match="a machine is given by name or path, such as 'h200x2': got "):
        specs.load(given)


LINK = TINY["links"][0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is no JSON text"),
        ("[" * 100000, "is no JSON text"),
        ('{"version": NaN}', "numbers are finite: got NaN"),
        ('{"version": 1, "version": 1}', "a field stands once in an object: got 'version' again"),
        ([1], r"is an object with the fields version, name, .*: got \[1\]"),
        (changed("version", to=2), "version 1 is supported: got 2"),
        (changed("version", to=None), "needs all of the fields version, .*: version missing"),
        (changed("version", to=True), "version is an integer from 1 on: got True"),
        (changed("colour", to="red"), "has the fields version, .*: got 'colour'"),
        (changed("name", to=""), "name is a string that is not empty: got ''"),
        (changed("driver_version", to=13.0), r"driver_version is an integer from 12000 on: got 13\.0"),
        (changed("devices", to=[]), r"devices is a list that is not empty: got \[\]"),
        (changed("devices", 1, to=7), "device 1 is an object with the fields name, .*: got 7"),
        (changed("devices", 1, "memory", to=None), "device 1 needs all of the fields .*: memory missing"),
        (changed("devices", 1, "sms", to=3), "device 1 has the fields name, .*: got 'sms'"),
        (changed("devices", 0, "sm_count", to=0), "device 0: sm_count is an integer from 1 on: got 0"),
        (changed("devices", 0, "min_partition", to=17), "min_partition is at most sm_count 16: got 17"),
        (
            changed("devices", 0, "aligned_sms", to=18),
            "device 0: aligned_sms is a multiple of alignment 2, at most sm_count 16: got 18",
        ),
        (changed("devices", 0, "aligned_sms", to=7), "aligned_sms is a multiple of alignment 2, .*: got 7"),
        (changed("devices", 0, "resplit_loss", to=3), "resplit_loss is at most alignment 2: got 3"),
        (changed("devices", 0, "resplit_loss", to=-1), "resplit_loss is an integer from 0 on: got -1"),
        (changed("devices", 0, "page", to=2048), "device 0: page is an integer from 4096 on: got 2048"),
        (
            changed("devices", 1, "page", to=12288),
            "device 1: page is a power of two, such as 4096 or 2097152: got 12288",
        ),
        (changed("costs", "page_map", to=-1), "costs: page_map is a non-negative number: got -1"),
        (changed("costs", "graph_node", to="1"), "costs: graph_node is a non-negative number: got '1'"),
        (changed("devices", 0, "bandwidth", to=0), "bandwidth is a positive number: got 0"),
        (changed("devices", 0, "bandwidth", to="1"), "bandwidth is a positive number: got '1'"),
        (changed("costs", "query", to=-1), "costs: query is a non-negative number: got -1"),
        (changed("costs", "query", to=False), "costs: query is a non-negative number: got False"),
        ('{"version": 1, "costs": 1e999}', "needs all of the fields"),
        (changed("costs", to=1), "costs is an object with the fields event_record, .*: got 1"),
        (changed("links", 0, "peer", to=1), "link 0: peer is true or false: got 1"),
        (changed("links", 0, "to", to=2), r"link 0 joins two different ends out of -1 .* to 1: got -1 to 2"),
        (changed("links", 0, "to", to=-1), "link 0 joins two different ends .*: got -1 to -1"),
        (changed("links", 0, "peer", to=True), "peers are two devices: got -1 to 0 with peer true"),
        (
            changed("links", to=[LINK, LINK]),
            "link 1: one link leads from an end to another: got -1 to 0 again",
        ),
        (changed("links", to=[LINK]), r"links from and to the host \(-1\): 0 to -1 missing"),
        (changed("estimated", to="all"), "estimated is a list of strings: got 'all'"),
        (changed("estimated", to=["costs.lunch"]), "estimated names fields, .*: got 'costs.lunch'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, content, text):
    path = write(tmp_path / "wrong.json", content)
    with pytest.raises(ValueError, match=text) as caught:
        specs.load(path)
    assert str(caught.value).startswith(f"machine file {path!r}")


def test_an_infinite_number_is_refused(tmp_path):
    content = json.dumps(TINY).replace('"query": 0.5', '"query": 1e999')
    with pytest.raises(ValueError, match="costs: query is a non-negative number: got inf"):
        specs.load(write(tmp_path / "wrong.json", content))


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "wrong.json"
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="cannot be read"):
        specs.load(path)
