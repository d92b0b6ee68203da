#include "captures.hpp"

#include <string>

namespace stf_places::cuda {

void Captures::begin(CUgraph graph, CUstream origin) {
  std::scoped_lock lock(mutex_);
  members_[origin] = Member{origin, graph};
  size_.store(members_.size(), std::memory_order_release);
}

void Captures::join(CUstream origin, CUstream stream) {
  std::scoped_lock lock(mutex_);
  const auto found = members_.find(origin);
  if (found == members_.end()) return;
  const CUgraph graph = found->second.graph;
  members_[stream] = Member{origin, graph};
  size_.store(members_.size(), std::memory_order_release);
}

void Captures::end(CUstream origin) {
  std::scoped_lock lock(mutex_);
  std::erase_if(members_, [origin](const auto& member) { return member.second.origin == origin; });
  size_.store(members_.size(), std::memory_order_release);
}

CUgraph Captures::graph_of(CUstream origin) const {
  std::scoped_lock lock(mutex_);
  const auto found = members_.find(origin);
  return found != members_.end() && found->second.origin == origin ? found->second.graph : nullptr;
}

Status Captures::find_stream(CUstream stream, const char* call) const {
  {
    std::scoped_lock lock(mutex_);
    if (!members_.contains(stream)) return {};
  }
  return refused(
      call,
      "a stream that takes part in a capture cannot be waited for, queried, recorded, destroyed or "
      "captured again, and memory is allocated and freed elsewhere; end the capture first, or take "
      "another stream");
}

Status Captures::find_graph(CUgraph graph, const char* call) const {
  {
    std::scoped_lock lock(mutex_);
    bool open = false;
    for (const auto& [stream, member] : members_) open = open || member.graph == graph;
    if (!open) return {};
  }
  return refused(call, "work is still being captured into this graph; end the capture first");
}

void Captures::lose(CUgraph graph) {
  std::scoped_lock lock(mutex_);
  lost_.insert(graph);
}

bool Captures::take_lost(CUgraph graph) {
  std::scoped_lock lock(mutex_);
  const auto found = lost_.find(graph);
  if (found == lost_.end()) return false;
  lost_.erase(found);
  return true;
}

}  // namespace stf_places::cuda
