// What ran when: timing events around tasks and copies, turned into times once the context has drained.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/places.hpp"
#include "core/points.hpp"

namespace stf_places {

struct TraceRecord {
  std::string kind;    // "task" or "copy"
  std::string symbol;  // task symbol, or data name
  std::string place;   // "device(0)", "host()"; for copies "host() -> device(0)"
  int device = -1;
  int stream = 0;       // index within the context
  double start_us = 0;  // since the context began to trace that device
  double end_us = 0;
  std::size_t nbytes = 0;
};

class Trace {
 public:
  explicit Trace(Driver& driver) : driver_(driver) {}
  ~Trace();
  Trace(const Trace&) = delete;

  // Opens a record on a stream; `close` takes its index. Both put a timing event on the stream.
  std::size_t open(TraceRecord record, const Stream& stream);
  void close(std::size_t index, const Stream& stream);
  // Reads the events (all work is complete) and frees them.
  void resolve();
  const std::vector<TraceRecord>& records() const { return finished_; }

 private:
  // Times of one driver context count from its first event; the offset brings them to the trace's origin.
  struct Origin {
    EventHandle event = 0;
    double offset_us = 0;
  };
  struct Pending {
    TraceRecord record;
    ContextHandle context = 0;
    EventHandle start = 0;
    EventHandle end = 0;
  };
  EventHandle stamp(const Stream& stream);
  EventHandle timed_event(const Stream& stream);
  double offset_of(EventHandle event);

  Driver& driver_;
  std::map<ContextHandle, Origin> origins_;
  EventHandle first_ = 0;
  std::chrono::steady_clock::time_point began_;
  std::vector<Pending> pending_;
  std::vector<TraceRecord> finished_;
};

}  // namespace stf_places
