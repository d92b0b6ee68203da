// The graph that a context with graphs records its work into, one after the other: each is launched once.
//
// One capture is held open from the first operation to the launch. Streams of the context take part in it
// from their first use; what an operation depends on is set by hand, so independent operations have no edge
// even on one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/runtime.hpp"

namespace stf_places {

// Executables that contexts leave for later ones of the same size.
class GraphExecs {
 public:
  explicit GraphExecs(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}
  ~GraphExecs();
  // How much was recorded: graphs of one form have the same.
  struct Size {
    std::uint64_t tasks = 0;
    std::uint64_t copies = 0;
    bool operator==(const Size&) const = default;
  };
  // One of a graph of that size, 0 if there is none.
  GraphExecHandle take(Size size);
  // All its launches are done.
  void give(GraphExecHandle exec, Size size);

 private:
  static constexpr std::size_t limit = 32;
  struct Kept {
    GraphExecHandle exec;
    Size size;
  };
  std::shared_ptr<Runtime> runtime_;
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

class Recording {
 public:
  explicit Recording(Driver& driver) : driver_(driver) {}
  ~Recording();
  Recording(const Recording&) = delete;

  // The stream takes part in the capture, which the first one opens. `context`: of the work on it.
  void join(StreamHandle stream, ContextHandle context);
  GraphHandle graph() const { return graph_; }
  bool open() const { return graph_ != 0; }
  // Changes with each graph: streams take part in one only.
  std::uint64_t epoch() const { return epoch_; }
  // What the next operation on a stream depends on.
  void set(StreamHandle stream, std::span<const NodeHandle> nodes);
  // Valid until the next call.
  std::span<const NodeHandle> after(StreamHandle stream);
  // One node for what several have done.
  NodeHandle one_for(std::span<const NodeHandle> nodes);
  // Ends the capture. The graph and the streams of this recording are its caller's from then on.
  GraphHandle finish();
  // Ends the capture and forgets what was recorded.
  void discard() noexcept;

  // What decides whether a device can run it as the body of a loop: the contexts of the work in all graphs so
  // far, and what is in none.
  const std::vector<ContextHandle>& contexts() const { return contexts_; }
  const char* obstacle() const { return obstacle_; }
  void note_obstacle(const char* what) {
    if (obstacle_ == nullptr) obstacle_ = what;
  }
  // Says more than the copies that come with it.
  void note_host_call() { obstacle_ = "it calls the host (host_launch)"; }

 private:
  Driver& driver_;
  GraphHandle graph_ = 0;
  std::uint64_t epoch_ = 1;
  std::vector<StreamHandle> streams_;  // the first is the origin
  std::vector<ContextHandle> contexts_;
  const char* obstacle_ = nullptr;
  std::vector<NodeHandle> after_;  // what `after` gives, so that it allocates nothing
};

}  // namespace stf_places
