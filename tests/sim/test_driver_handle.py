"""The Python face of simulated machines: descriptions, host work, faults, the clock, the timeline."""

import numpy as np
import pytest

from stf_places import errors
from stf_places._native import drivers

SPEC = {
    "name": "one",
    "driver_version": 12040,
    "devices": [{"sm_count": 8, "memory": 1 << 20, "bandwidth": 100.0}],
    "links": [{"from": -1, "to": 0, "bandwidth": 10.0}, {"from": 0, "to": -1, "bandwidth": 10.0}],
}


@pytest.fixture
def machine():
    return drivers.sim_driver(SPEC)


@pytest.fixture
def stream(machine):
    return machine.create_stream(machine.primary_context(0))


def test_a_machine_is_what_its_description_says(machine):
    assert (machine.name, machine.machine, machine.spec_name) == ("sim", "one", "one")
    assert machine.version() == 12040 and machine.device_count() == 1
    found = machine.device_properties(0)
    assert found["sm_count"] == 8 and found["total_memory"] == 1 << 20 and found["memory_bandwidth"] == 100.0
    assert machine.link(-1, 0)["bandwidth"] == 10.0
    assert not drivers.sim_driver(SPEC, execute=False).executes


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"colour": "red"}, r"a machine has the fields name, .*got 'colour'"),
        ({"costs": {"lunch": 1.0}}, r"call costs has the fields event_record, .*got 'lunch'"),
        ({"devices": [{**SPEC["devices"][0], "sms": 8}]}, r"a device has the fields name, .*got 'sms'"),
        ({"links": [{"from": -1, "to": 0, "speed": 1}]}, r"a link has the fields from, .*got 'speed'"),
    ],
)
def test_fields_that_do_not_exist_are_named(change, text):
    with pytest.raises(ValueError, match=text):
        drivers.sim_driver({**SPEC, **change})


def test_a_machine_without_devices_is_refused():
    with pytest.raises(errors.DriverError, match="at least one device"):
        drivers.sim_driver({**SPEC, "devices": [], "links": []})


def test_host_work_stands_for_a_kernel(machine, stream):
    machine.record_timeline()
    data = np.zeros(4)
    seen = []
    machine.host_work(stream, lambda: data.__setitem__(slice(None), 2.0), symbol="fill", cost_us=50.0, sms=4)
    machine.host_work(stream, lambda: seen.append(data.sum()), symbol="sum", cost_us=10.0)
    machine.host_work(stream, None, symbol="nothing", cost_us=5.0)
    start = machine.now_us()
    machine.synchronize_stream(stream)
    assert seen == [8.0]
    assert machine.now_us() - start >= 65.0
    entries = machine.timeline()
    assert [entry["symbol"] for entry in entries] == ["fill", "sum", "nothing"]
    assert entries[0]["sms"] == 4 and entries[0]["kind"] == "kernel" and entries[0]["device"] == 0
    assert entries[0]["end_us"] - entries[0]["start_us"] == pytest.approx(50.0)
    assert entries[0]["end_us"] <= entries[1]["start_us"]


def test_the_host_can_take_time(machine):
    before = machine.now_us()
    machine.advance_us(12.5)
    assert machine.now_us() == pytest.approx(before + 12.5)


def test_counts(machine, stream):
    before = machine.live_allocations()
    block = machine.allocate_device(0, 1000, stream)
    assert machine.used_memory(0) >= 1000 and machine.live_allocations() == before + 1
    machine.fill(block, 0, b"\1", 1000, stream)
    submitted = machine.operations()
    machine.free_device(0, block, stream)
    machine.drain()
    assert submitted > 0 and machine.live_allocations() == before


def test_a_second_free_names_the_block(machine, stream):
    block = machine.allocate_device(0, 1000, stream)
    machine.free_device(0, block, stream)
    with pytest.raises(errors.DriverError, match=r"double free of allocation .* 1000 bytes on device 0"):
        machine.free_device(0, block, stream)


def test_faults_come_when_ordered(machine, stream):
    machine.order_fault("allocation", 2, "out_of_memory")
    machine.free_device(0, machine.allocate_device(0, 16, stream), stream)
    with pytest.raises(errors.OutOfMemory):
        machine.allocate_device(0, 16, stream)
    machine.free_device(0, machine.allocate_device(0, 16, stream), stream)


def test_faults_that_do_not_exist_are_named(machine):
    with pytest.raises(ValueError, match=r"kind is one of allocation, copy, .*got 'lunch'"):
        machine.order_fault("lunch", 1, "failed")
    with pytest.raises(ValueError, match=r"code is one of out_of_memory, .*got 'bad'"):
        machine.order_fault("copy", 1, "bad")


def test_unordered_work_is_reported(machine, stream):
    other = machine.create_stream(machine.primary_context(0))
    block = machine.allocate_device(0, 64, stream)
    machine.synchronize_stream(stream)
    for where, symbol in ((stream, "one"), (other, "two")):
        machine.host_work(where, None, symbol=symbol, cost_us=1.0, accesses=[(block, 64, True)])
    with pytest.raises(errors.DataRace) as caught:
        machine.drain()
        machine.synchronize_stream(stream)
        machine.synchronize_stream(other)
    assert "one" in str(caught.value) and "two" in str(caught.value)
    assert machine.conflicts()


def test_handles_are_made_by_functions():
    with pytest.raises(TypeError, match=r"cuda_driver\(\) and sim_driver\(\)"):
        drivers.DriverHandle()
