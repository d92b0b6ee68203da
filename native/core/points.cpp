#include "core/points.hpp"

#include <algorithm>
#include <unordered_set>

#include "core/planted.hpp"
#include "core/recording.hpp"

namespace stf_places {

namespace {
// Beyond this many streams a clock snapshot for each recorded event costs more than the waits that it saves.
constexpr std::size_t clock_limit = 64;
}  // namespace

EventPool::~EventPool() {
  for (EventHandle event : free_) driver_.destroy_event(event).ignore();
}

EventHandle EventPool::take() {
  if (!free_.empty()) {
    EventHandle event = free_.back();
    free_.pop_back();
    return event;
  }
  EventHandle event = 0;
  driver_.create_event(context_, false, &event).check();
  return event;
}

Point* PointPool::take(Stream* stream, std::uint64_t sequence) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Point>());
    free_.push_back(all_.back().get());
    free_.reserve(all_.capacity());
  }
  Point* point = free_.back();
  free_.pop_back();
  point->stream = stream;
  point->sequence = sequence;
  return point;
}

void PointPool::give(Point* point) noexcept {
  point->event = 0;
  point->clock.clear();
  point->nodes.clear();
  free_.push_back(point);
}

void PointRef::recycle(Point* point) noexcept {
  Stream& stream = *point->stream;
  if (point->event != 0) stream.events_.give(point->event);
  stream.points_.give(point);
}

Stream::Stream(Driver& driver, EventPool& events, PointPool& points, Statistics& statistics,
               StreamHandle handle, int index, int device, ContextHandle context, Recording* recording,
               ContextHandle works_in)
    : driver_(driver),
      events_(events),
      points_(points),
      statistics_(statistics),
      handle_(handle),
      index_(index),
      device_(device),
      context_(context),
      recording_(recording),
      works_in_(works_in) {}

Stream::~Stream() = default;

void Stream::record_tail() {
  EventHandle event = events_.take();
  Status status = driver_.record_event(event, handle_);
  if (!status.ok()) {
    events_.give(event);
    status.check();
  }
  ++statistics_.events_recorded;
  tail_->event = event;
  if (known_.size() <= clock_limit) tail_->clock = known_;
}

const Point& Stream::recorded_for(const PointRef& point) {
  if (point->event != 0) return *point.get();
  Stream& stream = *point->stream;
  if (stream.tail_->event == 0) stream.record_tail();
  return *stream.tail_.get();
}

void Stream::learn(const Point& point) {
  const auto index = static_cast<std::size_t>(point.stream->index_);
  known_.resize(std::max({known_.size(), index + 1, point.clock.size()}), 0);
  known_[index] = std::max(known_[index], point.sequence);
  for (std::size_t i = 0; i < point.clock.size(); ++i) known_[i] = std::max(known_[i], point.clock[i]);
}

namespace {
// Each once, in the order in which they came: an executable is only made to fit a graph with the same order.
class DistinctNodes {
 public:
  void add(std::span<const NodeHandle> nodes) {
    for (NodeHandle node : nodes) {
      if (is_new(node)) nodes_.push_back(node);
    }
  }
  std::span<const NodeHandle> all() const { return nodes_; }

 private:
  bool is_new(NodeHandle node) {
    if (nodes_.size() < few) return std::find(nodes_.begin(), nodes_.end(), node) == nodes_.end();
    if (!seen_) seen_ = std::make_unique<std::unordered_set<NodeHandle>>(nodes_.begin(), nodes_.end());
    return seen_->insert(node).second;
  }

  static constexpr std::size_t few = 16;
  SmallVector<NodeHandle, few> nodes_;
  std::unique_ptr<std::unordered_set<NodeHandle>> seen_;  // when there are `few` or more
};
}  // namespace

void Stream::take_part() {
  if (epoch_ == recording_->epoch()) return;
  recording_->join(handle_, works_in_);
  epoch_ = recording_->epoch();
}

void Stream::follow(std::span<const PointRef> points) {
  before_operation();
  if (recording_ == nullptr) {
    for (const PointRef& point : points) wait(point);
    return;
  }
  DistinctNodes nodes;
  for (const PointRef& point : points) {
    if (planted(Mistake::missed_wait) && point->sequence % 5 == 2) continue;
    nodes.add(point->nodes);
  }
  recording_->set(handle_, nodes.all());
  statistics_.waits += nodes.all().size();
}

void Stream::wait(const PointRef& point) {
  Stream* other = point->stream;
  if (other == this) return;
  if (recording_ != nullptr) {  // behind that as well
    DistinctNodes nodes;
    nodes.add(recording_->after(handle_));
    nodes.add(point->nodes);
    recording_->set(handle_, nodes.all());
    return;
  }
  if (planted(Mistake::missed_wait) && point->sequence % 5 == 2) return;
  if (known(other->index_) >= point->sequence) {
    ++statistics_.waits_skipped;
    return;
  }
  const Point& recorded = recorded_for(point);
  driver_.wait_event(handle_, recorded.event).check();
  ++statistics_.waits;
  learn(recorded);
}

void Stream::wait_foreign(EventHandle event) {
  driver_.wait_event(handle_, event).check();
  ++statistics_.waits;
}

PointRef Stream::advance() {
  ++sequence_;
  tail_ = PointRef(points_.take(this, sequence_));
  if (recording_ != nullptr && epoch_ == recording_->epoch()) {
    tail_->nodes.assign(recording_->after(handle_));
    if (tail_->nodes.size() > 2) {
      const NodeHandle all = recording_->one_for(tail_->nodes);
      tail_->nodes.assign({&all, 1});
    }
  }
  return tail_;
}

void Stream::synchronize(Driver& driver, const PointRef& point, const Interrupt& interrupt) {
  driver.synchronize_event(recorded_for(point).event, interrupt).check();
}

}  // namespace stf_places
