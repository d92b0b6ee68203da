"""The part of the driver seam that maps pages of several devices into one range, as functions of a `DriverHandle`.

The core calls the C++ seam itself. These functions are for tests that run one body on every driver.

No function holds the GIL during a driver call. A failed call raises what `stf_places._native.errors` says for
its code. Nothing here is in stream order.
"""

from collections.abc import Iterable

from stf_places._native.drivers import DriverHandle

def page_granularity(handle: DriverHandle, device: int) -> int:
    """Return what offsets and sizes of a device's pages are multiples of, in bytes.

    Raises
    ------
    InvalidDevice
        If there is no such device.
    """

def reserve_pages(handle: DriverHandle, nbytes: int) -> int:
    """Reserve a range of addresses that has no memory yet, and return its first address.

    Raises
    ------
    DriverError
        If ``nbytes`` is no positive multiple of the page granularity.
    """

def release_pages(handle: DriverHandle, address: int, nbytes: int) -> None:
    """Give a whole range back, in which nothing is mapped any more.

    Raises
    ------
    DriverError
        If it is no whole range, or something is still mapped.
    """

def map_pages(handle: DriverHandle, address: int, nbytes: int, device: int) -> None:
    """Map one piece of a device's memory into a range; nobody reaches it before `grant_access`.

    Raises
    ------
    OutOfMemory
        If the device has no room.
    InvalidDevice
        If there is no such device.
    DriverError
        If it is not aligned, lies outside a range or over another piece.
    """

def unmap_pages(handle: DriverHandle, address: int, nbytes: int) -> None:
    """Give pieces back, whose users are done.

    Raises
    ------
    DriverError
        If they are not whole pieces, or not all mapped.
    """

def grant_access(handle: DriverHandle, address: int, nbytes: int, devices: Iterable[int]) -> None:
    """Let kernels and copies of some devices read and write pieces.

    Raises
    ------
    NotSupported
        If a device cannot reach the memory of another, naming the pair.
    InvalidDevice
        If there is no such device.
    DriverError
        If they are not whole pieces, or not all mapped.
    """

def link_traffic(handle: DriverHandle) -> dict[tuple[int, int], int]:
    """Return the bytes sent over links so far by their ends, from and to; simulated machines only.

    Raises
    ------
    NotSupported
        On a real driver.
    """
