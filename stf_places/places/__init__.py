"""Places, the streams that belong to them, and arrays in their memory."""

from stf_places._native.places import (
    async_resources,
    data_place,
    exec_place,
    exec_place_grid,
    exec_place_resources,
)
from stf_places.places.device_arrays import DeviceArray
from stf_places.places.streams import CudaStream

__all__ = [
    "CudaStream",
    "DeviceArray",
    "async_resources",
    "data_place",
    "exec_place",
    "exec_place_grid",
    "exec_place_resources",
]
