"""The part of the driver seam that splits SMs and makes green contexts, as functions of a `DriverHandle`.

The core calls the C++ seam itself. These functions are for tests that run one body on every driver.

No function holds the GIL during a driver call. A failed call raises what `stf_places._native.errors` says for
its code.
"""

from collections.abc import Iterable

from stf_places._native.drivers import DriverHandle

class SmSet:
    """Hold a set of SMs: of a device, of a context, or a group of a split.

    Notes
    -----
    Made by the functions of this module only. Having or splitting one creates nothing on the device.
    """

    @property
    def device(self) -> int:
        """The device that the SMs belong to."""
    @property
    def sm_count(self) -> int:
        """How many SMs there are; 0 for what is left when nothing is."""
    @property
    def min_partition(self) -> int:
        """SMs of the smallest group; 0 for groups of a split, which cannot be split again."""
    @property
    def alignment(self) -> int:
        """What the SM counts of groups are multiples of; 0 for groups of a split."""

def device_sms(handle: DriverHandle, device: int) -> SmSet:
    """Return all SMs of a device.

    Raises
    ------
    NotSupported
        If the driver is older than CUDA 12.5.
    InvalidDevice
        If there is no such device.
    """

def context_sms(handle: DriverHandle, context: int) -> SmSet:
    """Return the SMs of a context: a primary context has its device's.

    Raises
    ------
    NotSupported
        If the driver is older than CUDA 12.5.
    """

def split_sms(
    handle: DriverHandle, whole: SmSet, sm_count: int, groups: int = 0, fine: bool = False
) -> tuple[list[SmSet], SmSet]:
    """Split a set of SMs into equal groups.

    Parameters
    ----------
    handle : DriverHandle
        The driver.
    whole : SmSet
        What a device or a context has.
    sm_count : int
        SMs of a group, which the driver rounds up.
    groups : int
        How many groups at most; 0 for as many as fit.
    fine : bool
        Ignore co-scheduling: counts in steps of 2, without thread-block clusters.

    Returns
    -------
    tuple
        The groups, and what is left.

    Raises
    ------
    DriverError
        If not one group fits, or if ``whole`` comes from a split.
    """

def split_sms_unequally(
    handle: DriverHandle, whole: SmSet, groups: Iterable[tuple[int, int]]
) -> tuple[list[SmSet], SmSet]:
    """Split a set of SMs into groups of given sizes.

    Parameters
    ----------
    handle : DriverHandle
        The driver.
    whole : SmSet
        What a device or a context has.
    groups : iterable of (int, int)
        SMs of each group and how many of them are to share a cluster's hardware; 0 for no wish.

    Returns
    -------
    tuple
        The groups, and what is left.

    Raises
    ------
    NotSupported
        If the driver is older than CUDA 13.1.
    DriverError
        If the groups do not fit, or if ``whole`` comes from a split.
    """

def create_green_context(
    handle: DriverHandle,
    device: int,
    sets: Iterable[SmSet],
    *,
    concurrency_limit: int | None = None,
    balanced: bool = False,
) -> int:
    """Make a context whose streams keep to some SMs.

    Parameters
    ----------
    handle : DriverHandle
        The driver.
    device : int
        The device of the SMs.
    sets : iterable of SmSet
        Groups, and what is left, of one split.
    concurrency_limit : int, optional
        Streams that are expected to be at work at once, 0 for the driver's own number. None leaves the
        hardware work queues as they are.
    balanced : bool
        Use work queues of the context's own where possible. Without a ``concurrency_limit`` it says nothing.

    Returns
    -------
    int
        The context.

    Raises
    ------
    NotSupported
        If the driver is older than CUDA 12.5, or than 13.1 and a ``concurrency_limit`` is given.
    DriverError
        If the sets do not go together.
    """

def destroy_green_context(handle: DriverHandle, context: int) -> None:
    """Give a green context back, whose streams have been destroyed before.

    Raises
    ------
    DriverError
        If there is no such green context.
    """

def sm_ids(handle: DriverHandle, context: int) -> list[int]:
    """Return the SMs that a context's kernels can run on, ascending; simulated machines only.

    Raises
    ------
    NotSupported
        On a real driver.
    """
