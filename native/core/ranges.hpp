// Ranges by task symbol for profilers (NVTX). Without an attached profiler a range costs one test.
#pragma once

#include <cstdint>

namespace stf_places {

// Whether a profiler loaded its hooks; asked once for the process.
bool ranges_enabled() noexcept;
std::uint64_t begin_range(const char* symbol) noexcept;
void end_range(std::uint64_t range) noexcept;

}  // namespace stf_places
