#include "core/trace.hpp"

#include <algorithm>

namespace stf_places {

Trace::~Trace() {
  for (Pending& pending : pending_) {
    if (pending.start != 0) driver_.destroy_event(pending.start).ignore();
    if (pending.end != 0) driver_.destroy_event(pending.end).ignore();
  }
  for (auto& [context, origin] : origins_) driver_.destroy_event(origin.event).ignore();
}

EventHandle Trace::timed_event(const Stream& stream) {
  EventHandle event = 0;
  driver_.create_event(stream.context(), true, &event).check();
  Status status = driver_.record_event(event, stream.handle());
  if (!status.ok()) driver_.destroy_event(event).ignore();
  status.check();
  return event;
}

// A simulated machine has one clock. A GPU's events compare within one device only: there the host's clock
// brings the origins together, as exactly as an enqueue on an idle stream is prompt (tens of microseconds).
double Trace::offset_of(EventHandle event) {
  if (first_ == 0) {
    first_ = event;
    began_ = std::chrono::steady_clock::now();
    return 0;
  }
  if (driver_.simulated()) {
    double offset = 0;
    if (driver_.synchronize_event(event, {}).ok() && driver_.elapsed_us(first_, event, &offset).ok())
      return offset;
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began_).count();
}

EventHandle Trace::stamp(const Stream& stream) {
  if (!origins_.contains(stream.context())) {
    const EventHandle event = timed_event(stream);
    origins_[stream.context()] = {event, offset_of(event)};
  }
  return timed_event(stream);
}

std::size_t Trace::open(TraceRecord record, const Stream& stream) {
  const EventHandle start = stamp(stream);
  pending_.push_back({std::move(record), stream.context(), start, 0});
  return pending_.size() - 1;
}

void Trace::close(std::size_t index, const Stream& stream) { pending_[index].end = stamp(stream); }

void Trace::resolve() {
  for (Pending& pending : pending_) {
    Status status;
    const Origin& origin = origins_.at(pending.context);
    if (pending.end != 0) {
      TraceRecord& record = pending.record;
      status = driver_.elapsed_us(origin.event, pending.start, &record.start_us);
      if (status.ok()) status = driver_.elapsed_us(origin.event, pending.end, &record.end_us);
      record.start_us += origin.offset_us;
      record.end_us += origin.offset_us;
    }
    driver_.destroy_event(std::exchange(pending.start, 0)).ignore();
    if (pending.end == 0) continue;
    driver_.destroy_event(std::exchange(pending.end, 0)).ignore();
    status.check();
    finished_.push_back(std::move(pending.record));
  }
  pending_.clear();
  std::stable_sort(finished_.begin(), finished_.end(),
                   [](const TraceRecord& a, const TraceRecord& b) { return a.start_us < b.start_us; });
}

}  // namespace stf_places
