"""Logical data: one value, any number of instances of it, and what tasks do with it."""

import enum
from typing import Any, SupportsFloat, SupportsIndex, final

import numpy as np

from stf_places._native.places import data_place
from stf_places.flow.conditions import cond

class AccessMode(enum.IntFlag):
    """Say what a task does with data."""

    NONE = 0
    READ = 1
    WRITE = 2
    """Overwrites all of it: the value before is not brought to the task."""
    RW = 3

@final
class dep:
    """Name data, and what a task does with it; made by `logical_data.read`, `write` and `rw`."""

    @property
    def data(self) -> logical_data:
        """The data."""
    @property
    def mode(self) -> AccessMode:
        """What the task does with it."""
    @property
    def dplace(self) -> data_place | None:
        """Where the task wants it; None: where the task's place has its memory."""

@final
class logical_data:
    """Stand for a value that a context keeps where it is needed.

    Made by `context.logical_data`, `logical_data_empty`, `logical_data_full`, `logical_data_zeros`,
    `logical_data_ones` and `context.token`. ``==`` and ``!=`` compare by identity; ``data < x``, ``<=``, ``>`` and
    ``>=`` are `cond` of the data and a scalar, a term of a loop's condition.

    Notes
    -----
    Dropping the last reference ends the value: its memory is reused in stream order, behind the tasks that use
    it, and the value of registered memory goes back there. That may happen in any thread.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
    ...     data = ctx.logical_data_full((2, 2), 1.5, name="u")
    ...     data, data.read().mode
    (logical_data(shape=(2, 2), dtype=float64, symbol='u'), <AccessMode.READ: 1>)
    """

    __array_ufunc__: None

    def read(self, dplace: data_place | None = None) -> dep:
        """Return the dependency of a task that reads the data.

        Parameters
        ----------
        dplace : data_place, optional
            Where the task wants it; by default the memory of the task's place.

        Raises
        ------
        TypeError
            If `dplace` is no data place.
        """
    def write(self, dplace: data_place | None = None) -> dep:
        """Return the dependency of a task that overwrites all of the data.

        Parameters
        ----------
        dplace : data_place, optional
            As in `read`.

        Raises
        ------
        ReadOnlyError
            If the data was registered from read-only memory.
        TypeError
            If `dplace` is no data place.
        """
    def rw(self, dplace: data_place | None = None) -> dep:
        """Return the dependency of a task that reads and changes the data.

        Parameters
        ----------
        dplace : data_place, optional
            As in `read`.

        Raises
        ------
        ReadOnlyError
            If the data was registered from read-only memory.
        TypeError
            If `dplace` is no data place.
        """
    def push(self, mode: AccessMode | int, dplace: data_place | None = None) -> None:
        """Take the data into the innermost scope before a task there uses them.

        Tasks take what they use into their scope by themselves, on the data place of the first that does. This says it
        beforehand: with `AccessMode.READ`, nothing in the scope may write the data, and each data place that reads them
        has a copy of its own, which is not made again in each round of a loop or at each launch.

        Parameters
        ----------
        mode : AccessMode
            What the scope does: READ, WRITE (the value before it is not needed) or RW.
        dplace : data_place, optional
            Where they are for the scope: the memory of the current device by default.

        Raises
        ------
        NotSupported
            For data of a context without scopes.
        TaskStateError
            Outside of scopes, or where tasks of the scope have used the data in another way already.
        ReadOnlyError
            If the data are read-only and `mode` writes.
        ValueError
            If `mode` is none of these.
        """
    def set_read_only(self) -> None:
        """Refuse all further writes, so that scopes may read the data on several places at once.

        Raises
        ------
        NotSupported
            For data of a context without scopes.
        """
    def empty_like(self) -> logical_data:
        """Make data of the same shape and dtype without a value; a token makes a token.

        Raises
        ------
        ContextClosed
            If the context was finalized.
        """
    def set_symbol(self, name: str) -> None:
        """Give the data another name for messages and reports.

        Raises
        ------
        TypeError
            If it is no string.
        """
    @property
    def symbol(self) -> str | None:
        """The name, None if it has none."""
    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Type of an element; None for tokens."""
    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the axes; None for tokens."""
    @property
    def ndim(self) -> int:
        """Number of axes; 0 for tokens."""
    @property
    def size(self) -> int:
        """Number of elements; 0 for tokens."""
    @property
    def nbytes(self) -> int:
        """Size of the value in bytes; 0 for tokens."""
    @property
    def readonly(self) -> bool:
        """True if the memory that it was registered from forbids writes."""
    @property
    def token(self) -> bool:
        """True if it only orders tasks and has no value."""
    @property
    def stackable(self) -> bool:
        """True if its context is stackable, so that comparisons with it are conditions of loops."""
    def __lt__(self, threshold: SupportsFloat | SupportsIndex) -> cond: ...
    def __le__(self, threshold: SupportsFloat | SupportsIndex) -> cond: ...
    def __gt__(self, threshold: SupportsFloat | SupportsIndex) -> cond: ...
    def __ge__(self, threshold: SupportsFloat | SupportsIndex) -> cond: ...
    def __hash__(self) -> int: ...

def read(ld: logical_data, dplace: data_place | None = None) -> dep:
    """Return ``ld.read(dplace)``.

    Raises
    ------
    TypeError
        If `ld` is no logical data.
    """

def write(ld: logical_data, dplace: data_place | None = None) -> dep:
    """Return ``ld.write(dplace)``.

    Raises
    ------
    TypeError
        If `ld` is no logical data.
    ReadOnlyError
        If it was registered from read-only memory.
    """

def rw(ld: logical_data, dplace: data_place | None = None) -> dep:
    """Return ``ld.rw(dplace)``.

    Raises
    ------
    TypeError
        If `ld` is no logical data.
    ReadOnlyError
        If it was registered from read-only memory.
    """
