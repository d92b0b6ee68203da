#include "core/recording.hpp"

#include <algorithm>

namespace stf_places {

GraphExecs::~GraphExecs() {
  for (const Kept& kept : kept_) runtime_->driver().destroy_graph_exec(kept.exec).ignore();
}

GraphExecHandle GraphExecs::take(Size size) {
  std::lock_guard lock(mutex_);
  auto found =
      std::find_if(kept_.rbegin(), kept_.rend(), [&](const Kept& kept) { return kept.size == size; });
  if (found == kept_.rend()) return 0;
  const GraphExecHandle exec = found->exec;
  kept_.erase(std::next(found).base());
  return exec;
}

// One that cannot rest is lost with its device.
void GraphExecs::give(GraphExecHandle exec, Size size) {
  GraphExecHandle oldest = 0;
  if (!runtime_->driver().rest_graph_exec(exec).ok()) {
    runtime_->driver().destroy_graph_exec(exec).ignore();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    kept_.push_back({exec, size});
    if (kept_.size() > limit) {
      oldest = kept_.front().exec;
      kept_.erase(kept_.begin());
    }
  }
  if (oldest != 0) runtime_->driver().destroy_graph_exec(oldest).ignore();
}

Recording::~Recording() { discard(); }

void Recording::join(StreamHandle stream, ContextHandle context) {
  if (graph_ == 0) {
    GraphHandle graph = 0;
    driver_.create_graph(&graph).check();
    if (Status status = driver_.begin_capture(graph, stream); !status) {
      driver_.destroy_graph(graph).ignore();
      status.check();
    }
    graph_ = graph;
  } else {
    driver_.join_capture(streams_.front(), stream).check();
  }
  streams_.push_back(stream);
  if (std::find(contexts_.begin(), contexts_.end(), context) == contexts_.end()) contexts_.push_back(context);
}

void Recording::set(StreamHandle stream, std::span<const NodeHandle> nodes) {
  driver_.set_capture_dependencies(stream, nodes).check();
}

std::span<const NodeHandle> Recording::after(StreamHandle stream) {
  driver_.capture_dependencies(stream, &after_).check();
  return after_;
}

NodeHandle Recording::one_for(std::span<const NodeHandle> nodes) {
  NodeHandle node = 0;
  driver_.add_empty_node(graph_, nodes, &node).check();
  return node;
}

GraphHandle Recording::finish() {
  const std::span<const StreamHandle> all(streams_);
  Status status = driver_.end_capture(all.front(), all.subspan(1));
  const GraphHandle graph = std::exchange(graph_, 0);
  streams_.clear();
  ++epoch_;
  if (!status) {
    driver_.destroy_graph(graph).ignore();
    status.check();
  }
  return graph;
}

void Recording::discard() noexcept {
  if (graph_ == 0) return;
  const std::span<const StreamHandle> all(streams_);
  driver_.end_capture(all.front(), all.subspan(1)).ignore();
  driver_.destroy_graph(graph_).ignore();
  graph_ = 0;
  streams_.clear();
  ++epoch_;
}

}  // namespace stf_places
