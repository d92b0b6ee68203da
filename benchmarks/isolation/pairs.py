"""Runs each victim beside each neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stf_places as stf
from benchmarks.environment import current_driver, current_environment
from benchmarks.isolation.kernels import MIB, Work, Workshop
from benchmarks.machines import use_machine
from benchmarks.records import Baseline, Record, Spread
from benchmarks.runner import UsageError

VICTIM_SMS = 16


@dataclass(frozen=True)
class Neighbour:
    """Name other work, the stream that it goes on, and about how long a piece of it takes."""

    name: str
    stream: int
    work: Work


class Timer:
    """Time work on a stream by the GPU's events, in microseconds."""

    def __init__(self, shop: Workshop, stream: int) -> None:
        self._driver, self.stream = shop.driver, stream
        context = self._driver.primary_context(shop.device)
        self._events = [self._driver.create_event(context, True) for _ in range(2)]

    def start(self, work: Work) -> None:
        """Enqueue work between two events."""
        self._driver.record_event(self._events[0], self.stream)
        work(self.stream)
        self._driver.record_event(self._events[1], self.stream)

    def wait(self) -> float:
        """Wait for the work and return how long it took."""
        self._driver.synchronize_event(self._events[1])
        return float(self._driver.elapsed_us(*self._events))

    def close(self) -> None:
        """Destroy the events."""
        for event in self._events:
            self._driver.destroy_event(event)


def beside(shop: Workshop, timer: Timer, victim: Work, neighbour: Neighbour | None) -> float:
    """Return the victim's time while the neighbour is at work for all of it.

    Raises
    ------
    RuntimeError
        If the neighbour was done before the victim, so that nothing was measured.
    """
    if neighbour is None:
        timer.start(victim)
        return timer.wait()
    pieces = 8
    while pieces <= 4096:
        for _ in range(pieces):
            neighbour.work(neighbour.stream)
        timer.start(victim)
        taken = timer.wait()
        still_at_work = not shop.driver.query_stream(neighbour.stream)
        shop.driver.synchronize_stream(neighbour.stream)
        if still_at_work:
            return taken
        pieces *= 4
    raise RuntimeError(f"{neighbour.name} ended before its victim in every try")


def victims(shop: Workshop) -> dict[str, Work]:
    """Return the victims by name, each of some milliseconds on 16 SMs."""
    return {
        "arithmetic": shop.arithmetic(VICTIM_SMS, 400_000),
        "memory": shop.copy(VICTIM_SMS, 256 * MIB, 4),
        "L2 cache": shop.copy(VICTIM_SMS, 4 * MIB, 256),
        "tiny kernels": shop.chain(500),
    }


def neighbours(shop: Workshop, rest: Any, resources: Any, device: int) -> list[Neighbour]:
    """Return what runs beside them."""
    others = rest.sm_count
    whole = stf.exec_place.device(device)
    on_rest = int(rest.pick_stream(resources))
    return [
        Neighbour("arithmetic on the other SMs", on_rest, shop.arithmetic(others, 200_000)),
        Neighbour("memory copies on the other SMs", on_rest, shop.copy(others, 1024 * MIB, 2)),
        Neighbour("L2 copies on the other SMs", on_rest, shop.copy(others, 16 * MIB, 100)),
        Neighbour(
            "host copies both ways",
            int(whole.pick_stream(resources, for_computation=False)),
            shop.host_copies(256 * MIB),
        ),
        Neighbour(
            "arithmetic on the whole device",
            int(whole.pick_stream(resources)),
            shop.arithmetic(whole.sm_count, 200_000),
        ),
    ]


def measure_all(machine: str, device: int, repeats: int) -> list[Record]:
    """Measure every victim beside every neighbour.

    Raises
    ------
    UsageError
        If the machine cannot be used here or is simulated, or has no such device.
    RuntimeError
        If a copy differs from its source, or the tiny kernels were not all run.
    """
    use_machine(machine)
    if current_driver().simulated:
        raise UsageError(f"isolation needs a GPU: {machine} models neither caches nor contention")
    if device >= current_driver().device_count():
        raise UsageError(f"--device {device}: there are {current_driver().device_count()} device(s), from 0")
    environment = current_environment(device)
    places = stf.green_places(VICTIM_SMS, 1, device_id=device)
    rest = stf.exec_place.rest(places)
    resources = stf.exec_place_resources()
    shop = Workshop(device)
    timer = Timer(shop, int(places[0].pick_stream(resources)))

    def spread(measure: Callable[[], float]) -> Spread:
        measure()
        return Spread(tuple(measure() for _ in range(repeats)))

    records = []
    try:
        with stf.exec_place.device(device):
            others = neighbours(shop, rest, resources, device)
            for name, victim in victims(shop).items():
                alone = spread(lambda victim=victim: beside(shop, timer, victim, None))  # type: ignore[misc]
                for other in others:
                    taken = spread(lambda victim=victim, other=other: beside(shop, timer, victim, other))  # type: ignore[misc]
                    slowdown = Spread(tuple(value / alone.median for value in taken.values))
                    records.append(
                        Record(
                            "isolation",
                            f"{name} beside {other.name}",
                            slowdown,
                            "x",
                            environment,
                            [Baseline("alone", alone, "us")],
                            {"victim_sms": places[0].sm_count, "neighbour_sms": rest.sm_count},
                        )
                    )
            if wrong := shop.wrong_results():
                raise RuntimeError(f"{wrong} pieces of work left a wrong result")
    finally:
        shop.driver.synchronize_stream(timer.stream)
        timer.close()
        shop.close()
    return records
