# The shapes of grids, and what NumPy-like indices select of them.
cdef enum:
    MAX_RANK = 4

cdef tuple grid_shape(grid_dims, Py_ssize_t count)
cdef tuple selection(key, tuple shape)
