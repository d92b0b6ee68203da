"""What callers may give as a stream, turned into the driver's handle, and back."""

from stf_places.places.streams import CudaStream

def stream_handle_of(stream: object) -> int:
    """Return the handle that a stream argument stands for on the current machine.

    Parameters
    ----------
    stream : None, int, CudaStream or object with ``__cuda_stream__``
        None is the default stream, 0.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If the number is out of range, or the protocol's version is unknown.
    WrongContext
        If a CUDA stream is given to a simulated machine, or a simulated one to CUDA.
    """

def cuda_stream_of(handle: int, simulated: bool) -> CudaStream:
    """Return the stream object of a handle; the same object each time while it is cached."""
