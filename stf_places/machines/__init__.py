"""The machine that programs run on: CUDA devices, or a simulated machine."""

from stf_places.machines.descriptions import Device, Machine, TimelineEntry
from stf_places.machines.selection import SimulatedMachineWarning, machine, machine_init, use_machine

__all__ = [
    "Device",
    "Machine",
    "SimulatedMachineWarning",
    "TimelineEntry",
    "machine",
    "machine_init",
    "use_machine",
]
