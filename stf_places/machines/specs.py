"""Descriptions of simulated machines: the files that ship, and files of one's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from stf_places.machines.schema import Fields, boolean, check_object, integer, number, parse, text

__all__ = ["CallCosts", "DeviceSpec", "LinkSpec", "MachineSpec", "load", "names"]

VERSION = 1


@dataclass(frozen=True)
class DeviceSpec:
    """Describe a device of a simulated machine.

    Parameters
    ----------
    name : str
        Its name.
    sm_count : int
        Streaming multiprocessors.
    compute_major, compute_minor : int
        Compute capability.
    min_partition : int
        The smallest partition, in SMs.
    alignment : int
        What partitions are multiples of, in SMs.
    aligned_sms : int
        How many of its SMs lie in whole groups of `alignment` SMs, 0 for as many as `sm_count` has. Partitions of
        one such group are made of these only.
    resplit_loss : int
        SMs that each partition loses when a green context's own SMs are split into equal parts without a rest.
    memory : int
        Bytes.
    bandwidth : float
        Of its memory in GB/s, read and write each at this rate.
    copy_engines : int
        Copies that can run at the same time.
    page : int
        Bytes of a page of mapped memory: a power of two from 4096 on. Files may leave it out.
    """

    name: str
    sm_count: int
    compute_major: int
    compute_minor: int
    min_partition: int
    alignment: int
    aligned_sms: int
    resplit_loss: int
    memory: int
    bandwidth: float
    copy_engines: int
    page: int = 2 << 20


@dataclass(frozen=True)
class LinkSpec:
    """Describe a directed link.

    Parameters
    ----------
    start, end : int
        Device ordinals, -1 for the host; ``from`` and ``to`` in files.
    peer : bool
        True when `start` can reach the memory of `end` directly.
    bandwidth : float
        GB/s.
    latency_us : float
        Microseconds.
    """

    start: int
    end: int
    peer: bool
    bandwidth: float
    latency_us: float


@dataclass(frozen=True)
class CallCosts:
    """Describe how long calls keep the calling thread, in microseconds.

    Parameters
    ----------
    event_record, event_wait, kernel_launch, copy_submit, host_function, allocate, synchronize, query : float
        The call of that name.
    green_context : float
        Making one.
    kernel_latency : float
        From start to end of an empty kernel; costs the calling thread nothing.
    page_map : float
        Mapping or unmapping one piece of page-mapped memory. Files may leave out this and the next two.
    page_access : float
        Letting devices access such memory, for each page.
    piece_access : float
        The same for each piece, on top of its pages.
    graph_node : float
        Recording one node of a graph, or taking it over into an executable. Files may leave out this and what
        follows.
    graph_instantiate_node : float
        Making an executable, for each node.
    graph_launch : float
        Launching one.
    graph_launch_node, graph_launch_edge : float
        The same for each node, and for each edge off a straight line: where a node follows another one that has a
        follower already, or several others.
    graph_round : float
        From start to end of setting the condition of a loop, once a round; costs the calling thread nothing.
    """

    event_record: float
    event_wait: float
    kernel_launch: float
    kernel_latency: float
    copy_submit: float
    host_function: float
    allocate: float
    synchronize: float
    query: float
    green_context: float
    page_map: float = 0
    page_access: float = 0
    piece_access: float = 0
    graph_node: float = 0
    graph_instantiate_node: float = 0
    graph_launch: float = 0
    graph_launch_node: float = 0
    graph_launch_edge: float = 0
    graph_round: float = 0


@dataclass(frozen=True)
class MachineSpec:
    """Describe a simulated machine.

    Parameters
    ----------
    name : str
        Its name.
    driver_version : int
        The version that its driver claims, 13000 for CUDA 13.0.
    devices : tuple of DeviceSpec
        By ordinal.
    links : tuple of LinkSpec
        At most one for each ordered pair of ends. Devices without one copy through the host.
    costs : CallCosts
        Costs of calls.
    estimated : tuple of str
        The fields that nobody measured, such as ``"costs.query"`` or ``"devices.copy_engines"``.
    """

    name: str
    driver_version: int
    devices: tuple[DeviceSpec, ...]
    links: tuple[LinkSpec, ...]
    costs: CallCosts
    estimated: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the layout that the simulated driver takes: what counts for it, so without `estimated`."""
        links = []
        for link in self.links:
            given = asdict(link)
            links.append({"from": given.pop("start"), "to": given.pop("end"), **given})
        return {
            "name": self.name,
            "driver_version": self.driver_version,
            "devices": [asdict(device) for device in self.devices],
            "links": links,
            "costs": asdict(self.costs),
        }


_SHIPPED = Path(__file__).parent / "data"


def names() -> tuple[str, ...]:
    """Return the names of the machines that ship, sorted.

    Examples
    --------
    >>> "h200x2" in names()
    True
    """
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def load(name_or_path: str | os.PathLike[str]) -> MachineSpec:
    """Return the description of a machine that ships, or of one in a file.

    Parameters
    ----------
    name_or_path : str or path
        One of `names`, or the path of a file that ends in ``.json``.

    Raises
    ------
    TypeError
        If it is neither a string nor a path.
    ValueError
        If there is no such machine, the file cannot be read, or its content does not fit the schema.

    Examples
    --------
    >>> load("h200x2").devices[1].sm_count
    132
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(f"a machine is given by name or path, such as 'h200x2': got {name_or_path!r}")
    given = os.fspath(name_or_path)
    if given.endswith(".json"):
        return _read(given, Path(given))
    if os.sep in given or isinstance(name_or_path, os.PathLike):
        raise ValueError(f"the path of a machine file ends in .json: got {given!r}")
    if given not in names():
        raise ValueError(
            f"a machine is one of {', '.join(names())}, or a path that ends in .json: got {given!r}"
        )
    return _read(given, _SHIPPED / f"{given}.json")


def _read(given: str, path: Path) -> MachineSpec:
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"machine file {given!r} cannot be read: {error}") from error
    where = f"machine file {given!r}"
    return _checked(where, parse(where, content))


_DEVICE: Fields = {
    "name": text,
    "sm_count": integer(1),
    "compute_major": integer(1),
    "compute_minor": integer(0),
    "min_partition": integer(1),
    "alignment": integer(1),
    "aligned_sms": integer(0),
    "resplit_loss": integer(0),
    "memory": integer(1),
    "bandwidth": number(positive=True),
    "copy_engines": integer(1),
    "page": integer(4096),
}
_LINK: Fields = {
    "from": integer(-1),
    "to": integer(-1),
    "peer": boolean,
    "bandwidth": number(positive=True),
    "latency_us": number(),
}
_COSTS: Fields = {field.name: number() for field in fields(CallCosts)}
# What older files lack: costs that came later, and what they came with.
_OPTIONAL = frozenset({"page"} | {field.name for field in fields(CallCosts) if field.default == 0})


def _filled_list(where: str, value: Any) -> None:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where} is a list that is not empty: got {value!r}")


def _strings(where: str, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f"{where} is a list of strings: got {value!r}")


def _costs(where: str, value: Any) -> None:
    check_object(where, value, _COSTS, optional=_OPTIONAL)


_MACHINE: Fields = {
    "version": integer(1),
    "name": text,
    "driver_version": integer(12000),
    "devices": _filled_list,
    "links": _filled_list,
    "costs": _costs,
    "estimated": _strings,
}


def _checked(where: str, given: Any) -> MachineSpec:
    # A file of another version may have other fields, so that its version is what to complain about.
    if isinstance(given, dict) and given.get("version", VERSION) != VERSION:
        raise ValueError(f"{where}: version {VERSION} is supported: got {given['version']!r}")
    check_object(where, given, _MACHINE)
    for ordinal, device in enumerate(given["devices"]):
        check_object(f"{where}, device {ordinal}", device, _DEVICE, optional=_OPTIONAL)
        _check_partitions(f"{where}, device {ordinal}", device)
        _check_page(f"{where}, device {ordinal}", device)
    _check_links(where, given["links"], len(given["devices"]))
    _check_estimated(where, given)
    return MachineSpec(
        name=given["name"],
        driver_version=given["driver_version"],
        devices=tuple(DeviceSpec(**device) for device in given["devices"]),
        links=tuple(_link(link) for link in given["links"]),
        costs=CallCosts(**given["costs"]),
        estimated=tuple(given["estimated"]),
    )


def _check_partitions(where: str, device: Mapping[str, Any]) -> None:
    sm_count, alignment = device["sm_count"], device["alignment"]
    if device["min_partition"] > sm_count:
        raise ValueError(
            f"{where}: min_partition is at most sm_count {sm_count}: got {device['min_partition']}"
        )
    if device["aligned_sms"] > sm_count or device["aligned_sms"] % alignment:
        raise ValueError(
            f"{where}: aligned_sms is a multiple of alignment {alignment}, at most sm_count {sm_count}: "
            f"got {device['aligned_sms']}"
        )
    if device["resplit_loss"] > alignment:
        raise ValueError(
            f"{where}: resplit_loss is at most alignment {alignment}: got {device['resplit_loss']}"
        )


def _check_page(where: str, device: Mapping[str, Any]) -> None:
    page = device.get("page", 4096)
    if page & (page - 1):
        raise ValueError(f"{where}: page is a power of two, such as 4096 or 2097152: got {page}")


def _link(given: Mapping[str, Any]) -> LinkSpec:
    rest = {name: given[name] for name in ("peer", "bandwidth", "latency_us")}
    return LinkSpec(start=given["from"], end=given["to"], **rest)


def _check_links(where: str, links: list[Any], device_count: int) -> None:
    pairs = set()
    for position, link in enumerate(links):
        at = f"{where}, link {position}"
        check_object(at, link, _LINK)
        pair = (link["from"], link["to"])
        if max(pair) >= device_count or pair[0] == pair[1]:
            raise ValueError(
                f"{at} joins two different ends out of -1 (the host) to {device_count - 1}: got {pair[0]} to {pair[1]}"
            )
        if pair in pairs:
            raise ValueError(f"{at}: one link leads from an end to another: got {pair[0]} to {pair[1]} again")
        if link["peer"] and -1 in pair:
            raise ValueError(f"{at}: peers are two devices: got {pair[0]} to {pair[1]} with peer true")
        pairs.add(pair)
    for device in range(device_count):
        for pair in ((-1, device), (device, -1)):
            if pair not in pairs:
                raise ValueError(
                    f"{where}: each device has links from and to the host (-1): {pair[0]} to {pair[1]} missing"
                )


def _check_estimated(where: str, given: Mapping[str, Any]) -> None:
    known = {"driver_version"}
    for part, checks in (("devices", _DEVICE), ("links", _LINK), ("costs", _COSTS)):
        known |= {f"{part}.{name}" for name in checks}
    unknown = sorted(set(given["estimated"]) - known)
    if unknown:
        raise ValueError(
            f"{where}: estimated names fields, such as 'costs.query' or 'devices.memory': "
            f"got {', '.join(map(repr, unknown))}"
        )
