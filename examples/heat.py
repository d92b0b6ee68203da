"""Let heat spread over a picture that is split by rows over devices, or over partitions of their SMs.

The picture is one array. Its pages lie on the devices whose places own their rows, each place works on its own rows,
and the rows next to them are read where they are. The result is compared with NumPy.

    python examples/heat.py --machine sim:h200x8 --size 2048 --steps 500
    python examples/heat.py --places green:16             # partitions of 16 SMs of one device, as many as fit
    python examples/heat.py --places green:16 --devices 2 # of two devices
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib.cbook
import matplotlib.image
import numpy as np
import numpy.typing as npt
import warp as wp
from command_line import OneLineParser, chosen_machine, make_parser, whole_number

import stf_places as stf
from stf_places.interop import warp as stf_warp
from stf_places.viz import busy_us, save_perfetto

#: float32 or int32.
Image: TypeAlias = npt.NDArray[Any]

#: Part of the difference to its neighbours that a cell takes over in a step; stable up to 0.25.
RATE = 0.2
#: Of integers that part is 1 / 2**3, rounded down: the same on every machine.
SHIFT = 3
#: Integers are made of a picture by scaling it to this.
LARGEST = 1 << 20
#: How far two machines may drift apart in each 1000 steps of float32, as part of the largest value.
DRIFT = 1e-6


@wp.func
def around(u: wp.array2d(dtype=Any), i: int, j: int) -> Any:  # type: ignore[valid-type]
    """Return the sum of a cell's neighbours. At the picture's edge it is its own: no heat is lost."""
    north, south = u[wp.max(i - 1, 0), j], u[wp.min(i + 1, u.shape[0] - 1), j]
    west, east = u[i, wp.max(j - 1, 0)], u[i, wp.min(j + 1, u.shape[1] - 1)]
    return north + south + west + east


@wp.kernel
def diffuse(
    u: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    v: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    row: int,
    column: int,
) -> None:
    """Do one step of the cells from a row and a column on."""
    i, j = wp.tid()  # type: ignore[misc]
    i, j = i + row, j + column
    v[i, j] = u[i, j] + RATE * (around(u, i, j) - 4.0 * u[i, j])


@wp.kernel
def diffuse_integers(
    u: wp.array2d(dtype=wp.int32),  # type: ignore[valid-type]
    v: wp.array2d(dtype=wp.int32),  # type: ignore[valid-type]
    row: int,
    column: int,
) -> None:
    """Do the same with integers."""
    i, j = wp.tid()  # type: ignore[misc]
    i, j = i + row, j + column
    v[i, j] = u[i, j] + ((around(u, i, j) - 4 * u[i, j]) >> SHIFT)


KERNELS = {"float32": diffuse, "int32": diffuse_integers}


def spread(ctx: Any, grid: Any, image: Image, steps: int) -> Image:
    """Do all steps on the places of a grid, each on the rows that it owns."""
    kernel = KERNELS[image.dtype.name]
    u = ctx.logical_data(image.copy(), name="u")
    v = ctx.logical_data_empty(image.shape, image.dtype, name="v")
    for done in range(steps):
        with ctx.task(grid, u.read(), v.write(), symbol="heat") as t:
            for shard in t.shards(1):
                arrays = [stf_warp.array(shard, 0), stf_warp.array(shard, 1)]
                stf_warp.launch(shard, kernel, dim=shard.shape, inputs=[*arrays, *shard.start])
        u, v = v, u
        show_progress(done + 1, steps)
    return np.asarray(ctx.wait(u))


def diffuse_numpy(image: Image, steps: int) -> Image:
    """Do the same with NumPy, in the same type."""
    padded = np.pad(image, 1, mode="edge")
    inner = padded[1:-1, 1:-1]
    change = np.empty_like(image)
    for _ in range(steps):
        padded[0], padded[-1] = padded[1], padded[-2]
        padded[:, 0], padded[:, -1] = padded[:, 1], padded[:, -2]
        np.multiply(inner, image.dtype.type(-4), out=change)
        for neighbour in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
            change += neighbour
        if image.dtype.kind == "f":
            change *= np.float32(RATE)
        else:
            change >>= SHIFT
        inner += change
    return np.array(inner)


def tolerance(image: Image, steps: int) -> float:
    """Return how far two ways of rounding may drift apart: not at all with integers.

    A step takes means, which never enlarge an error, and most roundings cancel: with NumPy here and 200 steps 2e-7 of
    the largest value are left, with 4000 steps 2e-6.
    """
    if image.dtype.kind == "i":
        return 0.0
    return DRIFT * max(1, -(-steps // 1000)) * float(np.abs(image).max(initial=0.0))


def show_progress(done: int, steps: int, width: int = 40) -> None:
    """Draw a progress bar where someone looks at it."""
    if not sys.stderr.isatty():
        return
    filled = width * done // steps
    end = "\n" if done == steps else ""
    print(f"\r[{'#' * filled}{' ' * (width - filled)}] {done}/{steps}", end=end, file=sys.stderr, flush=True)


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


def resample(image: Image, size: int, dtype: str) -> Image:
    """Return the picture with size x size cells, interpolated linearly."""
    for axis in (0, 1):
        at = np.linspace(0, image.shape[axis] - 1, size, dtype=np.float32)
        low = np.minimum(at.astype(np.intp), max(image.shape[axis] - 2, 0))
        high = np.minimum(low + 1, image.shape[axis] - 1)
        part = (at - low)[:, None] if axis == 0 else at - low
        image = image.take(low, axis) * (1 - part) + image.take(high, axis) * part
    if dtype == "int32":
        image = np.rint(image * (LARGEST / max(np.abs(image).max(), 1e-30)))
    return np.ascontiguousarray(image, dtype)


def place_request(text: str) -> tuple[int, int | None] | None:
    """Return SMs of a partition and their number from the command line; None for whole devices."""
    if text == "devices":
        return None
    found = re.fullmatch(r"green:([1-9][0-9]*)(?:x([1-9][0-9]*))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"devices, green:SMS or green:SMSxCOUNT, as green:16x8: got {text!r}"
        )
    return int(found[1]), int(found[2]) if found[2] else None


def whole_number_or_0(text: str) -> int:
    """Return a count from the command line that can be 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number from 0 on: got {text!r}")
    return int(text)


def arguments() -> OneLineParser:
    """Return the parser of the command line."""
    parser = make_parser("heat", "Spread heat over a picture, split over devices or partitions of their SMs.")
    add = parser.add_argument
    add("--places", type=place_request, help="devices, or green:SMS or green:SMSxCOUNT of each device")
    add("--devices", type=whole_number, help="number of devices (default: all; with green: places the first)")
    add("--dtype", choices=KERNELS, default="float32", help="type of a cell (default: float32)")
    add("--steps", type=whole_number_or_0, default=200, help="number of steps (default: 200)")
    add("--size", type=whole_number, default=1024, help="resample to SIZE x SIZE (default: 1024)")
    add("--input", type=Path, help="a picture (default: an elevation model)")
    add("--output", type=Path, default=Path("out/heat"), help="folder to write to (default: out/heat)")
    return parser


def make_grid(machine: Any, devices: int | None, request: tuple[int, int | None] | None) -> Any:
    """Return the grid of devices, or of partitions of devices, that the rows of an array are laid over."""
    devices = devices or (machine.device_count if request is None else 1)
    if devices > machine.device_count:
        raise ValueError(f"--devices {devices}: {machine.name} has {machine.device_count} device(s)")
    if request is None:
        grid = stf.exec_place_grid.from_devices(range(devices), axes=("gpu",))
    else:
        partitions = [stf.green_places(*request, device_id=device) for device in range(devices)]
        grid = stf.exec_place_grid.create(partitions, axes=("gpu", "sm"))
    return grid.with_data(stf.partition(stf.blocked(*grid.axes), stf.whole))


def table(trace: Any, grid: Any, shape: tuple[int, ...], machine: Any) -> str:
    """Return what each place did."""
    nature = f"{machine.name}, {'simulated' if machine.simulated else 'real'}"
    layout = grid.affine_data_place.spec.bind(shape, grid)
    rows = [("place", "rows", "steps", "busy ms", "machine")]
    for index, place in enumerate(grid.places):
        context = place.backing_context
        name = f"device({place.device_id})" if context is None else f"context {context.handle:#x}"
        mine = [record for record in trace if record.kind == "task" and record.place.endswith(name)]
        label = (
            f"device {place.device_id}"
            if context is None
            else f"{place.sm_count} SMs of device {place.device_id}"
        )
        owned = "-".join(f"{box[0].start} to {box[0].stop - 1}" for box in layout.boxes(index)) or "none"
        rows.append((label, owned, str(len(mine)), f"{busy_us(mine) / 1e3:.2f}", nature))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def write(output: Path, before: Image, after: Image, ctx: Any, machine: Any) -> None:
    """Write the pictures and the timeline."""
    output.mkdir(parents=True, exist_ok=True)
    low, high = float(np.min(before)), float(np.max(before))
    for name, picture in (("before", before), ("after", after)):
        matplotlib.image.imsave(output / f"{name}.png", picture, cmap="terrain", vmin=low, vmax=high)
    save_perfetto(ctx.trace, output / "timeline.json", simulated=machine.simulated)


def demonstrate(machine: Any, options: argparse.Namespace, image: Image) -> int:
    """Run the steps, compare, print and write."""
    grid = make_grid(machine, options.devices, options.places)
    with stf.context(trace=True) as ctx:
        result = spread(ctx, grid, image, options.steps)
    worst = float(np.abs(result - diffuse_numpy(image, options.steps)).max())
    allowed = tolerance(image, options.steps)
    print(table(ctx.trace, grid, image.shape, machine))
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
        image = resample(load(options.input), options.size, options.dtype)
        with chosen_machine(options.machine) as machine:
            return demonstrate(machine, options, image)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, stf.NotSupported) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
