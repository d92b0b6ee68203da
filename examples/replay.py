"""Let balls roll over a terrain: record one step of the simulation once, and replay it a thousand times.

A step is four Warp kernels. They become a graph that is instantiated once; each launch of it is one operation. The
same arithmetic in NumPy gives the same paths to the bit, since nothing is fused and no function but + - * is used.

    python examples/replay.py --machine sim:h200x1 --steps 1000
    python examples/replay.py --place green:16  # on a partition of 16 SMs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import warp as wp
from command_line import describe, whole_number
from terrain import Array, chosen_place, elevation, nature, now_us, parser_with_place, run_example

import stf_places as stf
from stf_places.interop import warp as stf_warp

wp.set_module_options({"fuse_fp": False})

#: Length of a step; how much a slope accelerates in it; how much speed it leaves. Exact in float32.
DT = 0.125
PUSH = 4.0
KEPT = 0.984375

if TYPE_CHECKING:
    Field: TypeAlias = Any
    Counts: TypeAlias = Any
    Pairs: TypeAlias = Any
else:
    Field = wp.array2d(dtype=wp.float32)
    Counts = wp.array2d(dtype=wp.int32)
    Pairs = wp.array(dtype=wp.vec2)


@wp.kernel
def find_slope(heights: Field, positions: Pairs, slopes: Pairs) -> None:
    """Interpolate between the four cells around a ball."""
    ball = wp.tid()
    x, y = positions[ball][0], positions[ball][1]
    i = wp.min(int(x), heights.shape[0] - 2)
    j = wp.min(int(y), heights.shape[1] - 2)
    a, b, c, d = heights[i, j], heights[i, j + 1], heights[i + 1, j], heights[i + 1, j + 1]
    down, right = x - float(i), y - float(j)
    slopes[ball] = wp.vec2((c - a) + right * ((d - b) - (c - a)), (b - a) + down * ((d - c) - (b - a)))


@wp.kernel
def accelerate(slopes: Pairs, velocities: Pairs) -> None:
    ball = wp.tid()
    velocities[ball] = KEPT * (velocities[ball] - PUSH * slopes[ball])


@wp.kernel
def move(last: float, velocities: Pairs, positions: Pairs) -> None:
    """Go along the velocity, and bounce off the border."""
    ball = wp.tid()
    position = positions[ball] + DT * velocities[ball]
    velocity = velocities[ball]
    for axis in range(2):
        if position[axis] < 0.0:
            position[axis] = -position[axis]
            velocity[axis] = -velocity[axis]
        if position[axis] > last:
            position[axis] = (last - position[axis]) + last
            velocity[axis] = -velocity[axis]
    positions[ball] = position
    velocities[ball] = velocity


@wp.kernel
def visit(positions: Pairs, visits: Counts) -> None:
    """Count where the balls have been."""
    position = positions[wp.tid()]
    wp.atomic_add(visits, int(position[0]), int(position[1]), 1)


class Balls:
    """Hold the balls as arrays of the host: positions in cells, velocities, and how often each cell was visited."""

    def __init__(self, heights: Array, count: int) -> None:
        self.heights = heights
        self.last = heights.shape[0] - 1.0
        self.positions = np.random.default_rng(0).uniform(0, self.last, (count, 2)).astype(np.float32)
        self.velocities = np.zeros((count, 2), np.float32)
        self.visits = np.zeros(heights.shape, np.int32)

    def arrays(self) -> tuple[Array, ...]:
        """Return what a simulation changes."""
        return self.positions, self.velocities, self.visits


def replay(place: Any, balls: Balls, steps: int) -> None:
    """Record one step and launch it so often; the arrays of the balls have the result afterwards."""
    graph = stf.task_graph()
    ctx = graph.context
    count = len(balls.positions)
    heights = ctx.logical_data(balls.heights).read()
    positions, velocities, visits = (ctx.logical_data(array) for array in balls.arrays())
    slopes = ctx.logical_data_empty((count, 2), np.float32)
    with graph:
        with ctx.task(place, heights, positions.read(), slopes.write(), symbol="find_slope") as t:
            arrays = [stf_warp.array(t, 0), *(stf_warp.array(t, i, wp.vec2) for i in (1, 2))]
            stf_warp.launch(t, find_slope, dim=count, inputs=arrays)
        with ctx.task(place, slopes.read(), velocities.rw(), symbol="accelerate") as t:
            arrays = [stf_warp.array(t, i, wp.vec2) for i in range(2)]
            stf_warp.launch(t, accelerate, dim=count, inputs=arrays)
        with ctx.task(place, velocities.rw(), positions.rw(), symbol="move") as t:
            arrays = [stf_warp.array(t, i, wp.vec2) for i in range(2)]
            stf_warp.launch(t, move, dim=count, inputs=[balls.last, *arrays])
        with ctx.task(place, positions.read(), visits.rw(), symbol="visit") as t:
            arrays = [stf_warp.array(t, 0, wp.vec2), stf_warp.array(t, 1)]
            stf_warp.launch(t, visit, dim=count, inputs=arrays)
    for _ in range(steps):
        graph.launch()
    graph.finalize()


def roll_numpy(balls: Balls, steps: int) -> None:
    """Do the same with NumPy."""
    heights, last = balls.heights, np.float32(balls.last)
    positions, velocities, visits = balls.arrays()
    for _ in range(steps):
        i, j = np.minimum(positions.astype(np.intp), heights.shape[0] - 2).T
        a, b, c, d = heights[i, j], heights[i, j + 1], heights[i + 1, j], heights[i + 1, j + 1]
        down, right = positions[:, 0] - i.astype(np.float32), positions[:, 1] - j.astype(np.float32)
        along = (c - a) + right * ((d - b) - (c - a)), (b - a) + down * ((d - c) - (b - a))
        slopes = np.stack(along, axis=1)
        velocities[:] = np.float32(KEPT) * (velocities - np.float32(PUSH) * slopes)
        positions += np.float32(DT) * velocities
        for outside, mirrored in ((positions < 0, -positions), (positions > last, (last - positions) + last)):
            positions[outside] = mirrored[outside]
            velocities[outside] *= -1
        np.add.at(visits, tuple(positions.astype(np.intp).T), 1)


def demonstrate(machine: Any, options: argparse.Namespace) -> bool:
    """Roll the balls in both ways and compare."""
    if options.size < 2:
        raise ValueError(f"--size {options.size}: a slope needs two cells in a row")
    print(describe(machine))
    heights = np.asarray(elevation(options.size), np.float32) * np.float32(options.size / 8)
    ours, expected = Balls(heights, options.balls), Balls(heights, options.balls)
    place = chosen_place(options.place)
    replay(place, Balls(heights, options.balls), 1)  # so that the kernels are compiled and loaded
    begin = now_us(machine)
    replay(place, ours, options.steps)
    took = (now_us(machine) - begin) / 1e3
    roll_numpy(expected, options.steps)
    print(f"{options.balls} balls, recorded once, {options.steps} steps: {took:.2f} ms ({nature(machine)})")
    equal = all(np.array_equal(a, b) for a, b in zip(ours.arrays(), expected.arrays(), strict=True))
    worst = float(np.abs(ours.positions - expected.positions).max())
    visited = np.count_nonzero(expected.visits) / expected.visits.size
    verdict = "agrees with" if equal else "DIFFERS from"
    print(
        f"{verdict} NumPy: largest difference of a position {worst:.2g}, allowed 0; {visited:.0%} of the cells visited"
    )
    return equal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = parser_with_place("replay", "Record a step of a simulation once and replay it.")
    add = parser.add_argument
    add("--balls", type=whole_number, default=10_000, help="number of balls (default: 10000)")
    add("--steps", type=whole_number, default=1000, help="number of launches (default: 1000)")
    add("--size", type=whole_number, default=256, help="terrain of SIZE x SIZE cells (default: 256)")
    return run_example(parser, argv, demonstrate)


if __name__ == "__main__":
    sys.exit(main())
