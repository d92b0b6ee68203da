"""The memory of a task's arguments as other libraries see it."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

class stf_cai:
    """Describe the memory of a task's argument through the CUDA Array Interface (version 3).

    Made by `task.get_arg_cai`, `task.args_cai` and `Shard.view`. It names no stream: launch on the task's own streams, which
    are behind the producers of the data already.

    Notes
    -----
    Valid while the task is open. It keeps the data, but not the value: after the task's end the memory can be
    overwritten or given to other data. On a simulated machine the address is one of host memory.

    Examples
    --------
    >>> import stf_places as stf
    >>> with stf.use_machine("sim:h200x2"), stf.context() as ctx:
    ...     data = ctx.logical_data_zeros((2, 3), "f4")
    ...     with ctx.task(data.read()) as t:
    ...         view = t.get_arg_cai(0)
    ...         view.shape, view.__cuda_array_interface__["typestr"]
    ((2, 3), '<f4')
    """

    @property
    def ptr(self) -> int:
        """Address of the first element; 0 for no elements."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
    @property
    def strides(self) -> tuple[int, ...] | None:
        """Bytes from one element to the next along each axis; None where the elements lie in C order without gaps."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element."""
    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
    @property
    def readonly(self) -> bool:
        """True if the task only reads the argument."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The interface's fields; ``stream`` is None."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's fields for the same memory.

        Raises
        ------
        AttributeError
            If the memory is a GPU's.
        """
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return a NumPy view, or a copy where one is asked for.

        Raises
        ------
        NotSupported
            If the memory is a GPU's.
        ValueError
            If another dtype is asked for without a copy.
        """
