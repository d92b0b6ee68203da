"""The kernel of `reduce`: its source for an operation, a dtype and a rank, and how it is launched."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from stf_places._native.places import exec_place
from stf_places.places.compiled_kernels import KernelSource, kernel_for

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle

__all__ = [
    "DTYPES",
    "OPERATIONS",
    "StridedBox",
    "block_count",
    "collapsed",
    "launch_reduction",
    "most_blocks",
    "reduction_source",
]

KERNEL_NAME = "stf_places_reduce"
OPERATIONS = ("sum", "max", "min")

#: Threads of a block.
THREADS = 256
#: Elements of a box for each of its blocks, as long as these are not too many.
BLOCK_ELEMENTS = 8 * THREADS
#: How many elements a thread has in flight at once, by the bytes of one. By all threads of an SM these are 24 KiB of
#: single bytes, 48 or 64 KiB otherwise; an H200 needs about 30 KiB to keep its memory busy (4.8 TB/s at a latency of
#: 0.8 us: estimated, not measured). More would cost registers, and so threads.
IN_FLIGHT = {1: 16, 2: 16, 4: 8, 8: 4}
#: Blocks of a box at most, 8 for each SM of an H200, all of which are resident at once. A box's blocks depend on
#: its size alone, so that sums of floats come out the same on a device and on a part of it.
MOST_BLOCKS = 1024

#: NumPy's names, and those of CUDA C++.
DTYPES = {
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}

# What makes one value of two. The larger or smaller one is `a` also where `a` is no number, and else `b`.
_COMBINED = {
    "sum": "a + b",
    "max": "a > b || a != a ? a : b",
    "min": "a < b || a != a ? a : b",
}

# Each block reduces the elements that its threads come to in strides of all threads, and writes one result. A thread
# divides once, for the coordinates of its first element; afterwards it adds the digits of the stride to them.
_BODY = """
struct Box {
  long long count;
  long long lengths[RANK];
  long long strides[RANK];  // in bytes
  long long steps[RANK];    // digits of the number of all threads, to the bases `lengths`
};

struct Walk {
  long long coords[RANK];

  __device__ Walk(const Box& box, long long number) {
#pragma unroll
    for (int axis = RANK - 1; axis > 0; --axis) {
      coords[axis] = number % box.lengths[axis];
      number /= box.lengths[axis];
    }
    coords[0] = number;
  }

  // Returns where the element is, and goes on to the thread's next one.
  __device__ const char* next(const char* base, const Box& box) {
    long long carry = 0;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis) {
      base += coords[axis] * box.strides[axis];
      coords[axis] += box.steps[axis] + carry;
      carry = axis > 0 && coords[axis] >= box.lengths[axis];
      if (carry) coords[axis] -= box.lengths[axis];
    }
    return base;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS) stf_places_reduce(const char* base, Element* results,
                                                                        const Box box) {
  const long long threads = static_cast<long long>(gridDim.x) * THREADS;
  long long number = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  Walk walk(box, number);
  Value found = start(base);
  for (; number + (ITEMS - 1) * threads < box.count; number += ITEMS * threads) {
    Value values[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) values[i] = loaded(walk.next(base, box));
#pragma unroll
    for (int half = ITEMS / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i) values[i] = combined(values[i], values[i + half]);
    }
    found = combined(found, values[0]);
  }
  for (; number < box.count; number += threads) found = combined(found, loaded(walk.next(base, box)));
  __shared__ Value shared[THREADS];
  shared[threadIdx.x] = found;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] = combined(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) results[blockIdx.x] = static_cast<Element>(shared[0]);
}
"""


@dataclass(frozen=True)
class StridedBox:
    """Say where elements lie in a device's memory.

    Parameters
    ----------
    address : int
        Of the first element.
    shape : tuple of int
        Elements along each axis, each 1 or more.
    strides : tuple of int
        Bytes from an element to the next along each axis.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@cache
def reduction_source(op: str, dtype: str, rank: int) -> KernelSource:
    """Return the kernel that reduces boxes of a rank.

    Parameters
    ----------
    op : {"sum", "max", "min"}
        The operation.
    dtype : str
        One of `DTYPES`.
    rank : int
        Axes of the box, 1 or more.

    Notes
    -----
    Sums of ints are made of unsigned numbers, which wrap; what does not fit into the dtype is cut off, as NumPy does.
    A sum starts at 0 (of floats at -0.0, which changes nothing it is added to), the others at the box's first element.
    """
    element = value = DTYPES[dtype]
    start = "loaded(base)"
    if op == "sum":
        start = {"float32": "-0.0f", "float64": "-0.0"}.get(dtype, "0")
        if start == "0":
            value = "unsigned long long" if dtype.endswith("64") else "unsigned int"
    lines = (
        f"typedef {element} Element;  // in memory",
        f"typedef {value} Value;  // in registers",
        f"constexpr int RANK = {rank}, THREADS = {THREADS}, ITEMS = {IN_FLIGHT[np.dtype(dtype).itemsize]};",
        "__device__ Value loaded(const char* at) { return *reinterpret_cast<const Element*>(at); }",
        f"__device__ Value start(const char* base) {{ return {start}; }}",
        f"__device__ Value combined(Value a, Value b) {{ return {_COMBINED[op]}; }}",
    )
    return KernelSource(KERNEL_NAME, "\n".join(lines) + "\n" + _BODY, "reduce")


def block_count(size: int) -> int:
    """Return how many blocks, and so results, a box of so many elements has."""
    return min(MOST_BLOCKS, -(-size // BLOCK_ELEMENTS))


def most_blocks(boxes: int, size: int) -> int:
    """Return at least as many as the blocks of so many boxes with so many elements together."""
    return min(boxes * MOST_BLOCKS, boxes + size // BLOCK_ELEMENTS)


def collapsed(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the same elements in the same order with as few axes as can be, one at least.

    Examples
    --------
    >>> collapsed((2, 3, 4), (96, 16, 4)), collapsed((2, 1, 4), (96, 16, 4))
    (((2, 12), (96, 4)), ((2, 4), (96, 4)))
    """
    axes: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = (axes[-1][0] * length, stride)
        else:
            axes.append((length, stride))
    axes = axes or [(1, 0)]
    return tuple(length for length, _ in axes), tuple(stride for _, stride in axes)


def launch_reduction(
    driver: DriverHandle,
    device: int,
    stream: int,
    box: StridedBox,
    results: int,
    *,
    op: str,
    dtype: str,
    blocks: int,
    symbol: str,
) -> None:
    """Launch the kernel on a stream of a device: one result for each block.

    Parameters
    ----------
    driver : DriverHandle
        A real driver.
    device : int
        Ordinal of the stream's device.
    stream : int
        The stream, of a green context or not.
    box : StridedBox
        What is reduced: memory that the device reaches.
    results : int
        Address of as many elements of the dtype as there are blocks, which the device reaches.
    op, dtype : str
        One of `OPERATIONS`, one of `DTYPES`.
    blocks : int
        Blocks, 1 or more.
    symbol : str
        The task's name, for the error.

    Raises
    ------
    ImportError
        If the kernel cannot be compiled because cuda.core or NVRTC is missing.
    DriverError
        If the driver refuses.
    """
    shape, strides = collapsed(box.shape, box.strides)
    kernel = kernel_for(driver, device, reduction_source(op, dtype, len(shape)))
    fields = (prod(shape), *shape, *strides, *_digits(blocks * THREADS, shape))
    # The kernel's arguments: two addresses, and a struct that is nothing but 64-bit numbers.
    values = ctypes.c_uint64(box.address), ctypes.c_uint64(results), (ctypes.c_int64 * len(fields))(*fields)
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    # The primary context is current, never the place's own: the stream alone names the SMs.
    with exec_place.device(device):
        driver.launch(
            kernel,
            stream,
            grid=(blocks, 1, 1),
            block=(THREADS, 1, 1),
            parameters=ctypes.addressof(pointers),
            symbol=symbol,
        )


def _digits(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the digits of a number to the bases of a shape, of which the first has no limit."""
    digits = []
    for length in reversed(shape[1:]):
        number, digit = divmod(number, length)
        digits.append(digit)
    return (number, *reversed(digits))
