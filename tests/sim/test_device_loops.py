"""Loops that a device drives, with bodies of copies alone, so that the stand-in for libcuda runs them too."""

import numpy as np
import pytest
from scope_work import on, prepared, recorded, stand_in

import stf_places as stf
from stf_places._native import runtime


class Tape:
    """Numbers on a device, of which each round takes the next: `value` is the one that was taken last."""

    def __init__(self, ctx, numbers, dtype="i4"):
        self.ctx, self.numbers = ctx, np.asarray(numbers, dtype)
        self.all = ctx.logical_data(self.numbers.copy())
        self.value, self.scratch = (ctx.logical_data_empty(n, dtype) for n in (1, len(numbers)))

    def take(self):
        rest, each = self.numbers.nbytes - self.numbers.itemsize, self.numbers.itemsize
        with self.ctx.task(on(0), self.all.rw(), self.value.write(), self.scratch.write()) as t:
            tape, value, scratch = (t.get_arg(k) for k in range(3))
            for to, source, nbytes in (
                (value, tape, each),
                (scratch, tape + each, rest),
                (tape, scratch, rest),
            ):
                runtime.current().driver.copy(to, 0, source, 0, nbytes, t.stream_ptr())

    def taken(self):
        """Return the last number that was taken and the next one."""
        return self.ctx.wait(self.value)[0], self.ctx.wait(self.all)[0]


@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
@pytest.mark.parametrize(
    "condition",
    [
        lambda x: x < 4,
        lambda x: ~(x >= 5),
        lambda x: (x < 9) & (x <= 2),
        lambda x: (x < 3) | (x < 6) | (x > 100),
        lambda x: ~((x > 7) | (x < -1)),
        lambda x: x > 50,
    ],
)
@pytest.mark.parametrize("around", ["root", "graph_scope", "recorded"])
def test_a_while_loop_stops_at_the_right_number(ctx, work, dtype, condition, around):
    tape = Tape(ctx, range(20), dtype)
    last = next(k for k in range(20) if not condition(np.array([k]))[0])

    def record():
        with ctx.while_loop() as loop:
            tape.take()
            loop.continue_while(condition(tape.value))
        return loop

    if around == "root":
        assert record().on_device
    elif around == "graph_scope":
        with ctx.graph_scope():
            tape.take()
            assert record().on_device
        last = max(last, 1)
    else:
        graph = recorded(ctx, record)
        graph.launch()
        assert tape.taken() == (last, last + 1)
        graph.launch()  # the next number ends it at once, but for conditions that hold again
        last = next(k for k in range(last + 1, 20) if not condition(np.array([k]))[0])
        graph.reset()
    assert tape.taken() == (last, last + 1)


@pytest.mark.parametrize("counts", [(1,), (5,), (2, 3), (3, 1, 2)])
@pytest.mark.parametrize("launches", [1, 3])
def test_repeat_takes_as_many(ctx, work, counts, launches):
    tape, loops = Tape(ctx, range(40)), []

    def descend(left):
        if not left:
            return tape.take()
        with ctx.repeat(left[0]) as loop:
            descend(left[1:])
        loops.append(loop)

    graph = recorded(ctx, lambda: descend(counts))
    assert all(loop.on_device and loop.host_reason is None for loop in loops)
    for _ in range(launches):
        graph.launch()
    graph.reset()
    rounds = int(np.prod(counts)) * launches
    assert tape.taken() == (rounds - 1, rounds)


def test_an_inner_loop_begins_anew_in_each_round(ctx, work):
    """Numbers of groups that end with 0, and -1 behind the last group."""
    tape = Tape(ctx, [3, 2, 0, 1, 0, 4, 5, 6, 0, -1, 7, 8])
    groups = Tape(ctx, [1, 1, 0, 9])
    with ctx.while_loop() as outer:
        with ctx.while_loop() as inner:
            tape.take()
            inner.continue_while(tape.value > 0)
        groups.take()
        outer.continue_while(groups.value > 0)
    assert outer.on_device and inner.on_device
    assert tape.taken() == (0, -1) and groups.taken() == (0, 9)


HANDLE = """
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);
extern "C" __global__ void again(unsigned long long handle, int* rounds, int most) {
  *rounds += 1;
  cudaGraphSetConditional(handle, *rounds < most ? 1 : 0);
}
"""


@pytest.mark.gpu
def test_a_kernel_of_the_callers_sets_the_condition(cuda):
    if stand_in() is not None:
        pytest.skip("needs NVIDIA's driver")
    with stf.use_machine("cuda") as machine, prepared(machine) as work, stf.stackable_context() as ctx:
        again = work.kernel("again", on(0), HANDLE, libraries=("cudadevrt",))
        rounds, x = ctx.logical_data_zeros(1, "i4"), ctx.logical_data_zeros(4)
        with ctx.while_loop() as loop:
            work.add(ctx, on(0), x)
            with ctx.cuda_kernel(on(0), rounds.rw(), x.read()) as t:
                t.launch(again, 1, 1, [np.uint64(loop.cond_handle), rounds, np.int32(7)])
        assert loop.on_device
        assert (ctx.wait(x) == 7).all() and ctx.wait(rounds)[0] == 7


def test_handles_are_for_loops_that_a_device_drives_alone(ctx, work):
    if work.simulated:
        pytest.skip("a simulated machine has no handles")
    x = ctx.logical_data_zeros(1, "i4")
    with pytest.raises(stf.NotSupported, match="the host has to drive this loop"):
        with ctx.while_loop() as loop:
            ctx.host_launch(x.rw(), fn=print)
            assert loop.cond_handle != 0
    with ctx.repeat(2), ctx.while_loop() as loop:
        work.add(ctx, on(0), x)
        with pytest.raises(stf.NotSupported, match="loop within a loop"):
            loop.cond_handle  # noqa: B018
        loop.continue_while(x < 0)
    assert ctx.wait(x)[0] == 2
