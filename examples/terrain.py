"""What the examples on graphs share: the terrain that they work on, the place, and the clock."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from command_line import OneLineParser, chosen_machine, make_parser
from heat import load, quiet_warp, resample

import stf_places as stf

Array: TypeAlias = npt.NDArray[Any]

#: How much of a substance on the terrain decays.
DECAY = 0.01


def elevation(size: int) -> Array:
    """Return the elevation model that comes with matplotlib, with size x size cells from -1 to 1, as float64."""
    heights = np.asarray(resample(load(None), size, "float32"), np.float64)
    return np.asarray(heights / max(np.abs(heights).max(), 1e-30))


def transport_matrix(heights: Array, downhill: float) -> tuple[Array, Array, Array]:
    """Return where the rows begin, the columns and the values of the matrix of a substance that spreads and decays.

    The unknowns are the cells, in C order: -div(k grad u) + div(w u) + c u, without a flow over the border. The
    conductivity k grows with the elevation. The velocity w is the slope downhill times `downhill`; with 0 the matrix
    is symmetric. Discretised by finite volumes, upwind.
    """
    rows, columns = heights.shape
    unknown = np.pad(np.arange(heights.size).reshape(heights.shape), 1, constant_values=-1)
    height, k = np.pad(heights, 1, "edge"), np.pad(np.exp(heights), 1)

    def seen(array: Array, down: int, right: int) -> Array:
        return array[1 + down : 1 + down + rows, 1 + right : 1 + right + columns]

    here, diagonal, neighbours = seen(k, 0, 0), np.full(heights.shape, DECAY), []
    for step in ((-1, 0), (0, -1), (0, 1), (1, 0)):
        there = seen(k, *step)
        spread = 2 * here * there / (here + there)
        flow = downhill * (heights - seen(height, *step))
        diagonal += spread + np.maximum(flow, 0)
        neighbours.append((seen(unknown, *step), np.minimum(flow, 0) - spread))
    neighbours.insert(2, (seen(unknown, 0, 0), diagonal))
    numbers, values = (np.stack(parts, axis=-1).reshape(-1, 5) for parts in zip(*neighbours, strict=True))
    there_is = numbers >= 0
    starts = np.concatenate(([0], there_is.sum(axis=1).cumsum()))
    return starts.astype(np.int32), numbers[there_is].astype(np.int32), values[there_is]


def place_request(text: str) -> int | None:
    """Return the SMs of a partition from the command line; None for a whole device."""
    found = re.fullmatch(r"device|green:([1-9][0-9]*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"device or green:SMS, as green:16: got {text!r}")
    return int(found[1]) if found[1] else None


def parser_with_place(name: str, description: str) -> OneLineParser:
    """Return a parser with the machine and the place."""
    parser = make_parser(name, description)
    parser.add_argument(
        "--place", type=place_request, help="device, or green:SMS, a partition of it (default: device)"
    )
    return parser


def chosen_place(sms: int | None) -> Any:
    """Return device 0, or a partition of so many of its SMs."""
    return stf.exec_place.device(0) if sms is None else stf.green_places(sms, 1)[0]


def now_us(machine: Any) -> float:
    """Return the time in microseconds: the simulated machine's clock, or this computer's."""
    return float(machine.now_us) if machine.simulated else time.perf_counter_ns() / 1e3


def nature(machine: Any) -> str:
    """Return what such times are worth."""
    return "simulated" if machine.simulated else "measured"


def driver_of(loop: Any) -> str:
    """Return who goes round a loop that has ended, and why not the device."""
    why = "" if loop.on_device else f", since {loop.host_reason}"
    return f"on_device={loop.on_device}{why}"


def run_example(
    parser: OneLineParser,
    argv: Sequence[str] | None,
    demonstrate: Callable[[Any, argparse.Namespace], bool],
) -> int:
    """Run an example on the machine of its arguments and return the exit status: 0 if its result is right."""
    options = parser.parse_args(argv)
    quiet_warp()
    try:
        with chosen_machine(options.machine) as machine:
            return 0 if demonstrate(machine, options) else 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, stf.NotSupported) as error:
        parser.error(str(error))
