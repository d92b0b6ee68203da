"""Shards: what each place of a grid task does of an argument, as a box of it with the place's stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import index as as_int
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy.typing as npt

from stf_places._native.grids import exec_place_grid
from stf_places.partitions.boxes import Box
from stf_places.partitions.composites import Composite, checked_spec
from stf_places.places.strided import Strided

if TYPE_CHECKING:
    from stf_places._native.places import exec_place
    from stf_places._native.tasks import task as _Task
    from stf_places._native.views import stf_cai
    from stf_places.places.streams import CudaStream

__all__ = ["Shard", "shards_of"]

#: Shape, dtype and mode of an argument; no shape: a token.
Argument: TypeAlias = "tuple[tuple[int, ...] | None, Any, int]"
_READ, _WRITE = 1, 2
#: Argument, offset and bytes of a range, bytes that are used of it (0: all), whether they are written.
Touch: TypeAlias = tuple[int, int, int, int, bool]


@dataclass(frozen=True)
class _Part:
    """Say which box a place has, before there is a task."""

    place_index: int
    box: Box
    owned: Box

    @cached_property
    def start(self) -> tuple[int, ...]:
        return tuple(one.start for one in self.box)

    @cached_property
    def step(self) -> tuple[int, ...]:
        return tuple(one.step for one in self.box)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return _lengths(self.box)


class Shard:
    """Stand for the part of a grid task that one place does: a box of an argument, and where to work on it.

    Made by `task.shards`. Valid while the task is open.

    Notes
    -----
    Where a function takes a task to launch work, as those of `stf_places.interop` do, it takes a shard as well and
    uses its place and stream.

    Examples
    --------
    >>> import numpy as np
    >>> import stf_places as stf
    >>> values = np.zeros(5)
    >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
    ...     grid = stf.exec_place_grid.from_devices([0, 1]).with_data(stf.blocked("x"))
    ...     data = ctx.logical_data(values)
    ...     with ctx.task(grid, data.write()) as t:
    ...         for shard in t.shards(0):
    ...             shard.numpy()[:] = shard.place_index + np.arange(*shard.start, shard.start[0] + shard.size) / 10
    >>> values
    array([0. , 0.1, 0.2, 1.3, 1.4])
    """

    __slots__ = ("_part", "argument", "task")

    def __init__(self, task: _Task, argument: int, part: _Part) -> None:
        self.task = task
        self.argument = argument
        self._part = part

    @property
    def place_index(self) -> int:
        """The number of the place in the grid, in C order."""
        return self._part.place_index

    @property
    def place(self) -> exec_place:
        """The place: a device or a partition."""
        place: Any = self.task.exec_place
        return place.get_place(self._part.place_index)  # type: ignore[no-any-return]

    @property
    def stream(self) -> CudaStream:
        """The place's stream in this task.

        Raises
        ------
        TaskStateError
            If the task is not open.
        """
        return self.task.get_stream_at_index(self._part.place_index)

    @property
    def box(self) -> Box:
        """The box, widened by the halo: one slice for each axis of the argument."""
        return self._part.box

    @property
    def owned(self) -> Box:
        """The box without the halo: what the place is to write."""
        return self._part.owned

    @property
    def inner(self) -> Box:
        """Where `owned` lies within the view: ``view[inner]`` is what the place owns."""
        return tuple(
            slice((own.start - all_.start) // all_.step, -(-(own.stop - all_.start) // all_.step), 1)
            for own, all_ in zip(self._part.owned, self._part.box, strict=True)
        )

    @property
    def start(self) -> tuple[int, ...]:
        """Coordinates of the first element of the box."""
        return self._part.start

    @property
    def step(self) -> tuple[int, ...]:
        """Distance of neighbours in the box along each axis; 1 but for cyclic rules."""
        return self._part.step

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of the box along each axis."""
        return self._part.shape

    @property
    def size(self) -> int:
        """Elements of the box."""
        return prod(self._part.shape)

    @property
    def view(self) -> stf_cai:
        """The box of the argument as an object with the CUDA Array Interface, with strides.

        Raises
        ------
        TaskStateError
            If the task is not open.
        """
        whole = self.task.get_arg_cai(self.argument, self.place_index)
        part = Strided.contiguous(whole.shape, whole.dtype.itemsize).select(self.box)
        return self.task.part(self.argument, self.place_index, part.offset, part.shape, part.strides)

    def numpy(self) -> npt.NDArray[Any]:
        """Return the box of the argument as a NumPy view, where the CPU can use its memory.

        Raises
        ------
        TaskStateError
            If the task is not open.
        NotSupported
            If the memory is a GPU's, or the machine moves no bytes.
        """
        array: npt.NDArray[Any] = self.task.numpy(self.argument, self.place_index)
        return array[self.box]

    def get_arg(self, index: SupportsIndex) -> int:
        """Return the address of a whole argument as this place sees it.

        Parameters
        ----------
        index : int
            Position among the task's dependencies.

        Raises
        ------
        TaskStateError, TypeError, IndexError
            As `task.get_arg`.

        Notes
        -----
        Only what is replicated differs from place to place.
        """
        return self.task.get_arg(index, self.place_index)

    def get_arg_cai(self, index: SupportsIndex) -> stf_cai:
        """Return a whole argument as this place sees it.

        Parameters
        ----------
        index : int
            Position among the task's dependencies.

        Raises
        ------
        TaskStateError, TypeError, IndexError
            As `task.get_arg_cai`.
        """
        return self.task.get_arg_cai(index, self.place_index)

    def run(self, fn: Callable[..., object], *args: object) -> None:
        """Do ``fn(*args)`` as work of this place, as `task.run` does.

        Raises
        ------
        TypeError
            If `fn` cannot be called.
        TaskStateError
            If the task is not open.
        """
        self.task.run_on(self.place_index, fn, args)

    def __repr__(self) -> str:
        """Return the place's number and the box."""
        box = ", ".join(
            f"{one.start}:{one.stop}" + (f":{one.step}" if one.step != 1 else "") for one in self.box
        )
        return f"<shard of place {self.place_index}: [{box}] of argument {self.argument}>"


def shards_of(
    task: _Task, index: SupportsIndex, halo: SupportsIndex | Sequence[SupportsIndex], partition: object
) -> list[Shard]:
    """Return the shards of an open task, as `task.shards` does."""
    argument = as_int(index)
    composite = task.spec_of(argument)
    arguments: list[Argument] = task.arguments()
    shape = arguments[argument][0]
    assert shape is not None  # spec_of refuses tokens
    widths = _checked_halo(halo, len(shape))
    place: Any = task.exec_place
    if not isinstance(place, exec_place_grid):
        if partition is not None:
            checked_spec(partition)
        everything = tuple(slice(0, length, 1) for length in shape)
        return [Shard(task, argument, _Part(0, everything, everything))] if prod(shape) else []
    laid = _laid_over(place, composite, partition, argument)
    parts: Sequence[_Part] = ()
    if prod(shape):
        parts = laid.remembered((shape, widths), lambda: tuple(_cut(laid, shape, widths)))
    if task.get_stream_at_index(0).simulated:
        # A simulated machine is told what each place touches.
        key = (shape, widths, argument, *((lengths, str(dtype), mode) for lengths, dtype, mode in arguments))
        for number, touched in enumerate(
            laid.remembered(key, lambda: _touched(argument, parts, arguments, place.size))
        ):
            task.touch(number, touched)
    return [Shard(task, argument, part) for part in parts]


def _laid_over(
    grid: exec_place_grid, composite: Composite | None, partition: object, argument: int
) -> Composite:
    """Return the task's grid with what lays the argument over it."""
    if partition is not None:
        return Composite(grid, checked_spec(partition))
    if composite is None:
        raise ValueError(
            f"shards of a grid task follow a partition: argument {argument} has none; give the grid one, as in "
            "grid.with_data(partition(blocked('x'), whole)), or shards(i, partition=...)"
        )
    return composite if composite.grid == grid else Composite(grid, composite.spec)


def _cut(composite: Composite, shape: tuple[int, ...], halo: tuple[int, ...]) -> Any:
    layout = composite.layout(shape)
    for place in range(layout.place_count):
        if not layout.owns(place):
            continue
        for owned in layout.boxes(place):
            yield _Part(place, _widened(owned, halo, shape), owned)


def _widened(box: Box, halo: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    if not any(halo):
        return box
    if any(one.step != 1 for one in box):
        raise ValueError(
            f"a halo widens boxes without gaps: got halo={halo} and a box with steps "
            f"{tuple(one.step for one in box)}; use blocked or block_cyclic in place of cyclic"
        )
    return tuple(
        slice(max(one.start - width, 0), min(one.stop + width, length), 1)
        for one, width, length in zip(box, halo, shape, strict=True)
    )


def _checked_halo(halo: Any, rank: int) -> tuple[int, ...]:
    try:
        if isinstance(halo, (bool, str, bytes)):
            raise TypeError
        widths = (as_int(halo),) * rank if hasattr(type(halo), "__index__") else tuple(map(as_int, halo))
    except TypeError:
        raise TypeError(f"a halo is an int, or one int an axis: got {halo!r}") from None
    if len(widths) != rank or any(width < 0 for width in widths):
        raise ValueError(f"a halo has one width an axis of the argument, {rank} of 0 or more: got {halo!r}")
    return widths


def _touched(
    argument: int, parts: Sequence[_Part], arguments: Sequence[Argument], places: int
) -> tuple[tuple[Touch, ...], ...]:
    """Return what each place touches: of arguments of this one's shape the boxes, of others all."""
    shape = arguments[argument][0]
    assert shape is not None
    by_place: dict[int, list[_Part]] = {}
    for part in parts:
        by_place.setdefault(part.place_index, []).append(part)
    touched: list[tuple[Touch, ...]] = []
    for place in range(places):
        own = by_place.get(place)
        rows: list[Touch] = []
        for number, (lengths, dtype, mode) in enumerate(arguments if own else ()):
            if lengths is None:
                continue
            for write in _modes(mode):
                if lengths == shape and own:
                    widened = not write or (mode == _WRITE and number == argument)
                    boxes = [part.box if widened else part.owned for part in own]
                    rows.append((number, *_hull(boxes, shape, dtype.itemsize), bool(write)))
                else:
                    nbytes = prod(lengths) * dtype.itemsize
                    rows.append(
                        (number, 0, nbytes, max(1, nbytes // len(by_place)) if write else 0, bool(write))
                    )
        touched.append(tuple(rows))
    return tuple(touched)


def _modes(mode: int) -> list[int]:
    """Return 0 if an argument is read, and what is not 0 if it is written."""
    return [0] * (mode & _READ) + [_WRITE] * (mode >> 1)


def _hull(boxes: Sequence[Box], shape: tuple[int, ...], itemsize: int) -> tuple[int, int, int]:
    """Return offset and bytes from the first to the last element of boxes, and the bytes of the elements."""
    whole = Strided.contiguous(shape, itemsize)
    parts = [whole.select(box) for box in boxes]
    first = min(part.offset for part in parts)
    last = max(
        part.offset + sum((n - 1) * stride for n, stride in zip(part.shape, part.strides, strict=True))
        for part in parts
    )
    nbytes = last + itemsize - first
    used = sum(part.nbytes for part in parts)
    # Several boxes can overlap where a halo widened them: the range is then not known to be used whole.
    return first, nbytes, min(used, nbytes if len(boxes) == 1 else max(1, nbytes - 1))


def _lengths(box: Box) -> tuple[int, ...]:
    return tuple(len(range(one.start, one.stop, one.step)) for one in box)
