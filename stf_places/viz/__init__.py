"""Looking at what ran, and at what is planned: timelines, layouts and graphs."""

from stf_places.viz.graphs import graph_dot, save_graph
from stf_places.viz.layouts import save_layout
from stf_places.viz.timelines import busy_us, save_perfetto

__all__ = ["busy_us", "graph_dot", "save_graph", "save_layout", "save_perfetto"]
