"""Partitions of data: how the axes of an array are laid over the axes of a grid of places."""

from stf_places.partitions.layout_stats import LayoutStats, PageRun
from stf_places.partitions.layouts import Layout
from stf_places.partitions.mappers import Mapper, mapper
from stf_places.partitions.rules import AxisRule, block_cyclic, blocked, cyclic, tiled, whole
from stf_places.partitions.specs import Partition, partition

__all__ = [
    "AxisRule",
    "Layout",
    "LayoutStats",
    "Mapper",
    "PageRun",
    "Partition",
    "block_cyclic",
    "blocked",
    "cyclic",
    "mapper",
    "partition",
    "tiled",
    "whole",
]
