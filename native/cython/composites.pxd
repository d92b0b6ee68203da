# Composite data places bound to the shape of data: from a layout to pages on devices.
from stf_places._native.places cimport data_place
from stf_places._native.runtime cimport RuntimeHandle

# The place as memory of a shape has it: itself unless it is a composite place.
cdef data_place bound_to(data_place place, tuple shape, size_t itemsize, RuntimeHandle runtime,
                         object data=*)
