"""How long a task takes on a simulated machine's clock: hints, the model, or the CPU time of its body."""

import numpy as np
import pytest

import stf_places as stf


def spin(rounds):
    values = np.arange(50_000, dtype=np.float64)
    for _ in range(rounds):
        values = np.sqrt(values * values + 1)
    return values


def duration(ctx, symbol):
    (record,) = [record for record in ctx.trace if record.symbol == symbol]
    return record.end_us - record.start_us


@pytest.mark.parametrize("enqueued", [False, True], ids=["body", "run"])
def test_measured_bodies_take_their_cpu_time(enqueued):
    with stf.use_machine("sim:tiny", measure_bodies=True) as machine:
        assert not machine.deterministic
        assert "measures bodies (not deterministic)" in repr(machine)
        with stf.context(trace=True) as ctx:
            data = ctx.logical_data(np.zeros(4))
            for symbol, rounds in (("short", 1), ("long", 200)):
                with ctx.task(stf.exec_place.device(0), data.rw(), symbol=symbol) as t:
                    if enqueued:
                        t.run(spin, rounds)
                    else:
                        spin(rounds)
            with ctx.task(stf.exec_place.device(0), data.rw(), symbol="told", cost=7.0):
                spin(200)
        assert duration(ctx, "long") > 10 * duration(ctx, "short") > 0
        assert duration(ctx, "told") == pytest.approx(7.0)


def test_times_are_the_same_in_each_run_unless_measured():
    seen = []
    for rounds in (1, 100):
        with stf.use_machine("sim:tiny") as machine:
            assert machine.deterministic
            with stf.context(trace=True) as ctx:
                data = ctx.logical_data(np.zeros(4))
                with ctx.task(stf.exec_place.device(0), data.rw(), symbol="body"):
                    spin(rounds)
        seen.append((duration(ctx, "body"), machine.now_us))
    assert seen[0] == seen[1]


def test_narrow_tasks_run_side_by_side():
    ends = {}
    for sms in (0, 4):
        with stf.use_machine("sim:tiny"), stf.context(trace=True) as ctx:
            for number in range(4):
                token = ctx.token()
                with ctx.task(
                    stf.exec_place.device(0), token.rw(), symbol=f"k{number}", cost=1000.0, sms=sms
                ):
                    pass
        ends[sms] = max(record.end_us for record in ctx.trace)
    assert ends[0] == pytest.approx(4000, rel=0.05)
    assert ends[4] == pytest.approx(1000, rel=0.1)


def test_measuring_is_for_simulated_machines():
    with pytest.raises(ValueError, match="measure_bodies= are for simulated machines"):
        stf.use_machine("cuda", measure_bodies=True)


def test_a_negative_width_is_refused():
    with stf.use_machine("sim:tiny"), stf.context() as ctx:
        with pytest.raises(ValueError, match="sms is a number of SMs, 0 for the whole place: got -1"):
            ctx.task(sms=-1)
