# Composite data places bound to the shape of data: from a layout to pages on devices.
from stf_places._native.places cimport data_place
from stf_places._native.runtime cimport RuntimeHandle

# The place as memory of a shape has it: itself unless it is a composite place. What is kept with a composite place
# does not refer to it, since places go with their last reference: of the result only `value` is of use.
cdef data_place bound_to(data_place place, tuple shape, size_t itemsize, RuntimeHandle runtime,
                         object data=*)
# The same as a value of its own.
cdef data_place bound_value(data_place place, tuple shape, size_t itemsize, RuntimeHandle runtime)
