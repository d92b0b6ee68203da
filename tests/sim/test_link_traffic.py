"""The bytes that a simulated machine counts on its links."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stf_places as stf
from stf_places import errors
from stf_places._native import drivers, pages
from stf_places.machines import specs, use_machine


def driver_and_streams(name="tiny"):
    driver = drivers.sim_driver(specs.load(name).to_dict(), execute=False)
    return driver, [driver.create_stream(driver.primary_context(device)) for device in (0, 1)]


def test_a_flow_moves_what_its_tasks_need():
    with use_machine("sim:h200x2") as machine:
        assert machine.link_traffic() == {}
        with stf.context() as ctx:
            data = ctx.logical_data(np.zeros(1000))
            for device in (0, 1, 1, 0):
                with ctx.task(stf.exec_place.device(device), data.rw()):
                    pass
        # To device 0, over to 1 and back, and home.
        assert machine.link_traffic() == {(-1, 0): 8000, (0, 1): 8000, (1, 0): 8000, (0, -1): 8000}


def test_devices_without_a_link_send_through_the_host():
    driver, (_, there) = driver_and_streams("nopeer2")
    one, two = (
        driver.allocate_device(device, 5000, driver.create_stream(driver.primary_context(device)))
        for device in (0, 1)
    )
    driver.drain()
    driver.copy(two, 1, one, 0, 5000, there)
    assert pages.link_traffic(driver) == {(0, -1): 5000, (-1, 1): 5000}


def test_what_stays_on_a_device_is_on_no_link():
    driver, (stream, _) = driver_and_streams()
    block = driver.allocate_device(0, 2000, stream)
    driver.copy(block + 1000, 0, block, 0, 1000, stream)
    driver.fill(block, 0, b"\0", 2000, stream)
    driver.host_work(stream, symbol="local", accesses=[(block, 2000, True)])
    assert pages.link_traffic(driver) == {}


def test_machines_count_by_themselves():
    with use_machine("sim:tiny") as first:
        stf.context().finalize()
        with use_machine("sim:tiny") as second, stf.context() as ctx:
            data = ctx.logical_data(np.zeros(10))
            with ctx.task(stf.exec_place.device(1), data.read()):
                pass
    assert first.link_traffic() == {}
    assert second.link_traffic() == {(-1, 1): 80}


@pytest.mark.gpu
def test_only_simulated_machines_count(cuda):
    with (
        use_machine("cuda") as machine,
        pytest.raises(errors.NotSupported, match="only simulated machines count"),
    ):
        machine.link_traffic()
    with pytest.raises(errors.NotSupported):
        pages.link_traffic(cuda)


class Owned:
    """A range of pages that devices 0 and 1 own, all of which both reach."""

    def __init__(self, driver, owners):
        self.driver, self.owners = driver, owners
        self.page = pages.page_granularity(driver, 0)
        self.address = pages.reserve_pages(driver, len(owners) * self.page)
        for number, owner in enumerate(owners):
            pages.map_pages(driver, self.address + number * self.page, self.page, owner)
        pages.grant_access(driver, self.address, len(owners) * self.page, [0, 1])

    def bytes_of(self, device, begin, end):
        """Return how many bytes of `[begin, end)` lie on a device."""
        parts = (
            min(end, (number + 1) * self.page) - max(begin, number * self.page)
            for number, owner in enumerate(self.owners)
            if owner == device
        )
        return sum(max(0, part) for part in parts)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.data())
def test_work_counts_what_it_touches_elsewhere(owners, draw):
    driver, streams = driver_and_streams()
    owned = Owned(driver, owners)
    expected = {}
    for _ in range(draw.draw(st.integers(1, 4))):
        device = draw.draw(st.integers(0, 1))
        write = draw.draw(st.booleans())
        begin = draw.draw(st.integers(0, len(owners) * owned.page - 1))
        end = draw.draw(st.integers(begin + 1, len(owners) * owned.page))
        driver.host_work(streams[device], accesses=[(owned.address + begin, end - begin, write)])
        driver.drain()
        remote = owned.bytes_of(1 - device, begin, end)
        pair = (device, 1 - device) if write else (1 - device, device)
        if remote:
            expected[pair] = expected.get(pair, 0) + remote
    assert pages.link_traffic(driver) == expected
    assert driver.conflicts() == []
