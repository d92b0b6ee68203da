"""Run `verify_places`' probes: a kernel on real GPUs, work on the clock of a simulated machine."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stf_places._native.places import exec_place
from stf_places.places.compiled_kernels import kernel_for
from stf_places.places.probe_kernels import PROBE

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle

__all__ = ["ProbeLoad", "ProbeSite", "Sighting", "kernel_sightings", "sightings", "simulated_sightings"]

# An SM holds two blocks of 1024 threads (one on chips of 1536 threads an SM). Twice the SMs in blocks that all spin
# can therefore only be at work at once on all SMs.
_THREADS = 1024
RESIDENT_BLOCKS = 2
# How often a place is looked at alone while fewer SMs were seen than granted, because other work held some.
_TRIES = 3
_FIELDS = 3  # of a block's record: SM, start, end


@dataclass(frozen=True)
class ProbeSite:
    """Say where a probe runs.

    Parameters
    ----------
    device_id : int
        Ordinal of the device.
    stream : int
        A stream of the place.
    sm_count : int
        SMs that the place was granted.
    """

    device_id: int
    stream: int
    sm_count: int


@dataclass(frozen=True)
class ProbeLoad:
    """Say how much a probe does.

    Parameters
    ----------
    blocks_per_sm : int
        Blocks for each granted SM.
    duration_us : float
        How long each block spins.
    """

    blocks_per_sm: int
    duration_us: float

    @property
    def busy_us(self) -> float:
        """How long a place is at work that holds two blocks an SM."""
        return self.duration_us * self.blocks_per_sm / RESIDENT_BLOCKS


@dataclass(frozen=True)
class Sighting:
    """Tell what a probe saw.

    Parameters
    ----------
    sm_ids : frozenset of int
        The SMs that its blocks ran on.
    start_ns, end_ns : int
        First start and last end in the run of all places, on a clock of the device.
    """

    sm_ids: frozenset[int]
    start_ns: int
    end_ns: int


def sightings(driver: DriverHandle, sites: Sequence[ProbeSite], load: ProbeLoad) -> list[Sighting]:
    """Return what the probes of all sites see.

    Raises
    ------
    ImportError
        If the kernel cannot be compiled because cuda.core or NVRTC is missing.
    DriverError
        If the driver refuses something, memory included.
    KeyboardInterrupt
        If Ctrl-C ended a wait.
    """
    if driver.simulated:
        return simulated_sightings(driver, sites, load)
    kernels = {site.device_id: kernel_for(driver, site.device_id, PROBE) for site in sites}
    return kernel_sightings(driver, sites, load, kernels)


def simulated_sightings(driver: DriverHandle, sites: Sequence[ProbeSite], load: ProbeLoad) -> list[Sighting]:
    """Return the model's SM ids, and its times for work on all sites at once.

    Notes
    -----
    Timing events tell the times, because recording the machine's timeline would interfere with a user who does.
    A probe's start is its end less its cost: the event before it would count its wait for SMs as well.
    """
    from stf_places._native.sm_splits import sm_ids

    def event(device: int) -> int:
        made = driver.create_event(driver.primary_context(device), True)
        stack.callback(driver.destroy_event, made)
        return made

    with ExitStack() as stack:
        origins: dict[int, int] = {}
        for site in sites:
            if site.device_id not in origins:
                origins[site.device_id] = event(site.device_id)
                driver.record_event(origins[site.device_id], site.stream)
        ends = [event(site.device_id) for site in sites]
        for site, end in zip(sites, ends, strict=True):
            driver.host_work(site.stream, None, symbol="verify_places", cost_us=load.busy_us)
            driver.record_event(end, site.stream)
        found = []
        for site, end in zip(sites, ends, strict=True):
            driver.synchronize_stream(site.stream)
            end_us = driver.elapsed_us(origins[site.device_id], end)
            ids = sm_ids(driver, driver.stream_context(site.stream))
            start_us = end_us - load.busy_us
            found.append(Sighting(frozenset(ids), round(start_us * 1000), round(end_us * 1000)))
    return found


def kernel_sightings(
    driver: DriverHandle, sites: Sequence[ProbeSite], load: ProbeLoad, kernels: Mapping[int, int]
) -> list[Sighting]:
    """Return the SMs that blocks of a kernel ran on: each site alone, then all at once, which gives the times.

    Parameters
    ----------
    driver : DriverHandle
        A real driver.
    sites : sequence of ProbeSite
        Where; looked at alone in this order.
    load : ProbeLoad
        How much.
    kernels : mapping of int to int
        The loaded probe of each device.

    Notes
    -----
    Alone, a place cannot be kept from some of its SMs by another place that shares them. Memory goes back in order
    of the streams; all launches are waited for before this returns or raises, since their kernel may go afterwards.
    """
    with ExitStack() as stack:
        # A caller's green context is not current to any of the calls, the last ones included.
        stack.enter_context(exec_place.device(sites[0].device_id))
        probes = [_KernelProbe(driver, site, load, kernels[site.device_id], stack) for site in sites]
        alone = [probe.look_alone() for probe in probes]
        for probe in probes:
            probe.launch()
        found = []
        for probe, ids in zip(probes, alone, strict=True):
            seen = probe.read()
            found.append(Sighting(ids | seen.sm_ids, seen.start_ns, seen.end_ns))
    return found


class _KernelProbe:
    """Launch the kernel on one site, and read what its blocks wrote."""

    def __init__(
        self, driver: DriverHandle, site: ProbeSite, load: ProbeLoad, kernel: int, stack: ExitStack
    ) -> None:
        self._driver, self._site, self._kernel, self._stack = driver, site, kernel, stack
        self._spin_ns = max(1, round(load.duration_us * 1000))
        self._blocks = site.sm_count * load.blocks_per_sm
        nbytes = self._blocks * _FIELDS * np.dtype(np.uint64).itemsize
        with exec_place.device(site.device_id):
            self._address = driver.allocate_device(site.device_id, nbytes, site.stream)
        stack.callback(driver.free_device, site.device_id, self._address, site.stream)

    def launch(self) -> None:
        """Start it. The primary context is current, never the place's own: the stream alone names the SMs."""
        values = ctypes.c_uint64(self._address), ctypes.c_uint64(self._spin_ns)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        with exec_place.device(self._site.device_id):
            self._driver.launch(
                self._kernel,
                self._site.stream,
                grid=(self._blocks, 1, 1),
                block=(_THREADS, 1, 1),
                parameters=ctypes.addressof(pointers),
                symbol="verify_places",
            )
        self._stack.callback(self._driver.synchronize_stream, self._site.stream)

    def read(self) -> Sighting:
        """Wait for the kernel and return what it saw."""
        site, records = self._site, np.empty((self._blocks, _FIELDS), np.uint64)
        self._driver.synchronize_stream(site.stream)
        self._driver.copy(
            records.ctypes.data, "host", self._address, site.device_id, records.nbytes, site.stream
        )
        self._driver.synchronize_stream(site.stream)
        ids = frozenset(map(int, records[:, 0]))
        return Sighting(ids, int(records[:, 1].min()), int(records[:, 2].max()))

    def look_alone(self) -> frozenset[int]:
        """Return the SMs of runs without the other sites."""
        seen: frozenset[int] = frozenset()
        for _ in range(_TRIES):
            self.launch()
            seen |= self.read().sm_ids
            if len(seen) >= self._site.sm_count:
                break
        return seen
