"""Run small independent kernels one after another, on streams, and each on its own partition of SMs.

A kernel of 8 blocks cannot fill a GPU of 132 SMs. Kernels that are ordered by one token run one after another;
streams and partitions let them run at the same time, and on partitions each keeps to its own SMs.

    python examples/concurrent_kernels.py --machine sim:h200x1
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from command_line import chosen_machine, describe, make_parser
from spin_kernels import Counts, Spin, SpinKernels

import stf_places as stf

#: Each kernel: as many blocks as its partition has SMs, each of this many microseconds.
BLOCKS = 8
BLOCK_US = 1000.0
STREAMS = 8
#: Streams beyond the GPU's hardware queues share them, and then wait for each other; the driver's own number is 8.
HARDWARE_QUEUES = 32


class WrongResult(Exception):
    """Report kernels that did not count their blocks."""


def measure(spins: SpinKernels, places: Sequence[Any], lanes: int, kernels: int) -> float:
    """Return the microseconds that the kernels take, from the first submission to the last one's end.

    Kernel i runs on place i, counted around, behind the earlier kernels of lane i.
    """
    before = [np.arange(BLOCKS, dtype=np.int32) + 100 * i for i in range(kernels)]
    arrays: list[Counts] = [array.copy() for array in before]
    works = [Spin(places[i % len(places)], BLOCKS, BLOCK_US, symbol=f"kernel {i}") for i in range(kernels)]
    with stf.context() as ctx:
        data = [ctx.logical_data(array) for array in arrays]
        tokens = [ctx.token() for _ in range(lanes)]

        def run_all() -> None:
            streams: dict[int, int] = {}
            for i, work in enumerate(works):
                streams[i % lanes] = spins.submit(ctx, work, data[i], tokens[i % lanes].rw())
            for lane, stream in streams.items():
                spins.wait(ctx, tokens[lane], stream)

        run_all()  # brings the data and the kernel to the GPU
        begin = spins.now_us()
        run_all()
        duration = spins.now_us() - begin
    if not all(np.array_equal(array, old + 2) for array, old in zip(arrays, before, strict=True)):
        raise WrongResult("the arrays differ from NumPy's")
    return duration


def compare(spins: SpinKernels, kernels: int, partitions: int) -> list[tuple[int, str, float]]:
    """Measure the same kernels in three ways."""
    device = stf.exec_place.device(0)
    rows = [
        (kernels, "1 stream", measure(spins, [device], 1, kernels)),
        (kernels, f"{STREAMS} streams of the whole GPU", measure(spins, [device], STREAMS, kernels)),
    ]
    places = stf.green_places(BLOCKS, partitions)
    way = f"{len(places)} partitions of {places[0].sm_count} SMs"
    return [*rows, (kernels, way, measure(spins, places, len(places), kernels))]


def table(rows: Sequence[tuple[int, str, float]]) -> str:
    """Return a line for each way; speedups count from the same kernels on one stream."""
    lines = [f"{'kernels':>7}  {'way':<28} {'ms':>7} {'speedup':>8}"]
    alone: dict[int, float] = {}
    for kernels, way, us in rows:
        speedup = alone.setdefault(kernels, us) / us
        lines.append(f"{kernels:>7}  {way:<28} {us / 1e3:>7.2f} {speedup:>8.1f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = make_parser(
        "concurrent_kernels", "Run small kernels on one stream, on streams and on partitions."
    )
    options = parser.parse_args(argv)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", str(HARDWARE_QUEUES))
    try:
        with chosen_machine(options.machine) as machine, stf.exec_place.device(0):
            spins = SpinKernels(machine)
            rows = [*compare(spins, 8, 8), *compare(spins, 15, 15)]
            print(describe(machine), f"each kernel: {BLOCKS} blocks of {BLOCK_US / 1e3} ms", sep="\n")
    except WrongResult as error:
        print(error, file=sys.stderr)
        return 1
    except ImportError as error:
        parser.error(f"kernels for a GPU need cuda.core (pip install 'stf-places[cu13]'): {error}")
    except (ValueError, OSError, stf.NotSupported, stf.PartitionError) as error:
        parser.error(str(error))
    print(table(rows), "all results agree with NumPy", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
