# The C++ description of a simulated machine, from the dictionary that stf_places.machines checked.
from stf_places._native.drivers cimport MachineSpec

cdef MachineSpec machine_spec_of(dict spec) except *
