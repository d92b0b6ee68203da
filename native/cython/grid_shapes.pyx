"""The shapes of grids, the names of their axes, and what indices select of them; for compiled modules only."""
from math import prod
from operator import index


cdef tuple lengths_of(given, str name):
    try:
        return tuple(map(index, given)) if hasattr(type(given), "__iter__") else (index(given),)
    except TypeError:
        raise TypeError(f"{name} is an int or a sequence of ints: got {given!r}") from None


cdef tuple checked(tuple lengths, Py_ssize_t count, str name):
    if not 1 <= len(lengths) <= MAX_RANK:
        raise ValueError(f"a grid has 1 to {MAX_RANK} axes: got {len(lengths)}, {name}={lengths}")
    if min(lengths) < 1:
        raise ValueError(f"each axis of a grid has 1 place or more: got {name}={lengths}")
    if prod(lengths) != count:
        raise ValueError(f"the product of {name} is the number of places: got {name}={lengths}, which makes "
                         f"{prod(lengths)}, and {count} place(s)")
    return lengths


cdef tuple grid_shape(grid_dims, Py_ssize_t count, tuple found):
    if grid_dims is None:
        return checked(found, count, "shape")
    return checked(lengths_of(grid_dims, "grid_dims"), count, "grid_dims")


cdef tuple reshaped(shape, Py_ssize_t count):
    cdef tuple lengths = lengths_of(shape, "shape")
    if lengths.count(-1) > 1:
        raise ValueError(f"one length can be -1, which stands for what is left: got shape={lengths}")
    if -1 in lengths:
        others = prod([length for length in lengths if length != -1])
        if others > 0 and count % others == 0:
            lengths = tuple([count // others if length == -1 else length for length in lengths])
        elif others > 0:
            raise ValueError(f"-1 stands for what is left: got shape={lengths} and {count} place(s), which are no "
                             f"multiple of {others}")
    return checked(lengths, count, "shape")


cdef tuple default_axes(Py_ssize_t rank):
    return ("x", "y", "z", "t")[:rank]


cdef tuple axis_names(axes, tuple shape):
    if axes is None:
        return default_axes(len(shape))
    if isinstance(axes, (str, bytes)) or not hasattr(type(axes), "__iter__"):
        raise TypeError(f"axes is a sequence of names, one for each axis: got {axes!r}; give axes=('gpu',), for "
                        "instance")
    names = tuple(axes)
    if not all([isinstance(name, str) for name in names]):
        raise TypeError(f"axes are named by strings: got axes={names}")
    names = tuple([str.__str__(name) for name in names])
    if len(names) != len(shape):
        raise ValueError(f"{len(names)} {'axis' if len(names) == 1 else 'axes'} for a rank-{len(shape)} grid: got "
                         f"axes={names}, shape={shape}")
    if "" in names:
        raise ValueError(f"the name of an axis has 1 character or more: got axes={names}")
    if len(set(names)) < len(names):
        raise ValueError(f"the axes of a grid have distinct names: got axes={names}")
    return names


cdef Py_ssize_t axis_at(axis, tuple axes) except -1:
    if isinstance(axis, str):
        if axis not in axes:
            raise ValueError(f"this grid has the axes {axes}: got {axis!r}")
        return axes.index(axis)
    if isinstance(axis, bool) or not hasattr(type(axis), "__index__"):
        raise TypeError(f"an axis is given by its name or number: got {axis!r} ({type(axis).__name__})")
    number = index(axis)
    if not -len(axes) <= number < len(axes):
        raise IndexError(f"the axes of this grid, {axes}, are numbered 0 to {len(axes) - 1}: got {number}")
    return number % len(axes)


cdef tuple neighbours(tuple chosen, tuple axes):
    numbers = [axis_at(axis, axes) for axis in chosen] or list(range(len(axes)))
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise ValueError(f"neighbouring axes can be collapsed, given in their order: got {chosen} of the axes {axes}")
    return numbers[0], numbers[0] + len(numbers)


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
