"""Tasks whose work is CUDA kernels."""

from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex, SupportsInt, final

from stf_places._native.tasks import task

_Extents = SupportsIndex | Sequence[SupportsIndex]

class _Kernel(Protocol):
    @property
    def handle(self) -> SupportsInt: ...

@final
class cuda_kernel(task):
    """Put CUDA kernels behind the data that they need. Made by `context.cuda_kernel`.

    It is a task with `launch`, which needs no library's array or stream objects: in a context on streams the kernel
    goes on the task's stream, in a graph context it becomes a kernel node.

    Notes
    -----
    A simulated machine runs no kernels: there ``run(fn, ...)`` stands for them.

    Examples
    --------
    >>> import stf_places as stf
    >>> kernel = 1  # with a GPU: cuda.core.Program(text, "c++").compile("cubin").get_kernel("axpy")
    >>> def axpy(x, y, factor):
    ...     y += factor * x
    >>> with stf.use_machine("sim:h200x2"), stf.context(use_graph=True) as ctx:
    ...     x, y = ctx.logical_data_ones(1000), ctx.logical_data_zeros(1000)
    ...     with ctx.cuda_kernel(stf.exec_place.device(0), x.read(), y.rw(), symbol="axpy") as t:
    ...         try:
    ...             t.launch(kernel, 4, 256, [x, y, 2.0, 1000])
    ...         except stf.NotSupported:
    ...             t.run(axpy, *t.args_cai(), 2.0)
    ...     ctx.wait(y).sum()
    np.float64(2000.0)
    """

    def __enter__(self) -> cuda_kernel:
        """Start the task; raises as `start`."""
    def start(self) -> cuda_kernel:
        """Bring the data and open the task; returns it. Raises as `task.start`."""
    def launch(
        self,
        kernel: _Kernel | int,
        grid: _Extents,
        block: _Extents,
        args: Sequence[Any],
        shmem: SupportsIndex = 0,
        *,
        place_index: SupportsIndex = 0,
    ) -> None:
        """Launch a kernel as work of the task.

        Parameters
        ----------
        kernel : cuda.core.Kernel or int
            The kernel: an object whose ``handle`` is a ``CUkernel`` or ``CUfunction``, or that handle as an int.
        grid, block : int or sequence of int
            Blocks of the grid and threads of a block, along 1 to 3 axes.
        args : list or tuple
            The kernel's arguments. Addresses are passed for data of the task (logical data, or the dep that the task
            was given), for `stf_cai` objects and for others with ``__cuda_array_interface__``. Values are passed as
            what they are: NumPy scalars and ctypes values, structures included, with their own type; bool; int as 64
            bits; float as a double; complex as two.
        shmem : int
            Bytes of dynamic shared memory for each block.
        place_index : int
            Number of the place in the task's grid that runs it.

        Raises
        ------
        TaskStateError
            If the task is not open.
        TypeError
            If an argument is none of the above, a token, or data that is no dependency of the task.
        ValueError
            If the kernel's handle is 0, `grid`, `block` or `shmem` is out of range, or the task is on the host.
        OverflowError
            If an int has more than 64 bits.
        IndexError
            If there is no such place.
        NotSupported
            If the machine is simulated.
        DriverError
            If the driver refuses.

        Notes
        -----
        The number of arguments and their types are not compared with the kernel's, which cannot be asked for them: an
        int for a kernel's 32-bit ``int`` works, a float for its 32-bit ``float`` does not (pass ``np.float32(x)``), and
        too few arguments are read from beyond the last.

        The call returns once the arguments are copied. The context keeps a kernel object until it is finalized; a
        kernel given as an int, and memory that is no data of the task, have to live until then. Data that stands twice
        among the dependencies means the first, its dep the very one. An array that names a stream is waited for, unless
        the stream is one of the task's. Kernels on one place run one after the other, those on several places of a grid
        side by side. More than 48 KiB of shared memory have to be allowed by an attribute of the kernel before.

        Examples
        --------
        >>> with ctx.cuda_kernel(grid, x.read(), y.rw()) as t:  # doctest: +SKIP
        ...     for place in range(2):
        ...         t.launch(kernel, (8, 8), (16, 16), [x, y, np.int32(place)], place_index=place)
        """
