"""Two threads, the interpreter's lock and the driver's: a slow callback beside a thread that submits."""

import os
import threading
import time

import numpy as np

import stf_places as stf

#: Seconds that the test lasts; a soak run sets 30.
DURATION = float(os.environ.get("STF_PLACES_SOAK_SECONDS", "2.5"))


def test_a_slow_callback_beside_a_submitting_thread_makes_progress(machine):
    stop = time.monotonic() + DURATION
    slow, quick = stf.context(), stf.context()
    calls = []

    def sleepy(array):
        time.sleep(0.02)
        array += 1
        calls.append(None)

    def wait_for_callbacks():
        data = slow.logical_data_full(8, 0.0)
        while time.monotonic() < stop:
            slow.host_launch(data.rw(), fn=sleepy)
            assert (slow.wait(data) == len(calls)).all()
        del data
        slow.finalize()

    waiter = threading.Thread(target=wait_for_callbacks)
    waiter.start()
    data = quick.logical_data_full(8, 0.0)
    rounds = 0
    while time.monotonic() < stop:
        place = stf.exec_place.device(rounds % machine.device_count)
        with quick.task(place, data.rw()) as t:
            assert t.get_arg(0) != 0
        quick.host_launch(data.rw(), fn=lambda array: np.add(array, 1, out=array))
        rounds += 1
        if rounds % 64 == 0:
            assert (quick.wait(data) == rounds).all()
    assert (quick.wait(data) == rounds).all()
    waiter.join(60)
    assert not waiter.is_alive()
    assert slow.closed
    quick.finalize()
    assert len(calls) > 1
    assert rounds > 1
    print(f"{len(calls)} slow callbacks, {rounds} submitted beside them")
