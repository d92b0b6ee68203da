"""Looking at what ran, and at what is planned: timelines and layouts."""

from stf_places.viz.layouts import save_layout
from stf_places.viz.timelines import busy_us, save_perfetto

__all__ = ["busy_us", "save_layout", "save_perfetto"]
