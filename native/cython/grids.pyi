"""Grids of places, as values."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import EllipsisType
from typing import Any, Literal, SupportsIndex, TypeAlias

from stf_places._native.places import data_place, exec_place, exec_place_resources
from stf_places.partitions import AxisRule, Mapper, Partition
from stf_places.places.streams import CudaStream

#: Places, or sequences and grids of them.
_Nested: TypeAlias = Iterable[exec_place | _Nested]
_Key: TypeAlias = SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType, ...]

class exec_place_grid(exec_place):
    """Arrange places along 1 to 4 named axes, in C order. An immutable value: hashable, compared by what it is.

    Indexing follows NumPy: an index for each axis gives a place, fewer indices and slices give a grid, and
    ``len`` and iteration go over the first axis. The axes that stay keep their names. `places` and `get_place`
    count through all places.

    Notes
    -----
    The affine data place of a grid is the one that its places have by what they are, if it is the same for all
    (partitions of one device share that device's memory); `with_data` and `set_affine_data_place` give it another.
    What was set on the object of a place stays with that object. What a grid was given takes no part in
    comparisons, and stays where all places stay: in `reshape`, `collapse_axes`, copies and pickles, not in parts.

    Creation, comparison, hashing and slicing take time in proportion to the number of places.

    Examples
    --------
    >>> grid = exec_place_grid.create([exec_place.device(i) for i in range(4)], (2, 2), axes=("node", "gpu"))
    >>> grid.shape, grid[1, 0] == exec_place.device(2), grid[:, 1].axes
    ((2, 2), True, ('node',))
    """

    places: tuple[exec_place, ...]
    """The places, in C order."""
    axes: tuple[str, ...]
    """The name of each axis: x, y, z and t unless given."""

    @staticmethod
    def from_devices(
        device_ids: Iterable[SupportsIndex], axes: Iterable[str] | None = None
    ) -> exec_place_grid:
        """Return a grid with one axis of whole devices.

        Parameters
        ----------
        device_ids : iterable of int
            Ordinals, from 0.
        axes : sequence of str, optional
            The name of its axis.

        Raises
        ------
        TypeError
            If `device_ids` is no sequence of ints, or `axes` no sequence of strings.
        ValueError
            If there is no device, an ordinal is negative, or `axes` is not one name.

        Examples
        --------
        >>> exec_place_grid.from_devices([0, 1], axes=("gpu",)).axes
        ('gpu',)
        """
    @staticmethod
    def create(
        places: _Nested,
        grid_dims: SupportsIndex | Sequence[SupportsIndex] | None = None,
        mapper: Partition | Mapper | AxisRule | Callable[..., Any] | None = None,
        axes: Iterable[str] | None = None,
    ) -> exec_place_grid:
        """Return a grid of places.

        Parameters
        ----------
        places : iterable of exec_place, or nested
            Places in C order. Sequences and grids of one shape nest: their number is the first axis, followed by
            their own axes.
        grid_dims : int or sequence of int, optional
            One length an axis. None: as the places are nested.
        mapper : Partition, Mapper, AxisRule or callable, optional
            How data of tasks on the grid lies over its places: as `with_data` takes it.
        axes : sequence of str, optional
            The name of each axis, all distinct. None: x, y, z and t.

        Raises
        ------
        TypeError
            If an item is no place, `grid_dims` no sequence of ints, or `axes` no sequence of strings.
        ValueError
            If there is no place; what is nested differs in shape; there are more than 4 axes; `grid_dims` has no axis,
            one below 1, or another product than the number of places; `axes` has a name too many or too few, an empty
            one or one twice.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x2"):
        ...     halves = [stf.green_places(64, 2, device_id=i) for i in range(2)]
        ...     grid = exec_place_grid.create(halves, axes=("gpu", "sm"))
        ...     grid.shape, grid[1].axes, grid[1, 0].device_id
        ((2, 2), ('sm',), 1)
        """
    @staticmethod
    def machine(
        granularity: Literal["device", "locality_domain"] | SupportsIndex = "device",
    ) -> exec_place_grid:
        """Return a grid of the whole machine in use.

        Parameters
        ----------
        granularity : {"device", "locality_domain"} or int
            ``"device"``: all devices, along the axis ``gpu``. ``"locality_domain"``: all locality domains, along
            ``gpu`` and ``domain``. A number: partitions of so many SMs, made with `green_places`, along ``gpu`` and
            ``sm``; the same number on each device, which is what fits on the one with the least room.

        Raises
        ------
        TypeError
            If `granularity` is no string and no int.
        ValueError
            If it is an unknown string.
        PartitionError
            If it is below 1, or a device has no room for a place of so many SMs.
        NotSupported
            If the driver cannot make partitions.

        Notes
        -----
        Drivers so far know no locality domains: see `locality_domains`.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x2"):
        ...     exec_place_grid.machine().shape, exec_place_grid.machine(16).shape
        ((2,), (2, 8))
        """
    @staticmethod
    def locality_domain_count(dev_id: SupportsIndex) -> int:
        """Return how many locality domains a device has: 1, since drivers so far know none.

        Parameters
        ----------
        dev_id : int
            Ordinal of a device of the machine in use.

        Raises
        ------
        TypeError
            If it is no int.
        ValueError
            If it is negative.
        InvalidDevice
            If the machine has no such device.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x2"):
        ...     exec_place_grid.locality_domain_count(0)
        1
        """
    @staticmethod
    def locality_domains(dev_id: SupportsIndex | None = None) -> exec_place_grid:
        """Return a grid of locality domains, along the axis ``domain``.

        Parameters
        ----------
        dev_id : int, optional
            Ordinal of a device of the machine in use. None: all devices.

        Raises
        ------
        TypeError
            If it is no int.
        ValueError
            If it is negative.
        InvalidDevice
            If the machine has no such device.

        Notes
        -----
        A locality domain is a part of a device with memory of its own. Drivers so far know none, so each device is
        one, and its place is the whole device.

        Examples
        --------
        >>> import stf_places as stf
        >>> with stf.use_machine("sim:h200x2"):
        ...     exec_place_grid.locality_domains(1).places == (exec_place.device(1),)
        True
        """
    @property
    def shape(self) -> tuple[int, ...]:
        """Places along each axis."""
    def axis_number(self, axis: str | SupportsIndex) -> int:
        """Return the number of an axis, from 0.

        Parameters
        ----------
        axis : str or int
            Its name, or its number; negative numbers count from the end.

        Raises
        ------
        TypeError
            If it is neither.
        ValueError
            If there is no axis of this name.
        IndexError
            If there is no axis of this number.

        Examples
        --------
        >>> grid = exec_place_grid.create([[exec_place.device(0)]], axes=("gpu", "sm"))
        >>> grid.axis_number("sm"), grid.axis_number(-1)
        (1, 1)
        """
    def with_data(
        self, data: data_place | Partition | Mapper | AxisRule | Callable[..., Any]
    ) -> exec_place_grid:
        """Return a grid of the same places and axes with another affine data place; this one stays as it is.

        Parameters
        ----------
        data : data_place, Partition, Mapper, AxisRule or callable
            What `data_place.affine()` means for tasks on the new grid. What lays data over a grid stands for
            ``data_place.composite(grid, data)`` over this one.

        Raises
        ------
        TypeError
            If it is none of these.
        ValueError
            If it is `data_place.affine()` itself, or `data_place.replicated()`.
        PartitionError
            If a composite place over this grid is none, as `data_place.composite` says.

        Examples
        --------
        >>> import stf_places as stf
        >>> grid = exec_place_grid.from_devices([0, 1])
        >>> grid.with_data(data_place.managed()).affine_data_place.kind, grid.affine_data_place
        ('managed', None)
        >>> grid.with_data(stf.blocked("x")).affine_data_place.spec
        partition(blocked('x'))
        """
    def reshape(
        self, shape: SupportsIndex | Sequence[SupportsIndex], axes: Iterable[str] | None = None
    ) -> exec_place_grid:
        """Return a grid of the same places, in the same order, with other axes.

        Parameters
        ----------
        shape : int or sequence of int
            One length an axis. One of them can be -1, which stands for what is left.
        axes : sequence of str, optional
            The name of each axis. None: x, y, z and t, whatever the names are now.

        Raises
        ------
        TypeError
            If `shape` is no sequence of ints, or `axes` no sequence of strings.
        ValueError
            If the product of the lengths is not the number of places, or shape or names are not as for `create`.

        Examples
        --------
        >>> grid = exec_place_grid.from_devices(range(6)).reshape((-1, 3), axes=("node", "gpu"))
        >>> grid.shape, grid[1, 0] == exec_place.device(3)
        ((2, 3), True)
        """
    def collapse_axes(self, *axes: str | SupportsIndex, name: str | None = None) -> exec_place_grid:
        """Return a grid of the same places, in the same order, with neighbouring axes made into one.

        Parameters
        ----------
        *axes : str or int
            Names or numbers of neighbouring axes, in their order. None given: all axes.
        name : str, optional
            The name of the axis that replaces them. None: that of the first.

        Raises
        ------
        TypeError
            If an axis is no name and no number, or `name` no string.
        ValueError
            If there is no axis of a name, the axes are not neighbours or not in their order, or the new name is empty
            or that of another axis.
        IndexError
            If there is no axis of a number.

        Examples
        --------
        >>> grid = exec_place_grid.create([[exec_place.device(0)] * 3] * 2, axes=("gpu", "sm"))
        >>> flat = grid.collapse_axes("gpu", "sm")
        >>> flat.shape, flat.axes
        ((6,), ('gpu',))
        """
    def get_place(self, idx: SupportsIndex) -> exec_place:
        """Return the place with a linear index, in C order over all axes.

        Raises
        ------
        IndexError
            If there is none.
        """
    def pick_stream(self, resources: exec_place_resources, for_computation: bool = True) -> CudaStream:
        """Return a stream of the first place, the next in turn; see `exec_place.pick_stream`."""
    def __getitem__(self, key: _Key) -> exec_place | exec_place_grid: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[exec_place]: ...
