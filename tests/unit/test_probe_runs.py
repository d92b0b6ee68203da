"""How the probe kernel is launched and read, over a stand-in for a driver whose kernels run here."""

import ctypes

import pytest

from stf_places._native import runtime
from stf_places.places.probe_runs import ProbeLoad, ProbeSite, kernel_sightings

KERNEL = 4711
LOAD = ProbeLoad(blocks_per_sm=4, duration_us=50.0)


class StandIn:
    """Run the probe on the CPU: block i of a launch on a stream runs on one of the stream's SMs in turn.

    Parameters
    ----------
    sm_ids : dict
        A list for each launch on a stream, the last for all further ones: the SMs that its blocks find.
    fails : str
        The call that fails, or none.
    after : int
        How many calls of that name succeed before.
    """

    def __init__(self, sm_ids, fails="", after=0):
        self.sm_ids = {stream: list(launches) for stream, launches in sm_ids.items()}
        self.fails, self.left = fails, after
        self.blocks, self.calls, self.now = {}, [], 1_700_000_000_000_000_000
        self.running = set()

    def note(self, name, stream):
        self.calls.append((name, stream))
        if name == self.fails:
            self.left -= 1
            if self.left < 0:
                self.fails = ""
                raise RuntimeError(f"{name} failed")

    def allocate_device(self, device, nbytes, stream):
        self.note("allocate", stream)
        block = ctypes.create_string_buffer(b"\xff" * nbytes, nbytes)
        self.blocks[ctypes.addressof(block)] = (block, device, stream)
        return ctypes.addressof(block)

    def free_device(self, device, address, stream):
        assert self.blocks.pop(address)[1:] == (device, stream)
        assert stream not in self.running, "the kernel may go while it runs"
        self.note("free", stream)

    def launch(self, function, stream, *, grid, block, parameters, symbol):
        self.note("launch", stream)
        assert (function, block, symbol) == (KERNEL, (1024, 1, 1), "verify_places")
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
        address, spin = pointers[0][0], pointers[1][0]
        assert spin == 50_000
        driver = runtime.current().driver
        assert driver.current_context() == driver.primary_context(self.blocks[address][1])
        assert grid[1:] == (1, 1)
        assert self.blocks[address][0]._length_ == grid[0] * 24
        launches = self.sm_ids[stream]
        found = launches.pop(0) if len(launches) > 1 else launches[0]
        records = (ctypes.c_uint64 * (3 * grid[0])).from_address(address)
        for i in range(grid[0]):
            records[3 * i : 3 * i + 3] = [found[i % len(found)], self.now + i, self.now + i + spin]
        self.now += 1000
        self.running.add(stream)

    def synchronize_stream(self, stream):
        self.running.discard(stream)
        self.note("synchronize", stream)

    def copy(self, to, to_at, from_, from_at, nbytes, stream):
        assert (to_at, from_at) == ("host", self.blocks[from_][1])
        assert stream not in self.running
        self.note("copy", stream)
        ctypes.memmove(to, from_, nbytes)


def run(driver, *counts):
    sites = [ProbeSite(0, stream, count) for stream, count in enumerate(counts, 10)]
    return kernel_sightings(driver, sites, LOAD, {0: KERNEL})


def test_records_are_read(simulated):
    driver = StandIn({10: [[3, 4, 5]], 11: [[7]]})
    first, second = run(driver, 3, 1)
    assert (first.sm_ids, second.sm_ids) == ({3, 4, 5}, {7})
    # Two launches alone came first; 12 and 4 blocks, each a nanosecond after the one before.
    assert second.start_ns - first.start_ns == 1000
    assert first.end_ns - first.start_ns == 50_000 + 11
    assert second.end_ns - second.start_ns == 50_000 + 3
    assert driver.blocks == {}


def test_each_is_looked_at_alone_and_then_all_are_launched_before_one_is_waited_for(simulated):
    driver = StandIn({10: [[1]], 11: [[2]], 12: [[3]]})
    run(driver, 1, 1, 1)
    launches = [at for at, call in enumerate(driver.calls) if call[0] == "launch"]
    assert [driver.calls[at][1] for at in launches] == [10, 11, 12, 10, 11, 12]
    for at in launches[:3]:
        assert driver.calls[at + 1] == ("synchronize", driver.calls[at][1])
    assert launches[3:] == list(range(launches[3], launches[3] + 3))


def test_each_device_has_its_own_kernel_and_context(simulated):
    driver = StandIn({10: [[0, 1]], 11: [[1, 2]]})
    sites = [ProbeSite(1, 10, 2), ProbeSite(0, 11, 2)]
    first, second = kernel_sightings(driver, sites, LOAD, {0: KERNEL, 1: KERNEL})
    assert (first.sm_ids, second.sm_ids) == ({0, 1}, {1, 2})
    with pytest.raises(AssertionError, match=str(KERNEL)):
        kernel_sightings(driver, sites, LOAD, {0: KERNEL, 1: KERNEL + 1})
    assert driver.blocks == {}


def test_sms_of_all_runs_count(simulated):
    driver = StandIn({10: [[0, 1], [1, 130]]})
    (seen,) = run(driver, 2)
    assert seen.sm_ids == {0, 1, 130}


def test_a_place_that_was_disturbed_is_looked_at_again(simulated):
    driver = StandIn({10: [[0, 1], [2, 1], [0]]})
    (seen,) = run(driver, 3)
    assert seen.sm_ids == {0, 1, 2}
    assert driver.calls.count(("launch", 10)) == 3  # two alone, one with all


def test_a_place_without_all_its_sms_is_given_up_on(simulated):
    driver = StandIn({10: [[0, 1]]})
    (seen,) = run(driver, 3)
    assert seen.sm_ids == {0, 1}
    assert driver.calls.count(("launch", 10)) == 4


@pytest.mark.parametrize(
    ("fails", "after"),
    [
        ("allocate", 0), ("allocate", 2), ("launch", 0), ("launch", 1), ("launch", 4), ("copy", 0), ("copy", 5),
        ("synchronize", 0), ("synchronize", 7),
    ],
)  # fmt: skip
def test_memory_goes_back_after_a_failure(simulated, fails, after):
    driver = StandIn({10: [[1]], 11: [[2]], 12: [[3]]}, fails, after)
    before = runtime.current().driver.current_context()
    with pytest.raises(RuntimeError, match=f"{fails} failed"):
        run(driver, 1, 1, 1)
    assert driver.blocks == {}
    assert driver.running == set()
    assert runtime.current().driver.current_context() == before
