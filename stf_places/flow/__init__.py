"""Contexts, logical data and tasks: programs say what tasks read and write, the core finds the order."""

from stf_places._native.contexts import context
from stf_places._native.cuda_kernels import cuda_kernel
from stf_places._native.data import AccessMode, dep, logical_data, read, rw, write
from stf_places._native.reports import ContextStatistics, PlaceStatistics, TraceRecord
from stf_places._native.scopes import LaunchableGraph, stackable_context
from stf_places._native.tasks import task
from stf_places._native.views import stf_cai
from stf_places.flow.conditions import cond
from stf_places.flow.reductions import reduce
from stf_places.flow.shards import Shard
from stf_places.flow.task_graphs import TaskGraph, task_graph

__all__ = [
    "AccessMode",
    "ContextStatistics",
    "LaunchableGraph",
    "PlaceStatistics",
    "Shard",
    "TaskGraph",
    "TraceRecord",
    "cond",
    "context",
    "cuda_kernel",
    "dep",
    "logical_data",
    "read",
    "reduce",
    "rw",
    "stackable_context",
    "stf_cai",
    "task",
    "task_graph",
    "write",
]
