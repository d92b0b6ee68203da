"""Record a film of heat that spreads over a terrain, with a loop in a loop: frames, and steps between two frames.

The host records two steps and one frame. On one device, or on one partition of its SMs, the device goes round both
loops by itself; over several places the host does, with the recorded work as graphs. The film is compared with NumPy.

    python examples/diffusion.py --machine sim:h200x1 --frames 20 --steps 100
    python examples/diffusion.py --places green:16x1 --dtype int32  # equal to the bit
    python examples/diffusion.py --devices 2
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import warp as wp
from command_line import describe, make_parser, whole_number
from heat import KERNELS, Image, diffuse_numpy, load, make_grid, place_request, resample, tolerance
from terrain import driver_of, nature, now_us, run_example

import stf_places as stf
from stf_places.interop import warp as stf_warp

if TYPE_CHECKING:
    Picture: TypeAlias = Any
    Film: TypeAlias = Any
    Counter: TypeAlias = Any
else:
    Picture = wp.array2d(dtype=Any)
    Film = wp.array3d(dtype=Any)
    Counter = wp.array(dtype=wp.int32)


@wp.kernel
def expose(u: Picture, film: Film, frame: Counter, row: int) -> None:
    """Write the rows from one on into the frame whose turn it is."""
    i, j = wp.tid()  # type: ignore[misc]
    film[frame[0], i + row, j] = u[i + row, j]


@wp.kernel
def wind(frame: Counter) -> None:
    frame[0] += 1


class Camera:
    """Hold a picture that changes and the film that is made of it, over the rows of a grid's places."""

    def __init__(self, ctx: Any, grid: Any, image: Image, frames: int) -> None:
        self.ctx, self.grid = ctx, grid
        self.step = KERNELS[image.dtype.name]
        self.u = ctx.logical_data(image.copy(), name="u")
        self.v = ctx.logical_data_empty(image.shape, image.dtype, name="v")
        self.film = ctx.logical_data(np.zeros((frames, *image.shape), image.dtype), name="film")
        self.frame = ctx.logical_data(np.zeros(1, np.int32), name="frame")
        rows = stf.partition(stf.whole, stf.blocked(*grid.axes), stf.whole)
        self.film_place = stf.data_place.composite(grid, rows)

    def record_step(self, before: Any, after: Any) -> None:
        """Submit a step of diffusion: each place computes its rows."""
        with self.ctx.task(self.grid, before.read(), after.write(), symbol="diffuse") as t:
            for shard in t.shards(1):
                arrays = [stf_warp.array(shard, 0), stf_warp.array(shard, 1)]
                stf_warp.launch(shard, self.step, dim=shard.shape, inputs=[*arrays, *shard.start])

    def record_frame(self) -> None:
        """Submit the exposure of a frame. Which one it is, the device counts."""
        used = self.u.read(), self.film.rw(self.film_place), self.frame.read(stf.data_place.replicated())
        with self.ctx.task(self.grid, *used, symbol="expose") as t:
            for shard in t.shards(0):
                arrays = [stf_warp.array(shard, i) for i in range(3)]
                stf_warp.launch(shard, expose, dim=shard.shape, inputs=[*arrays, shard.start[0]])
        with self.ctx.task(self.grid.get_place(0), self.frame.rw(), symbol="wind") as t:
            stf_warp.launch(t, wind, dim=1, inputs=[stf_warp.array(t, 0)])

    def shoot(self, frames: int, steps: int) -> tuple[Any, Any]:
        """Record the whole film; return the loops over frames and steps."""
        with self.ctx.repeat(frames) as over_frames:
            with self.ctx.repeat(steps // 2) as over_steps:
                self.record_step(self.u, self.v)
                self.record_step(self.v, self.u)
            self.record_frame()
        return over_frames, over_steps


def film_numpy(image: Image, frames: int, steps: int) -> Image:
    """Return the same film by NumPy."""
    film = []
    for _ in range(frames):
        image = diffuse_numpy(image, steps)
        film.append(image)
    return np.stack(film)


def demonstrate(machine: Any, options: argparse.Namespace) -> bool:
    """Shoot the film and compare."""
    if options.steps % 2:
        raise ValueError(f"--steps {options.steps}: it is even, since two steps go forth and back")
    print(describe(machine))
    image = resample(load(None), options.size, options.dtype)
    grid = make_grid(machine, options.devices, options.places)
    with stf.stackable_context() as ctx:
        camera = Camera(ctx, grid, image, options.frames)
        begin = now_us(machine)
        over_frames, over_steps = camera.shoot(options.frames, options.steps)
        film = np.asarray(ctx.wait(camera.film))
        took = (now_us(machine) - begin) / 1e3
    size = f"{options.frames} frames of {options.steps} steps on {grid.size} place(s)"
    print(f"{size}: {took:.2f} ms ({nature(machine)})")
    print(f"loop over frames: {driver_of(over_frames)}")
    print(f"loop over steps: {driver_of(over_steps)}")
    worst = float(np.abs(film - film_numpy(image, options.frames, options.steps)).max())
    allowed = tolerance(image, options.frames * options.steps)
    verdict = "agrees with" if worst <= allowed else "DIFFERS from"
    print(f"the film {verdict} NumPy's: largest difference {worst:.2g}, allowed {allowed:.2g}")
    return worst <= allowed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = make_parser("diffusion", "Record a film of heat that spreads, with a loop in a loop.")
    add = parser.add_argument
    add("--places", type=place_request, help="devices, or green:SMS or green:SMSxCOUNT of each device")
    add("--devices", type=whole_number, default=1, help="number of devices (default: 1)")
    add("--dtype", choices=KERNELS, default="float32", help="type of a cell (default: float32)")
    add("--frames", type=whole_number, default=10, help="number of frames (default: 10)")
    add("--steps", type=whole_number, default=40, help="steps between two frames, even (default: 40)")
    add("--size", type=whole_number, default=512, help="resample to SIZE x SIZE (default: 512)")
    return run_example(parser, argv, demonstrate)


if __name__ == "__main__":
    sys.exit(main())
