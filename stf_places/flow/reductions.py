"""Reductions: all elements of a logical data to one, on each place first, then over the places in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stf_places._native.contexts import context
from stf_places._native.data import logical_data
from stf_places._native.grids import exec_place_grid
from stf_places._native.places import data_place, exec_place
from stf_places.errors import PartitionError, WrongContext
from stf_places.flow.reduction_kernels import (
    DTYPES,
    OPERATIONS,
    StridedBox,
    block_count,
    launch_reduction,
    most_blocks,
)
from stf_places.partitions import Partition, blocked, partition, whole

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle
    from stf_places._native.tasks import task
    from stf_places._native.views import stf_cai
    from stf_places.flow.shards import Shard

__all__ = ["reduce"]

_UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def reduce(
    ctx: context,
    data: logical_data,
    op: Literal["sum", "max", "min"] = "sum",
    place: exec_place | None = None,
    *,
    symbol: str | None = None,
) -> logical_data:
    """Reduce all elements of data to one.

    Parameters
    ----------
    ctx : context
        The context of the data.
    data : logical_data
        Integers of 8 to 64 bits, float32 or float64; of any shape with elements.
    op : {"sum", "max", "min"}
        What is made of two elements. Sums of integers wrap; of what is not a number comes the same, as in NumPy.
    place : exec_place, optional
        Where it runs: a place, or a grid, each place of which reduces its part. The parts are those of the grid's
        affine composite data place. Without one, or if that has a mapper, axis 0 is cut into a block for each place.
        None: the current device.
    symbol : str, optional
        Name of the tasks and of the result, for messages and reports.

    Returns
    -------
    logical_data
        Of shape (1,) and the dtype of `data`.

    Raises
    ------
    TypeError
        If `ctx` is no context, `data` no logical data or a token, its dtype none of these, `place` no place or
        `symbol` no string.
    ValueError
        If `op` is another operation, or the data has no elements.
    PartitionError
        If the grid's partition does not fit the data's shape, or its devices do not reach each other.
    WrongContext
        If the data belongs to another context.
    TaskStateError
        If nothing has written the data.
    ImportError
        If the kernel cannot be compiled on a real machine, because cuda.core or NVRTC is missing.
    ContextClosed, PoisonedData, InvalidDevice, OutOfMemory, DriverError
        As `task.start`.

    Notes
    -----
    Puts two tasks into the flow and waits for nothing: the first leaves partial results of each place, on the place's
    stream; the second makes one of them on the first place. Both go in a fixed order that depends on the shape and
    the parts alone. So sums of integers are exact, modulo their width, and sums of floats the same each time for the
    same grid; another grid can round otherwise.

    Each box of a place is a piece of work of its own: with block-cyclic rules of small blocks that is slow.

    On GPUs a kernel is compiled for each operation, dtype and rank at its first use, and kept in ``stf_places`` in
    the user's cache folder. On a simulated machine, and on the host, NumPy does the work.

    Examples
    --------
    >>> import numpy as np
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
    ...     data = ctx.logical_data(np.arange(12.0).reshape(4, 3))
    ...     grid = stf.exec_place_grid.from_devices([0, 1]).with_data(stf.partition(stf.blocked("x"), stf.whole))
    ...     total, largest = stf.reduce(ctx, data, "sum", grid), stf.reduce(ctx, data, "max")
    ...     ctx.wait(total), ctx.wait(largest)
    (array([66.]), array([11.]))
    """
    _check(ctx, data, op, place)
    label = "reduce" if symbol is None else symbol
    where, cut = _cut(data, place)
    scratch = _memory_of(where)
    most = _most_partials(data, where, cut)
    partials = ctx.logical_data_empty(most, data.dtype, f"partial results of {label}")
    result = ctx.logical_data_empty(1, data.dtype, symbol)
    on = () if where is None else (where,)
    with ctx.task(*on, data.read(), partials.write(scratch), symbol=label) as body:
        first, used = _first(body), 0
        for shard in body.shards(0, partition=cut):
            used += _reduce_shard(shard, op, used, label)
    with ctx.task(first, partials.read(scratch), result.write(_memory_of(first)), symbol=label) as body:
        (shard,) = body.shards(0)
        _reduce_partials(shard, op, used, label)
    return result


def _check(ctx: object, data: object, op: object, place: object) -> None:
    """Raise unless these are arguments of `reduce`."""
    if not isinstance(ctx, context):
        raise TypeError(f"reduce() takes the data's context first: got {type(ctx).__name__}")
    if not isinstance(data, logical_data):
        raise TypeError(
            f"reduce() takes logical data: got {type(data).__name__}; register it with ctx.logical_data first"
        )
    if place is not None and not isinstance(place, exec_place):
        raise TypeError(
            f"reduce() runs on an exec_place or a grid, such as exec_place.device(0): got {type(place).__name__}"
        )
    if op not in OPERATIONS:
        raise ValueError(f"op is one of {', '.join(map(repr, OPERATIONS))}: got {op!r}")
    if data.dtype is None:
        raise TypeError(f"reduce() needs elements, and a token only orders tasks: got {data!r}")
    if data.size == 0:
        raise ValueError(f"reduce() needs one element or more: got {data!r}")
    if data.dtype.name not in DTYPES or not data.dtype.isnative:
        raise TypeError(
            f"reduce() takes {', '.join(DTYPES)}, in the machine's byte order: got {data!r}; convert the data in a task"
        )


def _cut(data: logical_data, place: exec_place | None) -> tuple[exec_place | None, Partition | None]:
    """Return the place, where a grid has memory for all its places, and how it cuts the data."""
    if not isinstance(place, exec_place_grid):
        return place, None
    if not data.shape:
        return place.get_place(0), None
    affine: Any = place.affine_data_place
    composite = affine is not None and affine.kind == "composite"
    if composite and isinstance(affine.spec, Partition):
        return place, affine.spec
    rows = partition(blocked(*place.axes), *[whole] * (len(data.shape) - 1))
    return (place.with_data(rows) if affine is None else place), rows


def _memory_of(place: exec_place | None) -> data_place | None:
    """Return memory that all devices of a place reach: its device's, or the host's where it has several or none."""
    if place is None:
        return None
    places = place.places if isinstance(place, exec_place_grid) else (place,)
    devices = {each.device_id for each in places}
    device = devices.pop()
    return data_place.host() if devices or device < 0 else data_place.device(device)


def _most_partials(data: logical_data, place: exec_place | None, cut: Partition | None) -> int:
    """Return at least as many as the boxes of all places have results."""
    boxes = 1
    if cut is not None:
        assert data.shape is not None and isinstance(place, exec_place_grid)
        try:
            layout = cut.bind(data.shape, place)
        except PartitionError as error:
            raise PartitionError(f"{data!r} does not fit the partition of its grid: {error}") from error
        boxes = sum(len(layout.boxes(number)) for number in range(layout.place_count))
    return most_blocks(boxes, data.size)


def _first(body: task) -> exec_place:
    """Return the first place of an open task."""
    place = body.exec_place
    assert place is not None  # the current device, if none was given
    return place.get_place(0)


def _reduce_shard(shard: Shard, op: str, used: int, label: str) -> int:
    """Reduce a box of argument 0 into argument 1, from place `used` on; return how many results there are."""
    results = shard.get_arg_cai(1)
    if _on_cpu(shard):
        shard.run(_reduce_on_cpu, op, shard.view, results, used)
        return 1
    blocks = block_count(shard.size)
    _launch(shard, op, shard.size, results.ptr + used * results.dtype.itemsize, blocks, label)
    return blocks


def _reduce_partials(shard: Shard, op: str, used: int, label: str) -> None:
    """Reduce the first `used` elements of argument 0 into argument 1."""
    results = shard.get_arg_cai(1)
    if _on_cpu(shard):
        shard.run(_reduce_on_cpu, op, shard.view, results, 0, used)
    else:
        _launch(shard, op, used, results.ptr, 1, label)


def _on_cpu(shard: Shard) -> bool:
    return shard.stream.simulated or shard.place.kind == "host"


def _reduce_on_cpu(op: str, view: stf_cai, results: stf_cai, at: int, used: int | None = None) -> None:
    """Put the reduction of a view, or of its first elements, into a place of the results."""
    values = np.asarray(view) if used is None else np.asarray(view)[:used]
    with np.errstate(over="ignore", invalid="ignore"):  # as on a GPU, which does not warn
        np.asarray(results)[at] = _UFUNCS[op].reduce(values, axis=None, dtype=values.dtype)


def _launch(shard: Shard, op: str, size: int, results: int, blocks: int, label: str) -> None:
    """Launch the kernel on the shard's stream, over its view or as many of its elements as are used."""
    view = shard.view
    layout = view.__cuda_array_interface__
    shape, strides = layout["shape"], layout["strides"]
    if size != shard.size:
        shape, strides = (size,), (view.dtype.itemsize,)
    launch_reduction(
        _driver(),
        shard.place.device_id,
        int(shard.stream),
        StridedBox(view.ptr, shape, strides),
        results,
        op=op,
        dtype=view.dtype.name,
        blocks=blocks,
        symbol=label,
    )


def _driver() -> DriverHandle:
    """Return the driver of the GPUs."""
    from stf_places._native import runtime

    driver = runtime.current().driver
    if driver.simulated:
        raise WrongContext(
            f"reduce() launches its kernel on the machine in use: that is the simulated {driver.machine!r}, and the "
            "context is a GPU's; call it outside of the block of use_machine"
        )
    return driver
