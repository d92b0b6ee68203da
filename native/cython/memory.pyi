"""Memory that a program asked for itself, released when the last reference goes."""

from stf_places._native.places import data_place

class Allocation:
    """Own a block of memory of a data place.

    Parameters
    ----------
    place : data_place
        Where; not affine.
    shape : tuple of int
        Elements along each axis; none asks for nothing and has the address 0.
    itemsize : int
        Bytes of an element.
    stream : None, int, CudaStream or object with ``__cuda_stream__``
        Device memory is made and given back in this stream's order. None: the device's default stream, and the
        memory is usable by every stream at once.

    Raises
    ------
    ValueError
        If the place has no memory of its own.
    PartitionError
        If the shape does not fit the partition of a composite place.
    InvalidDevice
        If the machine has no such device.
    OutOfMemory
        If the place has no room.

    Notes
    -----
    A failure to give the memory back is a `ResourceWarning`. The stream object is kept alive; a stream given as
    an int has to outlive the block.
    """

    def __init__(
        self, place: data_place, shape: tuple[int, ...], itemsize: int, stream: object = None
    ) -> None: ...
    @property
    def place(self) -> data_place:
        """As given; a composite place bound to the shape, or the one device that has all its pages."""
    @property
    def device_id(self) -> int:
        """The ordinal of the device, of several the first, -1 for memory of none."""
    @property
    def address(self) -> int:
        """The address, 0 for no bytes."""
    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def stream(self) -> int:
        """The stream's handle, 0 for the default stream."""
    @property
    def simulated(self) -> bool:
        """True on a simulated machine."""
    @property
    def executes(self) -> bool:
        """False on a simulated machine that moves no bytes."""
    @property
    def on_host(self) -> bool:
        """True when the CPU may use the address."""
    def copy_to_host(
        self, host: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> None:
        """Copy an array in the block to C-contiguous host memory behind the stream's work, and wait.

        Parameters
        ----------
        host : int
            Address of the host memory.
        offset : int
            Offset of the first element, in bytes.
        shape : tuple of int
            The array's shape.
        strides : tuple of int
            The array's strides, in bytes.
        itemsize : int
            Bytes of an element.

        Raises
        ------
        DriverError
            If a copy fails.
        """
    def copy_from_host(
        self, host: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> None:
        """Copy C-contiguous host memory to an array in the block; as `copy_to_host`."""
    def synchronize(self) -> None:
        """Wait for the stream's work."""
    def order_before(self, stream: int) -> None:
        """Make a stream wait for what the block's stream has been given so far."""
