"""The layouts that are measured, as rules that both systems read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ITEMSIZE", "PAGE", "PLACES", "Axis", "Program", "owner_programs", "page_programs"]

PLACES = 8
ITEMSIZE = 8
PAGE = 2 << 20
BYTES = 32 << 30


@dataclass(frozen=True)
class Axis:
    """Hold an axis: block b belongs to part ``b % parts``, which adds ``part * stride`` to the place."""

    length: int
    block: int
    parts: int = 1
    stride: int = 1


@dataclass(frozen=True)
class Program:
    """Name a layout."""

    name: str
    axes: tuple[Axis, ...]


def owner_programs(elements: int) -> tuple[Program, ...]:
    """Return the layouts of a 1-D array whose elements' owners are asked for."""
    return (
        Program("blocked", (Axis(elements, -(-elements // PLACES), PLACES),)),
        Program("cyclic", (Axis(elements, 1, PLACES),)),
        Program("block_cyclic", (Axis(elements, 1000, PLACES),)),
    )


def page_programs() -> tuple[Program, ...]:
    """Return the layouts of a 32 GiB array whose pages are asked for."""
    side = 1 << 16
    width = BYTES // ITEMSIZE // side
    return (
        Program("blocked_rows", (Axis(side, side // PLACES, PLACES), Axis(width, width))),
        Program("cyclic_rows", (Axis(side, 1, PLACES), Axis(width, width))),
        Program("tiles", (Axis(side, side // 4, 4, 2), Axis(width, width // 2, 2))),
        Program("uneven_tiles", (Axis(side, 1000, 4, 2), Axis(width, 1000, 2))),
    )
