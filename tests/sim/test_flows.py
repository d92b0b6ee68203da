"""Random flows without kernels, compared with NumPy: the same bodies on simulated machines and on GPUs.

Values change in host functions and on the host place, and travel because tasks on devices ask for them.
"""

import numpy as np
import pytest

import stf_places as stf


def touch(ctx, random, places, data):
    """Make a device hold the value, alone or beside others."""
    place = places[random.integers(len(places))]
    access = data.rw() if random.integers(2) else data.read()
    with ctx.task(place, access) as t:
        assert t.get_arg(0) != 0


def combine(ctx, random, data, values, target, source):
    """Change a value with another one, on the host: in a function behind the flow, or in a body."""
    factor = int(random.integers(1, 9))
    values[target] = values[target] * 3 + values[source] * factor + 1

    def change(to, other):
        to *= 3
        to += other * factor + 1

    accesses = data[target].rw(), data[source].read()
    if random.integers(2):
        ctx.host_launch(*accesses, fn=change)
        return
    with ctx.task(stf.exec_place.host(), *accesses) as t:
        change(t.numpy(0), t.numpy(1))


@pytest.mark.parametrize("seed", range(40))
def test_flows_agree_with_numpy(machine, seed):
    random = np.random.default_rng(seed)
    places = [stf.exec_place.device(d) for d in range(machine.device_count)]
    sources = [random.integers(0, 1000, size=int(random.integers(1, 5000))) for _ in range(6)]
    length = min(map(len, sources))
    sources = [source[:length].copy() for source in sources]
    values = [source.copy() for source in sources]
    with stf.context() as ctx:
        data = [ctx.logical_data(source) for source in sources]
        for _ in range(60):
            target, source = random.choice(len(data), 2, replace=False)
            kind = random.integers(8)
            if kind < 4:
                touch(ctx, random, places, data[target])
            elif kind < 6:
                combine(ctx, random, data, values, target, source)
            elif kind == 6:
                assert np.array_equal(ctx.wait(data[target]), values[target])
            else:
                made = ctx.logical_data_full(length, int(random.integers(100)), "i8", exec_place=places[-1])
                assert (ctx.wait(made) == ctx.wait(made)[0]).all()
    for source, value in zip(sources, values, strict=True):
        assert np.array_equal(source, value)


def test_an_empty_chain_records_no_event(machine):
    with stf.context() as ctx:
        data = ctx.logical_data_full(16, 1.0)
        before = ctx.stats.events_recorded
        for _ in range(1000):
            with ctx.task(stf.exec_place.device(0), data.rw()):
                pass
        assert ctx.stats.events_recorded == before
        assert ctx.stats.waits == 0


def test_each_pair_of_devices_copies_every_byte(machine):
    pattern = np.random.default_rng(7).integers(0, 256, size=1 << 20, dtype=np.uint8)
    for a in range(machine.device_count):
        for b in range(machine.device_count):
            source = pattern.copy()
            with stf.context() as ctx:
                data = ctx.logical_data(source)
                for device in (a, b):
                    with ctx.task(stf.exec_place.device(device), data.rw()):
                        pass
                assert np.array_equal(ctx.wait(data), pattern)
            assert np.array_equal(source, pattern)
