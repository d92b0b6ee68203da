"""Partition GPUs into execution places and spread a sequential flow of tasks over them.

A program makes a `context`, registers or makes logical data in it, and submits tasks that say which data
they read and write and on which place they run. Order, copies and waits follow from that.

Examples
--------
>>> import numpy as np
>>> import stf_places as stf
>>> values = np.arange(4.0)
>>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
...     data = ctx.logical_data(values)
...     with ctx.task(stf.exec_place.device(1), data.rw(), symbol="double") as t:
...         t.numpy(0)[:] *= 2
>>> values
array([0., 2., 4., 6.])
"""

from stf_places._version import __version__
from stf_places.errors import (
    ContextClosed,
    DataRace,
    DeviceLost,
    DriverError,
    InvalidDevice,
    MapperError,
    NotSupported,
    OutOfMemory,
    PartitionError,
    PoisonedData,
    ReadOnlyError,
    StfError,
    TaskStateError,
    WrongContext,
)
from stf_places.flow import (
    AccessMode,
    ContextStatistics,
    PlaceStatistics,
    Shard,
    TraceRecord,
    context,
    cuda_kernel,
    dep,
    logical_data,
    read,
    reduce,
    rw,
    stf_cai,
    task,
    write,
)
from stf_places.machines import SimulatedMachineWarning, machine, machine_init, use_machine
from stf_places.partitions import (
    AxisRule,
    Layout,
    LayoutStats,
    Mapper,
    PageRun,
    Partition,
    block_cyclic,
    blocked,
    cyclic,
    mapper,
    partition,
    tiled,
    whole,
)
from stf_places.places import (
    CudaStream,
    DeviceArray,
    GreenContext,
    GreenPlaces,
    PartitionPlan,
    PlaceProbe,
    PlacesReport,
    WorkqueueOptions,
    async_resources,
    data_place,
    exec_place,
    exec_place_grid,
    exec_place_resources,
    green_context_helper,
    green_ctx_view,
    green_places,
    plan_green_places,
    repartition,
    verify_places,
)

__all__ = [
    "AccessMode",
    "AxisRule",
    "ContextClosed",
    "ContextStatistics",
    "CudaStream",
    "DataRace",
    "DeviceArray",
    "DeviceLost",
    "DriverError",
    "GreenContext",
    "GreenPlaces",
    "InvalidDevice",
    "Layout",
    "LayoutStats",
    "Mapper",
    "MapperError",
    "NotSupported",
    "OutOfMemory",
    "PageRun",
    "Partition",
    "PartitionError",
    "PartitionPlan",
    "PlaceProbe",
    "PlaceStatistics",
    "PlacesReport",
    "PoisonedData",
    "ReadOnlyError",
    "Shard",
    "SimulatedMachineWarning",
    "StfError",
    "TaskStateError",
    "TraceRecord",
    "WorkqueueOptions",
    "WrongContext",
    "__version__",
    "async_resources",
    "block_cyclic",
    "blocked",
    "context",
    "cuda_kernel",
    "cyclic",
    "data_place",
    "dep",
    "exec_place",
    "exec_place_grid",
    "exec_place_resources",
    "green_context_helper",
    "green_ctx_view",
    "green_places",
    "logical_data",
    "machine",
    "machine_init",
    "mapper",
    "partition",
    "plan_green_places",
    "read",
    "reduce",
    "repartition",
    "rw",
    "stf_cai",
    "task",
    "tiled",
    "use_machine",
    "verify_places",
    "whole",
    "write",
]
