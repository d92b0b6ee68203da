"""Busy times and Perfetto files of traces."""

import json
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stf_places.viz import busy_us, save_perfetto

Record = namedtuple("Record", "kind symbol place device stream start_us end_us nbytes")


def task(start, end, place="device(0)", device=0, stream=0):
    return Record("task", "t", place, device, stream, start, end, 0)


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=12
)


@given(spans)
def test_busy_time_is_the_length_of_the_union(intervals):
    covered = {unit for start, end in intervals for unit in range(start, end)}
    assert busy_us([task(*interval) for interval in intervals], "device(0)") == len(covered)


def test_busy_time_is_that_of_the_place_and_kind_asked_for():
    copy = Record("copy", "x", "host() -> device(0)", 0, 0, 100, 150, 8)
    records = [task(0, 5), task(3, 9, "device(1)", 1), copy]
    assert busy_us(records, "device(0)") == 5
    assert busy_us(records, "device(1)") == 6
    assert busy_us(records) == 9
    assert busy_us(records, "host() -> device(0)", kind="copy") == 50
    assert busy_us([], "device(0)") == 0


@pytest.mark.parametrize(("simulated", "word"), [(True, "simulated"), (False, "measured")])
def test_perfetto_file_names_devices_streams_and_the_nature_of_its_times(tmp_path, simulated, word):
    records = [task(1.5, 4.0, stream=2), Record("copy", "x", "device(0) -> host()", -1, 5, 4.0, 6.0, 64)]
    path = tmp_path / "timeline.json"
    save_perfetto(records, path, simulated=simulated)
    document = json.loads(path.read_text())
    assert document["metadata"] == {"version": 1, "producer": "stf_places", "times": word}
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M"
    }
    assert names == {
        ("process_name", 1, 0): f"device 0 ({word})",
        ("process_name", 0, 0): f"host ({word})",
        ("thread_name", 1, 2): "stream 2",
        ("thread_name", 0, 5): "stream 5",
    }
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert [
        (e["name"], e["cat"], e["pid"], e["tid"], e["ts"], e["dur"], e["args"]["nbytes"]) for e in events
    ] == [
        ("t", "task", 1, 2, 1.5, 2.5, 0),
        ("x", "copy", 0, 5, 4.0, 2.0, 64),
    ]
    assert events[1]["args"]["place"] == "device(0) -> host()"


def test_perfetto_file_is_refused_where_it_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        save_perfetto([], tmp_path / "nowhere" / "timeline.json", simulated=True)
