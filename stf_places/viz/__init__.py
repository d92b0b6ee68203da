"""Looking at what ran: timelines."""

from stf_places.viz.timelines import busy_us, save_perfetto

__all__ = ["busy_us", "save_perfetto"]
