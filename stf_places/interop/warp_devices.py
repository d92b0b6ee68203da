"""Warp devices over the contexts of places that are not whole devices.

Work reaches a partition through its stream on the whole device, so launches need none of this: it is for code
that asks Warp for a device (``wp.ScopedDevice``, objects that allocate for themselves).
"""

from __future__ import annotations

import weakref
from collections import deque
from functools import lru_cache
from itertools import count
from threading import Lock
from typing import Any

from stf_places._native.partitions import context_handle, keep_context
from stf_places._native.places import exec_place

__all__ = ["mapped_device"]

_lock = Lock()
_numbers = count()
#: By context handle: the alias that is mapped, and the place objects (by identity) that asked for it.
_mapped: dict[int, tuple[str, set[int]]] = {}
#: Place objects that are gone since, with their contexts. A finalizer may run while the lock is held.
_gone: deque[tuple[int, int]] = deque()
#: Contexts that Warp has seen. Warp finds loaded modules by the context's address, so an address must not come
#: back for another context while the process lives.
_kept: dict[int, object] = {}


def mapped_device(place: exec_place) -> Any:
    """Return the Warp device over a place's own context, mapped at the first call for that context.

    Parameters
    ----------
    place : exec_place
        A place of `green_places` or of `exec_place.from_context` on a real machine. The device is unmapped when
        the last place object that asked is gone.

    Returns
    -------
    warp.Device
        With an alias such as ``cuda:0/16sm/3``. A context that Warp knows already keeps its device and alias.
    """
    wp = _warp()
    context = context_handle(place)
    with primary(place), _lock:  # mapping makes the context current
        wp.init()
        _unmap_gone()
        if context not in _mapped:
            known = [device for device in wp.get_cuda_devices() if device.context == context]
            if known:
                return known[0]
            alias = f"cuda:{place.device_id}/{place.sm_count}sm/{next(_numbers)}"
            wp.map_cuda_device(alias, context)
            _mapped[context] = (alias, set())
            _kept.setdefault(context, keep_context(place))
        alias, users = _mapped[context]
        if id(place) not in users:
            users.add(id(place))
            weakref.finalize(place, _forget, context, id(place)).atexit = False
        return wp.get_device(alias)


def primary(place: exec_place) -> exec_place:
    """Return the whole device of a place: entered, its context is current, and afterwards what was before."""
    return exec_place.device(place.device_id)


def _forget(context: int, place: int) -> None:
    """Note that a place object is gone, and unmap its device if nothing is being mapped right now."""
    _gone.append((context, place))
    if _lock.acquire(blocking=False):
        try:
            _unmap_gone()
        finally:
            _lock.release()


def _unmap_gone() -> None:
    """Unmap devices whose last place object is gone. The lock is held."""
    while _gone:
        context, place = _gone.popleft()
        alias, users = _mapped[context]
        users.discard(place)
        if not users:
            del _mapped[context]
            _warp().unmap_cuda_device(alias)


@lru_cache(maxsize=1)
def _warp() -> Any:
    """Import Warp, once."""
    try:
        import warp
    except ImportError as error:
        raise ImportError("Warp is not installed: pip install 'stf-places[warp]'") from error
    return warp
