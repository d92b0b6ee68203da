"""`green_places` in a machine that was opened for the purpose, and again once the places are gone."""

from __future__ import annotations

import stf_places as stf
from benchmarks.environment import current_driver
from benchmarks.spin_kernels import wall_us
from benchmarks.timing import collector_off

__all__ = ["Ours", "WrongResult"]


class WrongResult(Exception):
    """Report partitions that are not what was asked for."""


class Ours:
    """Measure the first call and the one after the places are gone.

    Parameters
    ----------
    machine : str
        For `use_machine`: each measurement opens it anew, since an open machine keeps its contexts.
    sm_count, count : int
        SMs of a partition, and partitions.
    """

    def __init__(self, machine: str, sm_count: int, count: int) -> None:
        self._machine = machine
        self._request = sm_count, count
        self.again_ms: list[float] = []

    def first_ms(self) -> float:
        """Return the milliseconds of the first call; `again_ms` gets those of the second.

        Raises
        ------
        WrongResult
            If the partitions are not what was asked for.
        """
        with stf.use_machine(self._machine):
            current_driver().primary_context(0)
            with collector_off():
                first, handles = self._timed()
                again, same = self._timed()
        if sorted(handles) != sorted(same):
            raise WrongResult("the second call made other contexts than the first")
        self.again_ms.append(again)
        return first

    def _timed(self) -> tuple[float, list[int]]:
        sm_count, count = self._request
        begin = wall_us()
        places = stf.green_places(sm_count, count)
        duration = wall_us() - begin
        handles = [place.backing_context.handle for place in places]
        granted = [place.sm_count for place in places]
        if granted != [sm_count] * count or len(set(handles)) != count:
            raise WrongResult(
                f"asked for {count} places of {sm_count} SMs: got {granted}, contexts {handles}"
            )
        return duration / 1e3, handles
