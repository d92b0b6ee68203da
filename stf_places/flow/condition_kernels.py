"""The kernel that sets the condition of a loop in a graph, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stf_places.places.compiled_kernels import KernelSource, kernel_for

if TYPE_CHECKING:
    from stf_places._native.drivers import DriverHandle

__all__ = ["CONDITION_KERNEL", "condition_kernel"]

# `LoopCondition` has the layout of the one in native/driver/driver.hpp, whose offsets are asserted in
# native/driver/cuda/loops.cpp, and `set_condition` compares as `holds` in native/driver/driver.cpp does.
_TEXT = """
struct Term {
  unsigned long long value;
  unsigned char type;     // float32, float64, int32, int64
  unsigned char compare;  // <, <=, >, >=
  bool negate;
  double real;
  long long whole;
};
struct LoopCondition {
  Term terms[8];
  unsigned int size;
  bool any;
  unsigned long long counter;
  unsigned long long count;
};

static_assert(sizeof(Term) == 32 && sizeof(LoopCondition) == 280, "as on the host");

// Of the device's runtime library.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

template <class Value>
__device__ bool compares(unsigned char how, unsigned long long address, Value threshold) {
  const Value value = *reinterpret_cast<const volatile Value*>(address);
  switch (how) {
    case 0: return value < threshold;
    case 1: return value <= threshold;
    case 2: return value > threshold;
    default: return value >= threshold;
  }
}

__device__ bool holds(const Term& term) {
  bool compared = false;
  switch (term.type) {
    case 0: compared = compares<float>(term.compare, term.value, static_cast<float>(term.real)); break;
    case 1: compared = compares<double>(term.compare, term.value, term.real); break;
    case 2: compared = compares<int>(term.compare, term.value, static_cast<int>(term.whole)); break;
    default: compared = compares<long long>(term.compare, term.value, term.whole); break;
  }
  return compared != term.negate;
}

__device__ bool holds(const LoopCondition& when) {
  if (when.counter != 0) {
    volatile unsigned long long* counter = reinterpret_cast<volatile unsigned long long*>(when.counter);
    const unsigned long long rounds = *counter + 1;
    *counter = rounds < when.count ? rounds : 0;
    return rounds < when.count;
  }
  for (unsigned int at = 0; at < when.size; ++at)
    if (holds(when.terms[at]) == when.any) return when.any;
  return !when.any;
}

extern "C" __global__ void set_condition(unsigned long long handle, LoopCondition when) {
  cudaGraphSetConditional(handle, holds(when) ? 1 : 0);
}
"""

#: What the kernel is made of: only the device's runtime library can set conditions.
CONDITION_KERNEL = KernelSource("set_condition", _TEXT, "a loop in a graph", libraries=("cudadevrt",))


def condition_kernel(driver: DriverHandle, device: int) -> int:
    """Return the ``CUkernel`` that sets conditions on a device, compiled and loaded at the first call for its chip.

    Parameters
    ----------
    driver : DriverHandle
        A real driver.
    device : int
        Ordinal of the device.

    Returns
    -------
    int
        For the nodes of graphs that set the condition of a loop, in any context of the device. It is kept for the
        rest of the process.

    Raises
    ------
    ImportError
        If cuda.core, NVRTC or the library cudadevrt is missing.
    InvalidDevice
        If there is no such device.
    """
    return kernel_for(driver, device, CONDITION_KERNEL)
