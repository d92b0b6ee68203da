"""Keep a small urgent kernel fast while a bulk kernel fills the GPU, with a partition of SMs of its own.

On plain streams the urgent kernel waits for the whole bulk kernel; with the highest priority for the blocks that run
already; on its own partition, with the bulk on the rest of the SMs, for nobody.

    python examples/latency_isolation.py --machine sim:h200x1
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from command_line import chosen_machine, describe, make_parser, whole_number
from spin_kernels import BLOCKS_PER_SM, Counts, Spin, SpinKernels

import stf_places as stf

#: The urgent kernel: one block.
URGENT_US = 28.0
#: The bulk kernel: on the whole GPU 11 rounds of blocks of 100 us.
BULK_WAVES = 11
BULK_BLOCK_US = 100.0
#: SMs of the urgent kernel's partition, the fewest that an H200 grants.
URGENT_SMS = 8
#: The highest stream priority there is; the driver takes less where it has less.
HIGHEST_PRIORITY = 5
#: Rounds before the first that counts, and bulk kernels that are timed alone.
WARM_UP = 3
BULK_REPEATS = 5


class WrongResult(Exception):
    """Report kernels that did not count their blocks."""


@dataclass
class Measured:
    """Hold what one way gave: microseconds of each urgent kernel, and of the bulk kernel alone."""

    way: str
    urgent_us: list[float]
    bulk_us: float

    @property
    def p50(self) -> float:
        """The middle one."""
        return float(np.percentile(self.urgent_us, 50))

    @property
    def p99(self) -> float:
        """All but one in a hundred are below."""
        return float(np.percentile(self.urgent_us, 99))


def measure(spins: SpinKernels, way: str, urgent: Spin, bulk: Spin, probes: int) -> Measured:
    """Time urgent kernels, each submitted right behind a fresh bulk kernel, until it is known to be done."""
    urgent_count: Counts = np.zeros(urgent.blocks, np.int32)
    bulk_count: Counts = np.zeros(bulk.blocks, np.int32)
    with stf.context() as ctx:
        urgent_data, bulk_data = ctx.logical_data(urgent_count), ctx.logical_data(bulk_count)
        urgent_done, bulk_done = ctx.token(), ctx.token()

        def time_bulk() -> float:
            begin = spins.now_us()
            spins.wait(ctx, bulk_done, spins.submit(ctx, bulk, bulk_data, bulk_done.rw()))
            return spins.now_us() - begin

        def probe() -> float:
            bulk_stream = spins.submit(ctx, bulk, bulk_data, bulk_done.rw())
            begin = spins.now_us()
            spins.wait(ctx, urgent_done, spins.submit(ctx, urgent, urgent_data, urgent_done.rw()))
            latency = spins.now_us() - begin
            spins.wait(ctx, bulk_done, bulk_stream)
            return latency

        times = [probe() for _ in range(WARM_UP + probes)][WARM_UP:]
        bulk_us = median(time_bulk() for _ in range(BULK_REPEATS))
    rounds = WARM_UP + probes
    if (urgent_count != rounds).any() or (bulk_count != rounds + BULK_REPEATS).any():
        raise WrongResult(f"{way}: not every block ran once")
    return Measured(way, times, bulk_us)


def compare(spins: SpinKernels, probes: int) -> list[Measured]:
    """Measure the same two kernels in three ways."""
    device = stf.exec_place.device(0)
    blocks = BULK_WAVES * BLOCKS_PER_SM * device.sm_count
    bulk = Spin(device, blocks, BULK_BLOCK_US, symbol="bulk")
    urgent = Spin(device, 1, URGENT_US, symbol="urgent")
    first = Spin(device, 1, URGENT_US, HIGHEST_PRIORITY, "urgent")
    rows = [
        measure(spins, "plain streams", urgent, bulk, probes),
        measure(spins, "highest priority", first, bulk, probes),
    ]
    places = stf.green_places(URGENT_SMS, 1)
    rest = stf.exec_place.rest(places)
    own = Spin(places[0], 1, URGENT_US, symbol="urgent")
    beside = Spin(rest, blocks, BULK_BLOCK_US, symbol="bulk")
    way = f"own {places[0].sm_count}-SM partition"
    return [*rows, measure(spins, way, own, beside, probes)]


def report(rows: Sequence[Measured]) -> str:
    """Return the table and what follows from it."""
    lines = [f"{'way':<20} {'p50 us':>8} {'p99 us':>8} {'bulk alone, ms':>15}"]
    lines += [f"{row.way:<20} {row.p50:>8.0f} {row.p99:>8.0f} {row.bulk_us / 1e3:>15.2f}" for row in rows]
    plain, partition = rows[0], rows[-1]
    lines += [
        f"on its partition the urgent kernel is done {plain.p50 / partition.p50:.0f} times sooner (p50); the bulk "
        f"kernel on the rest takes {partition.bulk_us / plain.bulk_us:.2f} times as long",
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = make_parser("latency_isolation", "Time an urgent kernel behind a bulk kernel, in three ways.")
    parser.add_argument("--probes", type=whole_number, default=50, help="urgent kernels a way (default: 50)")
    options = parser.parse_args(argv)
    try:
        with chosen_machine(options.machine) as machine, stf.exec_place.device(0):
            rows = compare(SpinKernels(machine), options.probes)
            print(describe(machine))
    except WrongResult as error:
        print(error, file=sys.stderr)
        return 1
    except ImportError as error:
        parser.error(f"kernels for a GPU need cuda.core (pip install 'stf-places[cu13]'): {error}")
    except (ValueError, OSError, stf.NotSupported, stf.PartitionError) as error:
        parser.error(str(error))
    print(f"urgent kernel: 1 block of {URGENT_US:.0f} us, {options.probes} times", report(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
