"""What a layout costs in memory, before any is allocated."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["DEFAULT_PAGE", "LayoutStats", "PageRun"]

#: Bytes that CUDA's virtual memory management maps at once in the memory of a device, as a rule.
DEFAULT_PAGE = 2 << 20


@dataclass(frozen=True)
class PageRun:
    """Name neighbouring pages of an array that one place owns.

    Parameters
    ----------
    place : int
        Index of the place.
    first : int
        Number of the first page; page 0 begins with the array.
    count : int
        Number of pages.

    Examples
    --------
    >>> run = PageRun(place=1, first=4, count=2)
    >>> list(range(run.first, run.first + run.count))
    [4, 5]
    """

    place: int
    first: int
    count: int


@dataclass(frozen=True)
class LayoutStats:
    """Tell what an array takes of each place, and how well its pages follow its owners.

    Parameters
    ----------
    bytes_by_place : tuple of int
        Bytes of the elements that each place owns.
    mapped_by_place : tuple of int
        Bytes of the pages that lie on each place, whole pages.
    misplaced_bytes : int
        Bytes that lie on a page of another owner.
    page_count : int
        Pages of all copies.
    runs : int
        Pieces to map: runs of neighbouring pages of one owner.
    page : int
        Bytes of a page.
    copies : int
        Copies of the array that replicated axes ask for; all of them are in the other numbers.
    exact : bool
        False: estimated from a mapper's answers for some elements.

    Examples
    --------
    >>> print(LayoutStats((3 << 20, 1 << 20), (4 << 20, 0), 1 << 20, 2, 1, 2 << 20, 1, True))
    place       owned      mapped
    0           3 MiB       4 MiB
    1           1 MiB         0 B
    2 pages of 2 MiB in 1 run, 1 MiB misplaced (exact)
    """

    bytes_by_place: tuple[int, ...]
    mapped_by_place: tuple[int, ...]
    misplaced_bytes: int
    page_count: int
    runs: int
    page: int
    copies: int
    exact: bool

    def __str__(self) -> str:
        """Return a table with one line a place."""
        rows = [("place", "owned", "mapped")]
        for place, both in enumerate(zip(self.bytes_by_place, self.mapped_by_place, strict=True)):
            rows.append((str(place), _readable(both[0]), _readable(both[1])))
        pages = "page" if self.page_count == 1 else "pages"
        runs = "run" if self.runs == 1 else "runs"
        copies = f" of {self.copies} copies" if self.copies > 1 else ""
        last = (
            f"{self.page_count} {pages} of {_readable(self.page)} in {self.runs} {runs}{copies}, "
            f"{_readable(self.misplaced_bytes)} misplaced ({'exact' if self.exact else 'estimated from samples'})"
        )
        return "\n".join([*(f"{place:<6}{owned:>11} {mapped:>11}" for place, owned, mapped in rows), last])

    def to_json(self) -> str:
        """Return the fields as a JSON object."""
        return json.dumps(asdict(self))


def _readable(nbytes: int) -> str:
    """Return a size with three digits, or all of an integral number below 1024."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if size == int(size) or size >= 999.5 else f"{size:.3g} {unit}"
