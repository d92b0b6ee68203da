// The loops that this driver put into graphs: whose their bodies are.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "errors.hpp"

namespace stf_places::cuda {

// A body is a graph that the driver owns. It goes with the graph of its loop; destroying or instantiating it
// by itself is undefined, so that is refused here. Programs without loops pay one load for that.
class LoopBodies {
 public:
  void add(CUgraph owner, CUgraph body);
  // Forgets the bodies in a graph that is about to be destroyed, and the bodies in those.
  void forget(CUgraph owner);
  // Whether the graph has loops.
  bool any_of(CUgraph owner) const;
  // Fails with invalid_value when the graph is a body.
  Status check_free(CUgraph graph, const char* call) const {
    return size_.load(std::memory_order_acquire) != 0 ? find(graph, call) : Status();
  }

 private:
  Status find(CUgraph graph, const char* call) const;

  std::atomic<std::size_t> size_{0};
  mutable std::mutex mutex_;                     // never held during a driver call
  std::unordered_map<CUgraph, CUgraph> owners_;  // by body
};

}  // namespace stf_places::cuda
