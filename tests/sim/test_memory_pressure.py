"""Devices with less memory than the data: values survive, and what does not fit is explained."""

import json
from importlib import resources

import numpy as np
import pytest

import stf_places as stf

KIB = 1 << 10
HOST = stf.exec_place.host()


@pytest.fixture(params=[None, 1, 2], ids=["program-order", "chaos-1", "chaos-2"])
def small(request, tmp_path):
    """Put a machine of two devices with 16 KiB each in use."""
    description = json.loads((resources.files("stf_places.machines") / "data" / "tiny.json").read_text())
    for device in description["devices"]:
        device["memory"] = 16 * KIB
    path = tmp_path / "small.json"
    path.write_text(json.dumps(description))
    with stf.use_machine(f"sim:{path}", chaos=request.param) as machine:
        yield machine


def on(device):
    return stf.exec_place.device(device)


def test_values_survive_eviction(small):
    sources = [np.full(KIB, k, "i4") for k in range(12)]  # 4 KiB each, 48 KiB in all
    with stf.context() as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for turn in range(3):
            for k, one in enumerate(data):
                with ctx.task(on((k + turn) % 2), one.rw(), data[(k + 1) % 12].read()) as t:
                    t.numpy(0)[:] = t.numpy(0) * 3 + t.numpy(1)[0]
        assert ctx.stats.evictions > 0
    expected = list(range(12))
    for _ in range(3):
        for k in range(12):
            expected[k] = expected[k] * 3 + expected[(k + 1) % 12]
    for source, value in zip(sources, expected, strict=True):
        assert (source == value).all()
    assert small.conflicts == ()


def test_data_without_a_source_survives_eviction(small):
    with stf.context() as ctx:
        data = [ctx.logical_data_full(KIB, k, "i4", exec_place=on(0)) for k in range(10)]
        for k, one in enumerate(data):
            assert (ctx.wait(one) == k).all()


def test_what_is_left_over_is_used_before_anything_is_evicted(small):
    with stf.context() as ctx:
        kept = ctx.logical_data_full(2 * KIB, 1, "i4", exec_place=on(0))  # 8 KiB
        small_one = ctx.logical_data_full(KIB, 2, "i4", exec_place=on(0))  # 4 KiB; 4 KiB stay free
        with ctx.task(on(0), kept.read()):
            big = ctx.logical_data_full(2 * KIB, 3, "i4", exec_place=on(0))  # what is free and one eviction
        assert (ctx.wait(big) == 3).all() and (ctx.wait(small_one) == 2).all() and (ctx.wait(kept) == 1).all()
        assert ctx.stats.evictions == 1


def test_what_can_never_fit_names_sizes_and_leaves_everything(small):
    source = np.arange(KIB, dtype="i4")
    with stf.context() as ctx:
        held = ctx.logical_data(source, name="held")
        with ctx.task(on(0), held.rw()) as t:
            t.numpy(0)[:] += 1
        big = ctx.logical_data_empty(5 * KIB, "i4", name="big")
        with pytest.raises(stf.OutOfMemory, match=r"'big'.* 20480 bytes on device\(0\)") as caught:
            ctx.task(on(0), big.write()).start()
        assert isinstance(caught.value, MemoryError)
        with ctx.task(HOST, big.write()) as t:
            t.numpy(0)[:] = 5
        assert (ctx.wait(big) == 5).all()
        assert np.array_equal(ctx.wait(held), np.arange(KIB) + 1)
    assert np.array_equal(source, np.arange(KIB) + 1)


def test_holders_that_are_in_use_are_named(small):
    with stf.context() as ctx:
        a = ctx.logical_data_full(3 * KIB, 1, "i4", exec_place=on(0), name="first")  # 12 KiB
        b = ctx.logical_data_full(2 * KIB, 2, "i4", exec_place=HOST, name="second")  # 8 KiB
        with ctx.task(on(0), a.rw()) as t:
            with pytest.raises(
                stf.OutOfMemory, match=r"'second'.*8192 bytes.*'first' \(12288 bytes, in use\)"
            ):
                ctx.task(on(0), b.read()).start()
            t.numpy(0)[:] += 1
        with ctx.task(on(0), b.read()) as t:  # now it fits
            assert (t.numpy(0) == 2).all()
        assert (ctx.wait(a) == 2).all()


def test_a_task_that_alone_does_not_fit(small):
    with stf.context() as ctx:
        parts = [ctx.logical_data_full(2 * KIB, k, "i4", exec_place=HOST) for k in range(3)]  # 24 KiB in all
        with pytest.raises(stf.OutOfMemory):
            ctx.task(on(0), *(part.read() for part in parts)).start()
        with ctx.task(on(0), parts[0].rw(), parts[2].read()) as t:
            t.numpy(0)[:] += t.numpy(1)
        assert [int(ctx.wait(part)[0]) for part in parts] == [2, 1, 2]


def test_memory_is_given_back(small):
    with stf.context() as ctx:
        for k in range(20):
            ctx.logical_data_full(3 * KIB, k, "i4", exec_place=on(k % 2))
    assert small.live_allocations == 0
    small._driver.drain()  # freed in stream order, when the streams come to it
    assert small.used_memory(0) == small.used_memory(1) == 0
