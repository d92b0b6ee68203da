"""The border to the core's SM partitions. Programs use `stf_places.green_places` and its neighbours."""

from typing import TypeAlias

from stf_places._native.places import exec_place
from stf_places._native.runtime import RuntimeHandle

#: Whether it fits, SMs by place, SMs left, the nearest request that fits, why it does not.
Plan: TypeAlias = tuple[bool, tuple[int, ...], int, tuple[int, ...], str]
#: Concurrency limit (0: the driver's own), and whether queues are balanced.
Queues: TypeAlias = tuple[int, bool]

class SmPartition:
    """Hold some SMs of a device for a place, and the green context on them."""

    @property
    def handle(self) -> int:
        """The raw ``CUcontext``."""
    @property
    def device_id(self) -> int:
        """Ordinal of the device."""
    @property
    def sm_count(self) -> int:
        """SMs that were granted."""
    @property
    def machine(self) -> RuntimeHandle:
        """The machine that the SMs are of."""
    def open_stream(self) -> int:
        """Return a stream of the context, which owns it: the same one each time."""

class SmSplit:
    """Stand for the SMs out of which places were made."""

    def remainder(self) -> exec_place | None:
        """Return the place of all SMs that nobody holds, None when there are none.

        Raises
        ------
        PartitionError
            If no place of the split is left.
        """

def plan(
    device_id: int,
    counts: list[int],
    as_many: bool,
    exact: bool,
    fine: bool,
    coscheduled: int,
    queues: Queues | None,
    within: exec_place | None,
    text: str,
) -> Plan:
    """Return how a request would be met; see `stf_places.plan_green_places`."""

def make(
    device_id: int,
    counts: list[int],
    as_many: bool,
    exact: bool,
    fine: bool,
    coscheduled: int,
    queues: Queues | None,
    within: exec_place | None,
    text: str,
) -> tuple[list[exec_place], Plan, SmSplit]:
    """Make places; see `stf_places.green_places`."""

def repartition(
    places: list[exec_place],
    counts: list[int],
    as_many: bool,
    exact: bool,
    fine: bool,
    coscheduled: int,
    queues: Queues | None,
    text: str,
) -> tuple[list[exec_place], Plan, SmSplit]:
    """Make other places instead of these; see `stf_places.repartition`."""

def rest(places: list[exec_place]) -> exec_place:
    """Return the place of what these leave of their split; see `exec_place.rest`."""

def on_partition(hold: SmPartition) -> exec_place:
    """Return the place of a partition, as another object."""

def adopt(handle: int, device: int, keeps: object, backing: object) -> exec_place:
    """Return a place on a context of another owner; see `exec_place.from_context`.

    Parameters
    ----------
    handle : int
        The raw ``CUcontext``.
    device : int
        Its device, -1 to ask the driver.
    keeps : object
        Kept until neither places nor streams use the context. None: the handle was given alone.
    backing : object
        What `exec_place.backing_context` is to return.

    Raises
    ------
    ValueError
        If the context is of another device.
    """

class ContextKeeper:
    """Keep a context from being destroyed, without holding its SMs."""

def keep_context(place: exec_place) -> ContextKeeper:
    """Return a keeper of the place's context."""

def require_usable_here(place: exec_place) -> None:
    """Raise unless the place can be used on the machine in use, and was not replaced."""

def is_adopted(place: exec_place) -> bool:
    """Return whether the place stands on a context of another owner."""

def context_handle(place: exec_place) -> int:
    """Return the raw ``CUcontext`` behind the place, 0 for whole devices and the host."""

def sm_count_of(place: exec_place) -> int:
    """Return the SMs of a place's context if the driver can tell, else of its device."""
