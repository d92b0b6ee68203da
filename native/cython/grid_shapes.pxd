# The shapes of grids, the names of their axes, and what NumPy-like indices select of them.
cdef enum:
    MAX_RANK = 4

# A shape that was asked for (None: `found`), checked.
cdef tuple grid_shape(grid_dims, Py_ssize_t count, tuple found)
# The same for `reshape`, where one length can be -1.
cdef tuple reshaped(shape, Py_ssize_t count)
cdef tuple default_axes(Py_ssize_t rank)
# Names that were asked for (None: the defaults), checked.
cdef tuple axis_names(axes, tuple shape)
# The number of an axis given by name or by number.
cdef Py_ssize_t axis_at(axis, tuple axes) except -1
# The axes that `collapse_axes` merges: the first, and the one behind the last.
cdef tuple neighbours(tuple chosen, tuple axes)
# The ranges that a key selects on each axis, and which axes stay.
cdef tuple selection(key, tuple shape)
