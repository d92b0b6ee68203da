// Order: points instead of events.
//
// A Point is "everything put on this stream up to here". Instances and freed blocks hold points; a later
// operation on another stream waits for them. A CUDA event is recorded for a point only when one is needed:
//   - when somebody on another stream (or the host) waits for the stream's tail point;
//   - before a new operation goes on the stream while somebody still holds the tail point: its event is
//     recorded now, so that a later waiter waits for exactly that point and nothing behind it.
// Hence the invariant: a point that is held and is not its stream's tail has an event. A chain on one stream
// records nothing.
//
// In a context with graphs a point is a set of nodes of the graph that is being recorded, instead of an
// event: what an operation waits for becomes the dependencies of its node, and points on its own stream count
// like all others.
//
// Everything here belongs to one Context and is used by one thread at a time; counts are plain integers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/small_vector.hpp"
#include "driver/driver.hpp"

namespace stf_places {

class Recording;
class Stream;

struct Statistics {
  std::uint64_t tasks = 0;
  std::uint64_t events_recorded = 0;
  std::uint64_t waits = 0;          // stream waits enqueued
  std::uint64_t waits_skipped = 0;  // known to be ordered already
  std::uint64_t copies = 0;
  std::uint64_t bytes_copied = 0;
  std::uint64_t allocations = 0;    // asked of the driver
  std::uint64_t reused_blocks = 0;  // served from the context's own freed blocks
  std::uint64_t evictions = 0;      // instances that gave way to others
  std::uint64_t graphs_launched = 0;
  std::uint64_t graphs_instantiated = 0;  // the others were made to fit
};

// The streams' progress that a point implies, by stream index; empty when too many streams make it costly.
using Clock = std::vector<std::uint64_t>;

struct Point {
  Stream* stream = nullptr;
  std::uint64_t sequence = 0;
  EventHandle event = 0;
  std::uint32_t references = 0;
  Clock clock;                       // of the stream at the moment of recording
  SmallVector<NodeHandle, 2> nodes;  // in a context with graphs
};

// Owning handle of a point; a point without holders goes back to the pool, its event too.
class PointRef {
 public:
  PointRef() noexcept = default;
  explicit PointRef(Point* point) noexcept : point_(point) {
    if (point_ != nullptr) ++point_->references;
  }
  PointRef(const PointRef& other) noexcept : PointRef(other.point_) {}
  PointRef(PointRef&& other) noexcept : point_(std::exchange(other.point_, nullptr)) {}
  PointRef& operator=(PointRef other) noexcept {
    std::swap(point_, other.point_);
    return *this;
  }
  ~PointRef() { reset(); }

  void reset() noexcept {
    if (point_ != nullptr && --point_->references == 0) recycle(point_);
    point_ = nullptr;
  }
  explicit operator bool() const noexcept { return point_ != nullptr; }
  Point* get() const noexcept { return point_; }
  Point* operator->() const noexcept { return point_; }

 private:
  static void recycle(Point* point) noexcept;
  Point* point_ = nullptr;
};

// Events of one driver context, and points of all its streams, kept for reuse.
class EventPool {
 public:
  EventPool(Driver& driver, ContextHandle context) : driver_(driver), context_(context) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;

  EventHandle take();
  void give(EventHandle event) { free_.push_back(event); }

 private:
  Driver& driver_;
  ContextHandle context_;
  std::vector<EventHandle> free_;
};

class PointPool {
 public:
  Point* take(Stream* stream, std::uint64_t sequence);
  void give(Point* point) noexcept;

 private:
  std::vector<std::unique_ptr<Point>> all_;
  std::vector<Point*> free_;
};

// One driver stream as a Context sees it.
class Stream {
 public:
  // `context`: of events on the stream. `recording`: of a context with graphs, which the stream takes part
  // in, with work in the context `works_in`; else null.
  Stream(Driver& driver, EventPool& events, PointPool& points, Statistics& statistics, StreamHandle handle,
         int index, int device, ContextHandle context, Recording* recording = nullptr,
         ContextHandle works_in = 0);
  ~Stream();
  Stream(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }
  int index() const { return index_; }
  int device() const { return device_; }
  ContextHandle context() const { return context_; }
  bool is_tail(const PointRef& point) const { return point.get() == tail_.get(); }
  PointRef tail() const { return tail_; }

  // To be called before the waits of a new operation are put on the stream, and after the holders that the
  // operation replaces have let go: records the tail's event if somebody else still holds it.
  void before_operation() {
    if (recording_ != nullptr) return take_part();
    if (tail_ && tail_->references > 1 && tail_->event == 0) record_tail();
  }
  // The same and the waits: what follows on this stream comes behind these points, and in a graph behind
  // nothing else.
  void follow(std::span<const PointRef> points);
  // Whether operations become nodes of a graph.
  bool recording() const { return recording_ != nullptr; }
  // Makes what follows on this stream wait for `point`; nothing is enqueued when that is known already.
  void wait(const PointRef& point);
  // Makes what follows wait for an event of somebody else's.
  void wait_foreign(EventHandle event);
  // Names what has been put on the stream since: the new tail.
  PointRef advance();
  // The host waits for everything on the stream, after a failure: what cannot be waited for is lost.
  // Nothing of a graph has begun.
  void settle() noexcept {
    if (recording_ == nullptr) driver_.synchronize_stream(handle_, {}).ignore();
  }
  // The host waits for a point.
  static void synchronize(Driver& driver, const PointRef& point, const Interrupt& interrupt);
  // The event that stands for a point.
  static EventHandle event_of(const PointRef& point) { return recorded_for(point).event; }

  // Forgets the tail (its work is known to be complete, or lost).
  void forget() { tail_.reset(); }

  bool busy = false;  // a task whose body is open uses it
  std::uint64_t tasks = 0;
  const void* group = nullptr;  // the set of streams of one place that it belongs to

 private:
  friend class PointRef;
  void take_part();
  void record_tail();
  // The point with its event. Where recording it failed when it was time, the tail stands for it.
  static const Point& recorded_for(const PointRef& point);
  void learn(const Point& point);
  std::uint64_t known(int index) const {
    return static_cast<std::size_t>(index) < known_.size() ? known_[index] : 0;
  }

  Driver& driver_;
  EventPool& events_;
  PointPool& points_;
  Statistics& statistics_;
  StreamHandle handle_;
  int index_;
  int device_;
  ContextHandle context_;
  Recording* recording_;
  ContextHandle works_in_;
  std::uint64_t epoch_ = 0;  // the graph that it takes part in
  std::uint64_t sequence_ = 0;
  PointRef tail_;
  Clock known_;
};

}  // namespace stf_places
