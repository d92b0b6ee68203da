"""Capsules of the DLPack protocol."""

def make_capsule(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    code: int,
    bits: int,
    device: tuple[int, int],
) -> object:
    """Make a ``"dltensor"`` capsule (unversioned) over memory that `owner` keeps alive.

    Parameters
    ----------
    owner : object
        Referenced until the consumer's deleter runs, or until the capsule goes without a consumer.
    address : int
        Address of the first element.
    shape : tuple of int
        One length an axis.
    strides : tuple of int
        One stride an axis, in elements.
    code : int
        DLPack's type code.
    bits : int
        Bits of an element.
    device : tuple of int
        DLPack's device type and the device's ordinal.

    Raises
    ------
    MemoryError
        If the host has no memory for the capsule.
    """
