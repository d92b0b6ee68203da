"""Proof of partitions: `verify_places` looks where the work of places really runs, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import index
from typing import Any, SupportsFloat, SupportsIndex

from stf_places._native.grids import exec_place_grid
from stf_places._native.places import exec_place
from stf_places.places.probe_runs import RESIDENT_BLOCKS, ProbeLoad, ProbeSite, sightings

__all__ = ["PlaceProbe", "PlacesReport", "verify_places"]

_MOST_BLOCKS = 64
_DURATIONS_US = (10.0, 100_000.0)
_MOST_LINES = 8  # of one kind in a report


@dataclass(frozen=True)
class PlaceProbe:
    """Tell what was seen of one place.

    Parameters
    ----------
    place : exec_place
        The place.
    sm_count : int
        SMs that it was granted.
    sm_ids : tuple of int
        SMs that its work ran on, ascending: the hardware's numbers within the device.
    start_us, end_us : float
        When its work began and ended in the run of all places at once, in microseconds after the first start
        on its device.

    Examples
    --------
    >>> PlaceProbe(exec_place.device(1), 4, (0, 1, 2, 3), 0.0, 1200.0).device_id
    1
    """

    place: exec_place
    sm_count: int
    sm_ids: tuple[int, ...]
    start_us: float
    end_us: float

    @property
    def device_id(self) -> int:
        """Ordinal of the device."""
        return self.place.device_id


@dataclass(frozen=True)
class PlacesReport:
    """Tell what `verify_places` found. As text it is a table and plain sentences.

    Parameters
    ----------
    probes : tuple of PlaceProbe
        One a place, in the order given.
    machine : str
        ``"cuda"``, or the name of the simulated machine.
    simulated : bool
        True when ids and times are those of a simulated machine's model.

    Examples
    --------
    >>> whole, part = exec_place.device(0), exec_place.device(0)
    >>> both = (PlaceProbe(whole, 3, (0, 1, 2), 0.0, 10.0), PlaceProbe(part, 1, (2,), 5.0, 15.0))
    >>> report = PlacesReport(both, "cuda", False)
    >>> report.exact, report.disjoint, report.shared, report.overlap
    (True, False, {(0, 2): (0, 1)}, 0.5)
    """

    probes: tuple[PlaceProbe, ...]
    machine: str
    simulated: bool

    @property
    def ok(self) -> bool:
        """True when it is disjoint and exact."""
        return self.disjoint and self.exact

    @property
    def disjoint(self) -> bool:
        """True when no SM of a device was seen on two places."""
        return not self.shared

    @property
    def exact(self) -> bool:
        """True when each place was seen on as many SMs as it was granted."""
        return all(len(probe.sm_ids) == probe.sm_count for probe in self.probes)

    @property
    def shared(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Places (their numbers) by the device and SM id that they were seen on, for SMs of several places."""
        seen: dict[tuple[int, int], list[int]] = {}
        for number, probe in enumerate(self.probes):
            for sm_id in probe.sm_ids:
                seen.setdefault((probe.device_id, sm_id), []).append(number)
        return {sm: tuple(numbers) for sm, numbers in sorted(seen.items()) if len(numbers) > 1}

    @property
    def overlap(self) -> float:
        """Overlap in time of all places of a device: the lowest share over places and devices.

        Of a place: the part of its time at work, from its first start to its last end, during which all others of
        its device were at work too. 1.0 where a device has one place.
        """
        shares = []
        for probes in self._by_device().values():
            common = min(probe.end_us for probe in probes) - max(probe.start_us for probe in probes)
            longest = max(probe.end_us - probe.start_us for probe in probes)
            shares.append(max(common, 0.0) / longest if longest > 0 else 1.0)
        return min(shares, default=1.0)

    @property
    def most_at_once(self) -> dict[int, int]:
        """The most places at work at one moment, by device."""
        return {device: _most_at_once(probes) for device, probes in self._by_device().items()}

    def to_json(self) -> str:
        """Return what was found as a JSON object."""
        places = [
            {
                "place": number,
                "device": probe.device_id,
                "sm_count": probe.sm_count,
                "sm_ids": probe.sm_ids,
                "start_us": probe.start_us,
                "end_us": probe.end_us,
            }
            for number, probe in enumerate(self.probes)
        ]
        shared = [{"device": sm[0], "sm_id": sm[1], "places": found} for sm, found in self.shared.items()]
        return json.dumps(
            {
                "ok": self.ok,
                "disjoint": self.disjoint,
                "exact": self.exact,
                "overlap": self.overlap,
                "machine": self.machine,
                "simulated": self.simulated,
                "shared": shared,
                "places": places,
            }
        )

    def __str__(self) -> str:
        """Return a table, one line a place, and what follows from it."""
        lines = ["place  device  granted  seen  SM ids"]
        lines += [
            f"{number:>5}  {probe.device_id:>6}  {probe.sm_count:>7}  {len(probe.sm_ids):>4}  {_ranges(probe.sm_ids)}"
            for number, probe in enumerate(self.probes)
        ]
        return "\n".join([*lines, *self._about_sms(), *self._about_times(), self._about_machine()])

    def _by_device(self) -> dict[int, list[PlaceProbe]]:
        found: dict[int, list[PlaceProbe]] = {}
        for probe in self.probes:
            found.setdefault(probe.device_id, []).append(probe)
        return found

    def _about_sms(self) -> list[str]:
        """Return sentences on disjointness and exactness."""
        shared = self.shared
        lines = ["Disjoint: no SM was seen on two places."] if not shared else []
        groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for (device, sm_id), numbers in shared.items():
            groups.setdefault((device, numbers), []).append(sm_id)
        lines += _at_most(
            f"Not disjoint: SMs {_ranges(ids)} of device {device} were seen on places {_ranges(numbers)}."
            for (device, numbers), ids in groups.items()
        )
        if self.exact:
            lines.append("Exact: each place was seen on as many SMs as it was granted.")
        lines += _at_most(
            f"Not exact: place {number} was granted {probe.sm_count} SMs and seen on {len(probe.sm_ids)}."
            for number, probe in enumerate(self.probes)
            if len(probe.sm_ids) != probe.sm_count
        )
        if any(self._has_shared_surplus(probe, shared) for probe in self.probes):
            lines.append(
                "Places used more SMs than granted, and share some. On compute capability 9 the driver allows two "
                "more, shared SMs to kernels of green contexts once a module with dynamic parallelism was loaded."
            )
        return lines

    @staticmethod
    def _has_shared_surplus(probe: PlaceProbe, shared: dict[tuple[int, int], tuple[int, ...]]) -> bool:
        surplus = len(probe.sm_ids) - probe.sm_count
        return surplus > 0 and any((probe.device_id, sm_id) in shared for sm_id in probe.sm_ids)

    def _about_times(self) -> list[str]:
        """Return sentences on overlap; none where no device has two places."""
        together = {device: len(probes) for device, probes in self._by_device().items() if len(probes) > 1}
        if not together:
            return []
        percent = int(self.overlap * 100)
        lines = [
            f"Overlap: each place spent {percent} % of its time or more at work together with all others of its device."
            if percent
            else "No overlap: places of a device were never all at work at once."
        ]
        most = self.most_at_once
        lines += _at_most(
            f"At most {most[device]} of the {count} places of device {device} were at work at one moment."
            for device, count in together.items()
            if most[device] < count
        )
        return lines

    def _about_machine(self) -> str:
        if self.simulated:
            return f"Simulated machine {self.machine}: ids and times are its model's, no GPU was looked at."
        return "Seen by a kernel on the GPU, on each place alone and on all at once; the times are of the latter."


def verify_places(
    places: exec_place | Iterable[exec_place],
    *,
    blocks_per_sm: SupportsIndex = 8,
    duration_us: SupportsFloat = 300.0,
) -> PlacesReport:
    """Look where the work of places runs, whether that is disjoint, and whether it overlaps in time.

    Parameters
    ----------
    places : exec_place or iterable of exec_place
        Places of `green_places` or `from_context`, whole devices, and grids, which stand for their places. A whole
        device has all its SMs, so it is not disjoint from its partitions.
    blocks_per_sm : int
        Blocks of the probe for each SM, 2 to 64. An SM holds 2 at once, so the places are at work for
        ``blocks_per_sm / 2`` times `duration_us`.
    duration_us : float
        Microseconds that each block spins, 10 to 100000. Places can only be at work at once if they are for longer
        than it takes to launch on all of them.

    Returns
    -------
    PlacesReport
        ``print`` shows it.

    Raises
    ------
    TypeError
        If an item is no place, or a number is none.
    ValueError
        If there is no place, one is the host, or a number is outside its range.
    PartitionError
        If a place was replaced by `repartition`.
    WrongContext
        If a place belongs to a machine that was in use earlier.
    InvalidDevice
        If the machine has no such device.
    ImportError
        If the probe cannot be compiled on a real machine, because cuda.core or NVRTC is missing.
    OutOfMemory
        If there is no room for the results, 24 bytes a block.
    KeyboardInterrupt
        If Ctrl-C ended a wait.

    Notes
    -----
    On a real machine a kernel of large blocks runs on streams of its own, on each place alone and then on all at
    once. Work that other streams have on these SMs meanwhile only delays it. The kernel is compiled at the first
    call and kept in ``stf_places`` in the user's cache folder (XDG_CACHE_HOME, else ``~/.cache``). A simulated
    machine is asked for its model's SM ids, and work is put on its clock. The caller's current context is not
    touched.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     report = verify_places(stf.green_places([8, 104]))
    >>> report.ok
    True
    >>> print(report)
    place  device  granted  seen  SM ids
        0       0        8     8  0-7
        1       0      104   104  8-111
    Disjoint: no SM was seen on two places.
    Exact: each place was seen on as many SMs as it was granted.
    Overlap: each place spent 99 % of its time or more at work together with all others of its device.
    Simulated machine h200x1: ids and times are its model's, no GPU was looked at.
    """
    from stf_places._native import runtime
    from stf_places._native.places import exec_place_resources

    load = ProbeLoad(_blocks(blocks_per_sm), _duration(duration_us))
    given = _single_places(places)
    driver = runtime.current().driver
    streams = exec_place_resources()
    # A stream is asked for first: that refuses places that cannot be used.
    sites = [ProbeSite(place.device_id, int(place.pick_stream(streams)), place.sm_count) for place in given]
    seen = sightings(driver, sites, load)
    first: dict[int, int] = {}
    for site, sight in zip(sites, seen, strict=True):
        first[site.device_id] = min(first.get(site.device_id, sight.start_ns), sight.start_ns)
    probes = tuple(
        PlaceProbe(
            place,
            site.sm_count,
            tuple(sorted(sight.sm_ids)),
            (sight.start_ns - first[site.device_id]) / 1000,
            (sight.end_ns - first[site.device_id]) / 1000,
        )
        for place, site, sight in zip(given, sites, seen, strict=True)
    )
    return PlacesReport(probes, driver.machine, driver.simulated)


def _single_places(places: object) -> list[exec_place]:
    """Return the places that were given, grids taken apart."""
    if isinstance(places, exec_place):
        places = (places,)
    if isinstance(places, (str, bytes)) or not isinstance(places, Iterable):
        raise TypeError(
            f"verify_places takes a place or several: got {places!r} ({type(places).__name__}); give what "
            "green_places() returned, exec_place.device(i) or a grid"
        )
    found: list[exec_place] = []
    for number, place in enumerate(places):
        if not isinstance(place, exec_place):
            raise TypeError(
                f"verify_places takes execution places: got {place!r} ({type(place).__name__}) as item {number}; give "
                "places of green_places() or from_context(), exec_place.device(i) or grids"
            )
        found += place.places if isinstance(place, exec_place_grid) else (place,)
    if not found:
        raise ValueError(
            "verify_places takes one place or more: got none; give what green_places() returned, for instance"
        )
    if any(place.kind == "host" for place in found):
        raise ValueError(
            "verify_places looks at places that have SMs: got exec_place.host() among them; leave it out"
        )
    return found


def _blocks(given: object) -> int:
    if isinstance(given, bool) or not hasattr(type(given), "__index__"):
        raise TypeError(f"blocks_per_sm is an int: got {given!r} ({type(given).__name__})")
    number = index(given)  # type: ignore[arg-type]
    if not RESIDENT_BLOCKS <= number <= _MOST_BLOCKS:
        raise ValueError(
            f"blocks_per_sm is {RESIDENT_BLOCKS} to {_MOST_BLOCKS}, since an SM holds {RESIDENT_BLOCKS} and fewer "
            f"could leave SMs out: got {number}"
        )
    return number


def _duration(given: Any) -> float:
    if isinstance(given, (bool, str, bytes)) or not (
        hasattr(type(given), "__float__") or hasattr(type(given), "__index__")
    ):
        raise TypeError(f"duration_us is a number of microseconds: got {given!r} ({type(given).__name__})")
    least, most = _DURATIONS_US
    number = float(given)
    if not least <= number <= most:  # NaN neither
        raise ValueError(f"duration_us is {least:g} to {most:g} microseconds: got {number:g}")
    return number


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in short: ``0-7,16``."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _at_most(sentences: Iterable[str]) -> list[str]:
    """Return the first few sentences and how many more there are."""
    lines = list(sentences)
    left = len(lines) - _MOST_LINES
    return lines if left <= 0 else [*lines[:_MOST_LINES], f"... and {left} more of this kind."]


def _most_at_once(probes: Sequence[PlaceProbe]) -> int:
    """Return how many were at work at the moment when most were; one that ends when another starts is over."""
    changes = sorted(
        [(probe.start_us, 1) for probe in probes] + [(probe.end_us, -1) for probe in probes],
    )
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most
