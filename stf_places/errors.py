"""The exceptions of the package.

Everything that the package raises on its own behalf is a `StfError`. Classes that stand for a wrong argument
or for missing memory are also the built-in exception of that meaning, so that ``except ValueError`` and
``except MemoryError`` work as in any Python code.
"""

__all__ = [
    "ContextClosed",
    "DataRace",
    "DeviceLost",
    "DriverError",
    "InvalidDevice",
    "MapperError",
    "NotSupported",
    "OutOfMemory",
    "PartitionError",
    "PoisonedData",
    "ReadOnlyError",
    "StfError",
    "TaskStateError",
    "WrongContext",
]


class StfError(RuntimeError):
    """Stand at the root of the package's exceptions."""


class DriverError(StfError):
    """Report a call of the driver that failed.

    Parameters
    ----------
    message : str
        What failed, what was given and what would work.
    call : str, optional
        Name of the driver's function, such as ``"cuMemAllocAsync"``; empty where none was called.
    code : int, optional
        The driver's own number; 0 where it gave none.
    name : str, optional
        The driver's name for that number, such as ``"CUDA_ERROR_INVALID_VALUE"``.

    Attributes
    ----------
    call : str
        As given.
    code : int
        As given.
    name : str
        As given.

    Examples
    --------
    >>> error = DriverError("cuInit failed", call="cuInit", code=100, name="CUDA_ERROR_NO_DEVICE")
    >>> error.call, error.code, error.name
    ('cuInit', 100, 'CUDA_ERROR_NO_DEVICE')
    """

    def __init__(self, message: str = "", *, call: str = "", code: int = 0, name: str = "") -> None:
        super().__init__(message)
        self.call = call
        self.code = code
        self.name = name


class DeviceLost(DriverError):
    """Report a sticky error: every context of this process on the device is gone, partitions included.

    Notes
    -----
    An illegal address or a failed assertion in a kernel does this. The process cannot use the device again;
    start a new one.
    """


class NotSupported(DriverError):
    """Report something that this driver, device or simulated machine lacks, and which one brings it."""


class OutOfMemory(DriverError, MemoryError):
    """Report that a place has no room left, after unused and shared copies were given up."""


class InvalidDevice(DriverError, ValueError):
    """Report a device that does not exist, and how many there are."""


class PartitionError(StfError, ValueError):
    """Report a partition or a split of SMs that cannot be made, and the nearest that can."""


class MapperError(StfError, ValueError):
    """Report a mapper that raised, or that answered outside the grid.

    Notes
    -----
    The mapper's own exception, if there was one, is the cause (``__cause__``).
    """


class ReadOnlyError(StfError, ValueError):
    """Report a write to data that is read-only."""


class ContextClosed(StfError):
    """Report the use of a context after it was finalised."""


class WrongContext(StfError, ValueError):
    """Report an object that was given to another context than its own, or to the wrong thread."""


class TaskStateError(StfError):
    """Report a call that a task does not allow in its present state."""


class PoisonedData(StfError):
    """Report the reading of data that a failed task left half-written.

    Notes
    -----
    The text names the task. Overwriting the data makes it good again.
    """


class DataRace(StfError):
    """Report two operations that touch the same bytes without an order between them.

    Notes
    -----
    Only a simulated machine looks for it.
    """
