"""Places, the streams that belong to them, and arrays in their memory."""

from stf_places._native.grids import exec_place_grid
from stf_places._native.places import async_resources, data_place, exec_place, exec_place_resources
from stf_places.places.device_arrays import DeviceArray
from stf_places.places.green_contexts import GreenContext, green_context_helper, green_ctx_view
from stf_places.places.sm_partitions import (
    GreenPlaces,
    PartitionPlan,
    WorkqueueOptions,
    green_places,
    plan_green_places,
    repartition,
)
from stf_places.places.streams import CudaStream
from stf_places.places.verification import PlaceProbe, PlacesReport, verify_places

__all__ = [
    "CudaStream",
    "DeviceArray",
    "GreenContext",
    "GreenPlaces",
    "PartitionPlan",
    "PlaceProbe",
    "PlacesReport",
    "WorkqueueOptions",
    "async_resources",
    "data_place",
    "exec_place",
    "exec_place_grid",
    "exec_place_resources",
    "green_context_helper",
    "green_ctx_view",
    "green_places",
    "plan_green_places",
    "repartition",
    "verify_places",
]
