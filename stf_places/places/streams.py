"""Streams as Python objects."""

from __future__ import annotations

from stf_places.errors import NotSupported

__all__ = ["CudaStream"]


class CudaStream(int):
    """Stand for a stream: an int, the driver's handle, that says what machine it belongs to.

    Parameters
    ----------
    handle : int
        The raw ``CUstream``; 0 is the default stream.

    Notes
    -----
    The object does not own the stream. Streams of tasks live as long as their context or the resources that
    it was given, streams of `exec_place.pick_stream` as long as the resources.

    Examples
    --------
    >>> stream = CudaStream(0)
    >>> stream.ptr, stream.__cuda_stream__()
    (0, (0, 0))
    """

    simulated: bool = False

    @property
    def ptr(self) -> int:
        """The handle as a plain int."""
        return int(self)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the handle.

        Raises
        ------
        NotSupported
            If the stream is one of a simulated machine: CUDA does not know it.
        """
        return (0, int(self))

    def __repr__(self) -> str:
        """Return text that reads back."""
        return f"{type(self).__name__}({int(self):#x})"


class SimulatedStream(CudaStream):
    """Stand for a stream of a simulated machine, which is never given to CUDA."""

    simulated = True

    def __cuda_stream__(self) -> tuple[int, int]:
        """Refuse: CUDA does not know this stream."""
        raise NotSupported(
            f"stream {int(self):#x} belongs to a simulated machine and cannot be given to CUDA: run the work "
            "with task.run or an interop launch, or choose the real machine with STF_PLACES_DRIVER=cuda"
        )


def make_stream(handle: int, simulated: bool) -> CudaStream:
    """Make the stream object of a handle."""
    return SimulatedStream(handle) if simulated else CudaStream(handle)
