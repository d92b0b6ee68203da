// The captures that this driver has opened: which streams take part, and into which graphs.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "errors.hpp"

namespace stf_places::cuda {

// While a capture is open, some calls on its streams do not merely fail, they make all of the capture void.
// So they are refused here, before the driver sees them. Programs without an open capture pay one load for
// that.
class Captures {
 public:
  void begin(CUgraph graph, CUstream origin);
  void join(CUstream origin, CUstream stream);
  // Forgets the capture that `origin` opened and all its streams.
  void end(CUstream origin);

  bool any() const noexcept { return size_.load(std::memory_order_acquire) != 0; }
  // The graph of the capture that `origin` opened; null when it opened none.
  CUgraph graph_of(CUstream origin) const;
  // Fails with invalid_value when the stream takes part in a capture.
  Status check_free(CUstream stream, const char* call) const {
    return any() ? find_stream(stream, call) : Status();
  }
  // Fails with invalid_value while work is captured into the graph.
  Status check_closed(CUgraph graph, const char* call) const {
    return any() ? find_graph(graph, call) : Status();
  }

  // A graph whose capture failed belongs to the driver, which destroys it. Kept until its owner gives it up,
  // which `take_lost` answers with true. The driver may use the address again before that: then two owners
  // hold the same handle, and whichever of them gives up first leaves the other a graph to destroy.
  void lose(CUgraph graph);
  bool take_lost(CUgraph graph);

 private:
  struct Member {
    CUstream origin;
    CUgraph graph;
  };
  Status find_stream(CUstream stream, const char* call) const;
  Status find_graph(CUgraph graph, const char* call) const;

  std::atomic<std::size_t> size_{0};
  mutable std::mutex mutex_;  // never held during a driver call
  std::unordered_map<CUstream, Member> members_;
  std::unordered_multiset<CUgraph> lost_;
};

}  // namespace stf_places::cuda
