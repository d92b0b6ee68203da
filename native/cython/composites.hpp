// What Cython asks of page-mapped memory, with vectors in place of spans.
#pragma once

#include <cstdint>
#include <vector>

#include "core/page_maps.hpp"
#include "core/runtime.hpp"

namespace stf_places {

inline void require_peers_of(Runtime& runtime, const std::vector<int>& devices) {
  require_peers(runtime, devices);
}

inline std::size_t page_size_of(Runtime& runtime, const std::vector<int>& devices) {
  return page_size(runtime, devices);
}

inline DataPlace place_of_runs(Runtime& runtime, const std::vector<PageRun>& runs,
                               const std::vector<int>& devices, std::size_t page) {
  return place_of_pages(runtime, runs, devices, page);
}

inline std::uint64_t number_of(const Runtime& runtime) { return runtime.number(); }

}  // namespace stf_places
