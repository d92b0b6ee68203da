"""The kernel that `verify_places` launches: it notes where and when its blocks run."""

from __future__ import annotations

from stf_places.places.compiled_kernels import KernelSource

__all__ = ["PROBE"]

# One record a block: the SM, and when the block began and ended on the GPU's global clock. The barrier keeps all
# threads of the block, and so the room that they take, until the first one has spun long enough.
PROBE = KernelSource(
    name="stf_places_probe",
    user="verify_places",
    text=r"""
__device__ unsigned long long clock_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void stf_places_probe(unsigned long long* records, unsigned long long spin_ns) {
  if (threadIdx.x == 0) {
    const unsigned long long start = clock_ns();
    unsigned int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    unsigned long long now = start;
    while (now - start < spin_ns) now = clock_ns();
    unsigned long long* record = records + 3ull * blockIdx.x;
    record[0] = sm;
    record[1] = start;
    record[2] = now;
  }
  __syncthreads();
}
""",
)
