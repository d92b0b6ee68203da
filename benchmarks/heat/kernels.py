"""The Warp kernels that ours, plain Warp and the peer launch, and those that fill and compare arrays."""

from __future__ import annotations

from typing import Any

import warp as wp

from benchmarks.heat.programs import BLOCK, RATE

__all__ = ["compare", "diffuse", "fill", "start_warp"]


def start_warp() -> None:
    """Initialise Warp, its reports of what it compiles kept out of the output."""
    warp: Any = wp
    if hasattr(wp, "LOG_ERROR"):
        warp.config.log_level = warp.LOG_ERROR
    else:  # Warp before it had levels
        warp.config.quiet = True
    warp.init()


@wp.kernel
def diffuse(
    u: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    v: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    row: int,
    column: int,
) -> None:
    """Do one step of the cells from a row and a column on; at the array's edge a cell is its own neighbour."""
    i, j = wp.tid()  # type: ignore[misc]
    i, j = i + row, j + column
    north, south = u[wp.max(i - 1, 0), j], u[wp.min(i + 1, u.shape[0] - 1), j]
    west, east = u[i, wp.max(j - 1, 0)], u[i, wp.min(j + 1, u.shape[1] - 1)]
    v[i, j] = u[i, j] + RATE * (north + south + west + east - 4.0 * u[i, j])


@wp.kernel
def fill(u: wp.array2d(dtype=wp.float32), row: int, column: int) -> None:  # type: ignore[valid-type]
    """Write the first values of the cells from a row and a column on."""
    i, j = wp.tid()  # type: ignore[misc]
    i, j = i + row, j + column
    u[i, j] = wp.float32((i // BLOCK * 37 + j // BLOCK * 101) & 255) / 256.0


@wp.kernel
def compare(
    found: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    expected: wp.array2d(dtype=wp.float32),  # type: ignore[valid-type]
    first_row: int,
    worst: wp.array(dtype=wp.float32),  # type: ignore[valid-type]
) -> None:
    """Find the largest difference of some rows to those of the reference from `first_row` on."""
    i, j = wp.tid()  # type: ignore[misc]
    difference = wp.abs(found[i, j] - expected[first_row + i, j])
    if not (difference < 1.0e30):  # no number
        difference = 1.0e30
    if difference > worst[0]:
        wp.atomic_max(worst, 0, difference)
