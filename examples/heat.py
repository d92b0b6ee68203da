"""Let heat spread over a picture that is split by rows over the devices of a machine.

Each device owns a block of rows. A step of a block reads the block and the nearest row of each neighbour, and
writes the next block and its own two edge rows, so that only edge rows move between devices. The result is
compared with NumPy.

    python examples/heat.py --machine sim:h200x8 --size 2048 --steps 500
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import matplotlib.cbook
import matplotlib.image
import numpy as np
import numpy.typing as npt
import warp as wp

import stf_places as stf
from stf_places.interop import warp as stf_warp
from stf_places.viz import busy_us, save_perfetto

Image = npt.NDArray[np.float32]

#: Part of the difference to its neighbours that a cell takes over in a step; stable up to 0.25.
RATE = 0.2
#: Roundings of float32 in one step of one cell.
ROUNDINGS = 8


@wp.kernel
def diffuse(
    u: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    above: wp.array(dtype=wp.float32),  # type: ignore[valid-type]
    below: wp.array(dtype=wp.float32),  # type: ignore[valid-type]
    rate: wp.float32,
    v: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    top: wp.array(dtype=wp.float32),  # type: ignore[valid-type]
    bottom: wp.array(dtype=wp.float32),  # type: ignore[valid-type]
) -> None:
    """Do one step of a block: v from u and the rows around it, and the edge rows of v."""
    i, j = wp.tid()  # type: ignore[misc]
    last_row = u.shape[0] - 1
    last_column = u.shape[1] - 1
    north = above[j]
    if i > 0:
        north = u[i - 1, j]
    south = below[j]
    if i < last_row:
        south = u[i + 1, j]
    west = u[i, wp.max(j - 1, 0)]
    east = u[i, wp.min(j + 1, last_column)]
    value = u[i, j] + rate * (north + south + west + east - 4.0 * u[i, j])
    v[i, j] = value
    if i == 0:
        top[j] = value
    if i == last_row:
        bottom[j] = value


def diffuse_numpy(image: Image, steps: int) -> Image:
    """Do the same with NumPy, in float32 too."""
    padded = np.pad(image, 1, mode="edge")
    inner = padded[1:-1, 1:-1]
    change = np.empty_like(image)
    for _ in range(steps):
        padded[0], padded[-1] = padded[1], padded[-2]
        padded[:, 0], padded[:, -1] = padded[:, 1], padded[:, -2]
        np.multiply(inner, np.float32(-4), out=change)
        for neighbour in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
            change += neighbour
        change *= np.float32(RATE)
        inner += change
    return np.array(inner)


def tolerance(image: Image, steps: int) -> float:
    """Return how far two ways of rounding may drift apart.

    A step takes a mean of its neighbours, so it never enlarges an error: the roundings of each step add up at most.
    """
    return float(max(steps, 1) * ROUNDINGS * np.finfo(np.float32).eps * np.abs(image).max(initial=0.0))


@dataclass
class Block:
    """What one device owns: its rows and its edge rows, as of one step."""

    rows: Any
    top: Any
    bottom: Any

    @classmethod
    def of(cls, ctx: Any, part: Image, name: str) -> Block:
        """Register a part of the picture, which the program only reads."""
        top, bottom = part[0].copy(), part[-1].copy()
        for source in (part, top, bottom):
            source.flags.writeable = False
        return cls(
            ctx.logical_data(part, name=f"{name}.rows"),
            ctx.logical_data(top, name=f"{name}.top"),
            ctx.logical_data(bottom, name=f"{name}.bottom"),
        )

    def like(self) -> Block:
        """Return room for another step of the same block."""
        return Block(self.rows.empty_like(), self.top.empty_like(), self.bottom.empty_like())


def step(ctx: Any, place: Any, old: list[Block], number: int, new: Block) -> None:
    """Submit one step of one block. At the picture's edge a block is its own neighbour: no heat is lost."""
    block = old[number]
    above = old[number - 1].bottom if number > 0 else block.top
    below = old[number + 1].top if number + 1 < len(old) else block.bottom
    reads = [block.rows.read(), above.read(), below.read()]
    writes = [new.rows.write(), new.top.write(), new.bottom.write()]
    with ctx.task(place, *reads, *writes, symbol=f"diffuse {number}") as t:
        arrays = [stf_warp.array(t, index) for index in range(6)]
        stf_warp.launch(t, diffuse, block.rows.shape, inputs=[*arrays[:3], RATE], outputs=arrays[3:])


def spread(ctx: Any, grid: Any, image: Image, steps: int) -> Image:
    """Do all steps on the places of a grid and gather the result."""
    parts = np.array_split(image, len(grid))
    now = [Block.of(ctx, part, f"block {number}") for number, part in enumerate(parts)]
    room = [[block.like() for block in now] for _ in range(min(steps, 2))]
    for count in range(steps):
        following = room[count % 2]
        for number, place in enumerate(grid):
            step(ctx, place, now, number, following[number])
        now = following
        show_progress(count + 1, steps)
    return np.concatenate([ctx.wait(block.rows) for block in now])


def show_progress(done: int, steps: int, width: int = 40) -> None:
    """Draw a progress bar where someone looks at it."""
    if not sys.stderr.isatty():
        return
    filled = width * done // steps
    end = "\n" if done == steps else ""
    print(f"\r[{'#' * filled}{' ' * (width - filled)}] {done}/{steps}", end=end, file=sys.stderr, flush=True)


def table(ctx: Any, machine: Any) -> str:
    """Return what each place did."""
    nature = "simulated" if machine.simulated else "real"
    head = ("place", "tasks", "MB in", "MB out", "busy ms", "machine")
    rows = [
        (
            place.place,
            str(place.tasks),
            f"{place.bytes_in / 1e6:.2f}",
            f"{place.bytes_out / 1e6:.2f}",
            f"{busy_us(ctx.trace, place.place) / 1e3:.2f}",
            f"{machine.name}, {nature}",
        )
        for place in ctx.stats.places
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in [head, *rows]:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(n) for cell, n in zip(row[1:5], widths[1:5], strict=True)),
        ]
        lines.append("  ".join([*cells, row[5]]))
    return "\n".join(lines)


def load(path: Path | None) -> Image:
    """Return the picture to work on, its brightness, or the elevation model that comes with matplotlib.

    Values count from their mean, so that float32 does not spend its digits on what all have in common.
    """
    if path is None:
        sample: Any = matplotlib.cbook.get_sample_data("jacksboro_fault_dem.npz")
        with sample:
            picture = np.array(sample["elevation"], np.float64)
    else:
        picture = np.array(matplotlib.image.imread(path), np.float64)
    if picture.ndim == 3:
        picture = picture[..., :3].mean(axis=2)
    return np.asarray(picture - picture.mean(), np.float32)


def resample(image: Image, size: int) -> Image:
    """Return the picture with size x size cells, interpolated linearly."""
    for axis in (0, 1):
        at = np.linspace(0, image.shape[axis] - 1, size, dtype=np.float32)
        low = np.minimum(at.astype(np.intp), max(image.shape[axis] - 2, 0))
        high = np.minimum(low + 1, image.shape[axis] - 1)
        part = (at - low)[:, None] if axis == 0 else at - low
        image = image.take(low, axis) * (1 - part) + image.take(high, axis) * part
    return np.ascontiguousarray(image, np.float32)


class OneLineParser(argparse.ArgumentParser):
    """Say what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """End the program with exit status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def count(least: int) -> Any:
    """Return a parser of whole numbers."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"a whole number from {least} on: got {text!r}")
        return int(text)

    return parse


def arguments() -> OneLineParser:
    """Return the parser of the command line."""
    parser = OneLineParser(
        prog="heat", description="Spread heat over a picture, split over the devices of a machine."
    )
    parser.add_argument("--machine", help="cuda, sim:h200x2, sim:FILE.json, ... (default: the environment's)")
    parser.add_argument("--devices", type=count(1), help="number of devices (default: all)")
    parser.add_argument("--steps", type=count(0), default=200, help="number of steps (default: 200)")
    parser.add_argument("--size", type=count(1), default=1024, help="resample to SIZE x SIZE (default: 1024)")
    parser.add_argument("--input", type=Path, help="a picture (default: an elevation model)")
    parser.add_argument(
        "--output", type=Path, default=Path("out/heat"), help="folder to write to (default: out/heat)"
    )
    return parser


def chosen_machine(name: str | None) -> Any:
    """Return the machine as a context manager; the table says what it is, so no warning needs to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stf.SimulatedMachineWarning)
        return stf.use_machine(name) if name else nullcontext(stf.machine())


def device_grid(machine: Any, devices: int | None, rows: int) -> Any:
    """Return the grid of the first devices."""
    devices = devices or min(machine.device_count, rows)
    if devices > machine.device_count:
        raise ValueError(f"--devices {devices}: {machine.name} has {machine.device_count} device(s)")
    if devices > rows:
        raise ValueError(f"--devices {devices}: a picture of {rows} row(s) has at most as many blocks")
    return stf.exec_place_grid.from_devices(range(devices))


def write(output: Path, before: Image, after: Image, ctx: Any, machine: Any) -> None:
    """Write the pictures and the timeline."""
    output.mkdir(parents=True, exist_ok=True)
    low, high = float(np.min(before)), float(np.max(before))
    for name, picture in (("before", before), ("after", after)):
        matplotlib.image.imsave(output / f"{name}.png", picture, cmap="terrain", vmin=low, vmax=high)
    save_perfetto(ctx.trace, output / "timeline.json", simulated=machine.simulated)


def demonstrate(machine: Any, options: argparse.Namespace, image: Image) -> int:
    """Run the steps, compare, print and write."""
    grid = device_grid(machine, options.devices, len(image))
    with stf.context(trace=True) as ctx:
        result = spread(ctx, grid, image, options.steps)
    worst = float(np.abs(result - diffuse_numpy(image, options.steps)).max())
    allowed = tolerance(image, options.steps)
    print(table(ctx, machine))
    write(options.output, image, result, ctx, machine)
    verdict = "agrees with" if worst <= allowed else "DIFFERS from"
    print(
        f"{verdict} NumPy: largest difference {worst:.2g}, allowed {allowed:.2g}; pictures in {options.output}"
    )
    return 0 if worst <= allowed else 1


def quiet_warp() -> None:
    """Keep Warp's reports of what it compiles out of the output."""
    if hasattr(wp, "LOG_ERROR"):
        wp.config.log_level = wp.LOG_ERROR
    else:  # Warp before it had levels
        wp.config.quiet = True  # type: ignore[attr-defined]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    quiet_warp()
    try:
        image = resample(load(options.input), options.size)
        with chosen_machine(options.machine) as machine:
            return demonstrate(machine, options, image)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, stf.NotSupported) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
