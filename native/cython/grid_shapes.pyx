from math import prod
from operator import index


cdef tuple grid_shape(grid_dims, Py_ssize_t count):
    if grid_dims is None:
        return (count,)
    try:
        lengths = (index(grid_dims),) if hasattr(type(grid_dims), "__index__") else tuple(map(index, grid_dims))
    except TypeError:
        raise TypeError(f"grid_dims is an int or a sequence of ints: got {grid_dims!r}") from None
    if not 1 <= len(lengths) <= MAX_RANK:
        raise ValueError(f"a grid has 1 to {MAX_RANK} axes: got {len(lengths)}, grid_dims={lengths}")
    if min(lengths) < 1:
        raise ValueError(f"each axis of a grid has 1 place or more: got grid_dims={lengths}")
    if prod(lengths) != count:
        raise ValueError(f"the product of grid_dims is the number of places: got grid_dims={lengths}, which makes "
                         f"{prod(lengths)}, and {count} place(s)")
    return lengths


# The ranges that a NumPy-like key selects on each axis, and which axes stay.
cdef tuple selection(key, tuple shape):
    keys = list(key) if isinstance(key, tuple) else [key]
    gaps = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(gaps) > 1:
        raise IndexError("an index has one ellipsis ('...') at most")
    given = len(keys) - len(gaps)
    if given > len(shape):
        raise IndexError(f"too many indices: a rank-{len(shape)} grid was indexed with {given}")
    at = gaps[0] if gaps else len(keys)
    keys[at:at + 1] = [slice(None)] * (len(shape) - given)
    ranges, kept = [], []
    for axis, (one, length) in enumerate(zip(keys, shape)):
        if isinstance(one, slice):
            ranges.append(range(*one.indices(length)))
            kept.append(axis)
        elif hasattr(type(one), "__index__") and not isinstance(one, bool):
            number = index(one)
            if not -length <= number < length:
                raise IndexError(f"index {number} is outside axis {axis} of a grid of shape {shape}")
            ranges.append(range(number % length, number % length + 1))
        else:
            raise TypeError(f"a grid is indexed with ints, slices and '...': got {one!r}")
    return ranges, kept
