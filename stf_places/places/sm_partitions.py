"""SM partitions: `green_places`, the plan of one, and splitting anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import index
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

from stf_places.errors import PartitionError

if TYPE_CHECKING:
    from stf_places._native.partitions import SmSplit
    from stf_places._native.places import exec_place

__all__ = [
    "GreenPlaces",
    "PartitionPlan",
    "WorkqueueOptions",
    "green_places",
    "plan_green_places",
    "repartition",
]

_SCOPES = {"device_ctx": False, "green_ctx_balanced": True}
_INT_LIMIT = 1 << 20
#: Exact, fine, co-scheduled SMs, and work queues (limit, balanced).
_Options: TypeAlias = tuple[bool, bool, int, "tuple[int, bool] | None"]
#: One count a place, whether the only one means as many as fit, and the options.
_Request: TypeAlias = tuple[list[int], bool, bool, bool, int, "tuple[int, bool] | None"]


@dataclass(frozen=True)
class WorkqueueOptions:
    """Say how a partition takes part in the device's hardware work queues.

    Parameters
    ----------
    sharing_scope : {"device_ctx", "green_ctx_balanced"}
        Share queues with all contexts, or use some of one's own where possible.
    concurrency_limit : int, optional
        Expected number of streams at work at once; None: the driver's own.

    Raises
    ------
    ValueError
        If the scope is unknown or the limit below 1.

    Notes
    -----
    The fields are those of cuda.core's ``WorkqueueResourceOptions``, which `green_places` takes too.

    References
    ----------
    CUDA driver API, "Green Contexts": ``CUdevWorkqueueConfigResource``, CUDA 13.1.

    Examples
    --------
    >>> WorkqueueOptions("green_ctx_balanced", 4).concurrency_limit
    4
    """

    sharing_scope: Literal["device_ctx", "green_ctx_balanced"] = "device_ctx"
    concurrency_limit: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.sharing_scope, str) or self.sharing_scope not in _SCOPES:
            raise ValueError(
                f"sharing_scope is one of {', '.join(map(repr, _SCOPES))}: got {self.sharing_scope!r}"
            )
        if self.concurrency_limit is not None:
            _at_least("concurrency_limit", self.concurrency_limit, 1)


@dataclass(frozen=True)
class PartitionPlan:
    """Tell what a request for SM partitions would be granted.

    Parameters
    ----------
    sm_counts : tuple of int
        SMs of each place, in order; empty when the request cannot be met.
    remainder : int
        SMs that no place would hold: after the request if it can be met, now if not.
    nearest : tuple of int
        SMs of each place of the nearest request that can be met; `sm_counts` itself if this one can.
    reason : str
        Why it cannot be met; empty if it can.

    Examples
    --------
    >>> plan = PartitionPlan((16, 16), 100, (16, 16))
    >>> plan.fits, sum(plan.sm_counts) + plan.remainder
    (True, 132)
    >>> print(plan.table())
    place        SMs
    0             16
    1             16
    remainder    100
    """

    sm_counts: tuple[int, ...]
    remainder: int
    nearest: tuple[int, ...]
    reason: str = ""

    @property
    def fits(self) -> bool:
        """True when the request can be met."""
        return bool(self.sm_counts)

    def table(self) -> str:
        """Return one line a place, and what is left."""
        lines = [("place", "SMs"), *((str(i), str(count)) for i, count in enumerate(self.sm_counts))]
        lines.append(("remainder", str(self.remainder)))
        if not self.fits:
            lines.append(("nearest", " ".join(map(str, self.nearest)) or "none"))
        return "\n".join(f"{name:<9} {value:>6}" for name, value in lines)

    def to_json(self) -> str:
        """Return the fields as a JSON object."""
        return json.dumps(asdict(self))


class GreenPlaces(list["exec_place"]):
    """List the places of one `green_places` call.

    Attributes
    ----------
    plan : PartitionPlan
        What was granted.

    Notes
    -----
    A list in every other respect: places can be taken out, and groups of SMs are given back with the last
    reference to their place.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     places = stf.green_places([8, 16])
    ...     [place.sm_count for place in places], places.remainder.sm_count
    ([8, 16], 108)
    """

    plan: PartitionPlan

    def __init__(self, places: Iterable[exec_place], plan: PartitionPlan, split: SmSplit) -> None:
        super().__init__(places)
        self.plan = plan
        self._split = split

    @property
    def remainder(self) -> exec_place | None:
        """The place of all SMs of the split that nobody holds, made on first use; None when none are left.

        While it lives, other calls find these SMs held.

        Raises
        ------
        PartitionError
            If no place of the split is left.
        """
        return self._split.remainder()


def green_places(
    sms_per_place: SupportsIndex | Sequence[SupportsIndex],
    n_places: SupportsIndex | None = None,
    device_id: SupportsIndex = 0,
    coscheduled_sm_count: SupportsIndex = 0,
    *,
    exact: bool = False,
    fine_grained: bool = False,
    workqueue: WorkqueueOptions | Mapping[str, Any] | None = None,
    within: exec_place | None = None,
) -> GreenPlaces:
    """Split a device's SMs into disjoint execution places, each a green context.

    Parameters
    ----------
    sms_per_place : int or sequence of int
        SMs of each place, or one count for each of several places. Rounded up as the driver does (H200: to
        multiples of 8); `exec_place.sm_count` tells what was granted.
    n_places : int, optional
        How many places of one count. None: as many as really fit.
    device_id : int
        Ordinal of the device.
    coscheduled_sm_count : int
        SMs of a place that are to be scheduled together, for large thread-block clusters; 0: no wish.
    exact : bool
        Refuse a count that would be rounded.
    fine_grained : bool
        Counts in steps of 2 SMs. Kernels with thread-block clusters cannot be launched on such places.
    workqueue : WorkqueueOptions or mapping, optional
        Hardware work queues of the places.
    within : exec_place, optional
        A place of `green_places` to split further, instead of the device. The new places share its SMs and keep
        it alive.

    Returns
    -------
    GreenPlaces
        A list of `exec_place`, with `remainder` and `plan`.

    Raises
    ------
    TypeError
        If a count is no int.
    PartitionError
        If the request cannot be met beside the live places; the text names the nearest that can, and who holds
        what. Nothing was made.
    InvalidDevice
        If there is no such device.
    NotSupported
        If the driver is older than CUDA 12.5, or than 13.1 for `coscheduled_sm_count` and `workqueue`.

    Notes
    -----
    Places of all calls on a device are disjoint, but for those made `within` one another. They come out of one
    split, which can change once no place is left; contexts are kept meanwhile, and asking again for what was
    there costs microseconds. The SMs of a place that is gone are free at once, also while work that was given to it
    runs on. Creating a context costs 1 to 2.4 ms on an H200. What runs on a place's streams stays
    on its SMs; memory, caches, copy engines and work queues are shared with the whole device. The caller's current
    context is not touched.

    References
    ----------
    CUDA driver API, "Green Contexts".

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     places = stf.green_places(8)
    ...     len(places), places.plan.remainder
    (15, 12)
    """
    from stf_places._native import partitions

    given = (sms_per_place, n_places, coscheduled_sm_count, exact, fine_grained, workqueue)
    request, text = _request("green_places", *given)
    device = _device(device_id, within)
    places, plan, split = partitions.make(device, *request, within, text)
    return GreenPlaces(places, _plan(plan), split)


def plan_green_places(
    sms_per_place: SupportsIndex | Sequence[SupportsIndex],
    n_places: SupportsIndex | None = None,
    device_id: SupportsIndex = 0,
    coscheduled_sm_count: SupportsIndex = 0,
    *,
    exact: bool = False,
    fine_grained: bool = False,
    workqueue: WorkqueueOptions | Mapping[str, Any] | None = None,
    within: exec_place | None = None,
) -> PartitionPlan:
    """Return what `green_places` would grant for the same arguments, without making anything.

    Parameters
    ----------
    sms_per_place, n_places, device_id, coscheduled_sm_count, exact, fine_grained, workqueue, within
        As for `green_places`.

    Returns
    -------
    PartitionPlan
        For a request that cannot be met beside the live places, one without `sm_counts`, with `nearest`.

    Raises
    ------
    TypeError
        If a count is no int.
    PartitionError
        If a count is below 1.
    InvalidDevice
        If there is no such device.
    NotSupported
        If the driver is too old, as for `green_places`.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     stf.plan_green_places([104, 8, 8]).remainder
    ...     stf.plan_green_places(8, 16).nearest == (8,) * 15
    12
    True
    """
    from stf_places._native import partitions

    given = (sms_per_place, n_places, coscheduled_sm_count, exact, fine_grained, workqueue)
    request, text = _request("plan_green_places", *given)
    device = _device(device_id, within)
    return _plan(partitions.plan(device, *request, within, text))


def repartition(
    places: Iterable[exec_place],
    sms_per_place: SupportsIndex | Sequence[SupportsIndex],
    n_places: SupportsIndex | None = None,
    coscheduled_sm_count: SupportsIndex = 0,
    *,
    exact: bool = False,
    fine_grained: bool = False,
    workqueue: WorkqueueOptions | Mapping[str, Any] | None = None,
) -> GreenPlaces:
    """Split the SMs of live places anew: wait for their work, then hand out other places.

    Parameters
    ----------
    places : iterable of exec_place
        Places of one split. When they are all its live places, the split itself can change.
    sms_per_place, n_places, coscheduled_sm_count, exact, fine_grained, workqueue
        As for `green_places`.

    Returns
    -------
    GreenPlaces
        The new places. The old ones are refused from then on.

    Raises
    ------
    TypeError
        If an item is no place.
    PartitionError
        If the request cannot be met, or the places are not live places of one split.
    TaskStateError
        If a task on one of them is open in this thread; those of other threads are waited for.
    KeyboardInterrupt
        If Ctrl-C ended the wait.

    Notes
    -----
    Waits for what was put on the places' streams by tasks and through `exec_place.pick_stream`; no task can start
    on them meanwhile. After a failure the old places are as before.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x1"):
    ...     places = stf.green_places(64)
    ...     places = stf.repartition(places, [16, 96])
    ...     [place.sm_count for place in places]
    [16, 96]
    """
    from stf_places._native import partitions

    given = (sms_per_place, n_places, coscheduled_sm_count, exact, fine_grained, workqueue)
    request, text = _request("repartition", *given)
    made, plan, split = partitions.repartition(_listed(places, "repartition()"), *request, text)
    return GreenPlaces(made, _plan(plan), split)


def _listed(places: object, what: str) -> list[Any]:
    if not isinstance(places, Iterable):
        raise TypeError(f"{what} takes an iterable of places: got {places!r}; for one place give [place]")
    return list(places)


def _plan(fields: tuple[bool, tuple[int, ...], int, tuple[int, ...], str]) -> PartitionPlan:
    _, sm_counts, remainder, nearest, reason = fields
    return PartitionPlan(sm_counts, remainder, nearest, reason)


def _request(
    name: str,
    sms_per_place: object,
    n_places: object,
    coscheduled: object,
    exact: object,
    fine: object,
    workqueue: object,
) -> tuple[_Request, str]:
    """Return what the core takes of a call, checked, and the call as messages name it."""
    counts, as_many = _counts(sms_per_place, n_places)
    options = _options(coscheduled, exact, fine, workqueue)
    return (counts, as_many, *options), _text(name, counts, as_many, options)


def _counts(sms_per_place: object, n_places: object) -> tuple[list[int], bool]:
    """Return one count a place, and whether the only one means as many as fit."""
    if not isinstance(sms_per_place, Iterable):
        count = _at_least("sms_per_place", sms_per_place, 1, "an int or a sequence of ints")
        if n_places is None:
            return [count], True
        return [count] * _at_least("n_places", n_places, 1), False
    if isinstance(sms_per_place, (str, bytes)):
        raise TypeError(
            f"sms_per_place is an int or a sequence of ints: got {sms_per_place!r} ({type(sms_per_place).__name__})"
        )
    counts = [_at_least("each count of sms_per_place", one, 1) for one in sms_per_place]
    if not counts:
        raise PartitionError("sms_per_place names one place or more: got an empty sequence")
    if n_places is not None and _at_least("n_places", n_places, 1) != len(counts):
        raise PartitionError(
            f"n_places is the number of counts where sms_per_place is a sequence: got n_places={n_places} and "
            f"{len(counts)} counts; leave n_places out"
        )
    return counts, False


def _at_least(name: str, given: object, least: int, kind: str = "an int") -> int:
    if isinstance(given, bool) or not hasattr(type(given), "__index__"):
        raise TypeError(f"{name} is {kind}: got {given!r} ({type(given).__name__})")
    number = index(given)  # type: ignore[arg-type]
    if not least <= number < _INT_LIMIT:
        raise PartitionError(f"{name} is {least} or more, and below {_INT_LIMIT}: got {number}")
    return number


def _flag(name: str, given: object) -> bool:
    if not isinstance(given, (bool, int)) or given not in (0, 1):
        raise TypeError(f"{name} is True or False: got {given!r}")
    return bool(given)


def _options(coscheduled: object, exact: object, fine: object, workqueue: object) -> _Options:
    """Return exact, fine, co-scheduled SMs and queues, checked."""
    together = _at_least("coscheduled_sm_count", coscheduled, 0)
    if together and _flag("fine_grained", fine):
        raise PartitionError(
            "fine_grained places ignore co-scheduling: give coscheduled_sm_count or fine_grained, not both"
        )
    return _flag("exact", exact), _flag("fine_grained", fine), together, _queues(workqueue)


def _queues(workqueue: object) -> tuple[int, bool] | None:
    """Return concurrency limit (0: the driver's own) and whether balanced."""
    if workqueue is None:
        return None
    if isinstance(workqueue, Mapping):
        unknown = sorted(str(key) for key in workqueue if key not in ("sharing_scope", "concurrency_limit"))
        if unknown:
            raise ValueError(f"workqueue has sharing_scope and concurrency_limit: got {unknown}")
        scope, limit = workqueue.get("sharing_scope"), workqueue.get("concurrency_limit")
    elif hasattr(workqueue, "sharing_scope") and hasattr(workqueue, "concurrency_limit"):
        scope, limit = workqueue.sharing_scope, workqueue.concurrency_limit
    else:
        raise TypeError(
            "workqueue is a WorkqueueOptions, or has its fields sharing_scope and concurrency_limit: got "
            f"{workqueue!r} ({type(workqueue).__name__})"
        )
    checked = WorkqueueOptions("device_ctx" if scope is None else scope, limit)
    return (checked.concurrency_limit or 0, _SCOPES[checked.sharing_scope])


def _device(device_id: object, within: exec_place | None) -> int:
    """Return the device of a request: that of the place to split, which a given one must not contradict."""
    if isinstance(device_id, bool) or not hasattr(type(device_id), "__index__"):
        raise TypeError(f"a device is an int, its ordinal: got {device_id!r} ({type(device_id).__name__})")
    given = index(device_id)  # type: ignore[arg-type]
    if within is None or not hasattr(within, "device_id"):
        return given
    if given not in (0, within.device_id):
        raise PartitionError(
            f"within= is a place of device {within.device_id}: got device_id={given}; leave device_id out"
        )
    return max(within.device_id, 0)


def _text(name: str, counts: list[int], as_many: bool, options: _Options) -> str:
    """Return the call as messages name it."""
    exact, fine, together, _ = options
    uniform = len(counts) > 1 and len(set(counts)) == 1
    parts = [str(counts[0] if as_many or uniform or len(counts) == 1 else counts)]
    if not as_many and (uniform or len(counts) == 1):
        parts.append(f"n_places={len(counts)}")
    if together:
        parts.append(f"coscheduled_sm_count={together}")
    parts += [f"{flag}=True" for flag, on in (("exact", exact), ("fine_grained", fine)) if on]
    return f"{name}({', '.join(parts)})"
