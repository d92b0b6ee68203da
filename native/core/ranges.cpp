#include "core/ranges.hpp"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

namespace stf_places {

bool ranges_enabled() noexcept {
  // A profiler hands its hooks to NVTX through this variable (64-bit processes).
  static const bool enabled = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  return enabled;
}

std::uint64_t begin_range(const char* symbol) noexcept { return nvtxRangeStartA(symbol); }

void end_range(std::uint64_t range) noexcept { nvtxRangeEnd(range); }

}  // namespace stf_places
