"""Composite data places bound to the shape of data. For use within the package."""

from typing import Any

from stf_places._native.places import data_place

def bound(place: data_place, shape: tuple[int, ...], itemsize: int, runtime: Any) -> data_place:
    """Return a composite place as memory of a shape has it: pages on devices, or one device that has all.

    Parameters
    ----------
    place : data_place
        Composite; any other place is returned as it is.
    shape : tuple of int
        Elements along each axis, none of them 0.
    itemsize : int
        Bytes of an element.
    runtime : RuntimeHandle
        The machine.

    Raises
    ------
    PartitionError
        If the partition does not fit the shape, or two devices do not reach each other.
    MapperError
        If a mapper raises, answers outside the grid or changes its answer.
    InvalidDevice
        If the machine lacks a device of the grid.
    """

def check_peers(place: data_place, runtime: Any) -> None:
    """Raise unless each device of a composite place reaches the memory of each other.

    Raises
    ------
    PartitionError
        Naming the pair that does not.
    InvalidDevice
        If the machine lacks a device of the grid.
    """
