#include "clock.hpp"

#include <algorithm>
#include <limits>

namespace stf_places::sim {

namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

bool uses_sms(OperationKind kind) { return kind == OperationKind::work || kind == OperationKind::body; }

const char* kind_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::copy:
      return "copy";
    case OperationKind::fill:
      return "fill";
    case OperationKind::host_function:
      return "host";
    case OperationKind::body:
      return "body";
    default:
      return "kernel";
  }
}

const SmMask& allowed_sms(const SmMask& all, const Stream* stream) {
  return stream->partition == nullptr ? all : *stream->partition;
}

}  // namespace

Clock::Clock(const MachineSpec& spec, OperationPool& pool)
    : pool_(pool), links_free_us_(spec.links.size(), 0) {
  for (const DeviceSpec& device : spec.devices) {
    Device& made = devices_.emplace_back();
    made.sm_count = made.free_sms = device.sm_count;
    made.engines_free_us.assign(std::max(1, device.copy_engines), 0.0);
  }
}

void Clock::submit(Operation* operation) {
  Stream* stream = operation->stream;
  ++pending(stream);
  const bool was_empty = stream->times.empty();
  stream->times.push(operation);
  if (was_empty) settle(stream);
}

void Clock::push(Operation* operation, double time, bool start) {
  heap_.push_back({time, operation->sequence, operation, start});
  std::push_heap(heap_.begin(), heap_.end());
}

// Takes streams on to their next operation that needs a resource or an unfinished record. Records wake other
// streams, hence the list.
void Clock::settle(Stream* stream) {
  settle_one(stream);
  while (!unsettled_.empty()) {
    Stream* next = unsettled_.back();
    unsettled_.pop_back();
    settle_one(next);
  }
}

void Clock::settle_one(Stream* stream) {
  while (!stream->times.empty()) {
    Operation* operation = stream->times.front();
    double at = std::max(stream->end_us, operation->submit_us);
    switch (operation->kind) {
      case OperationKind::wait: {
        Record* record = operation->record;
        if (!record->timed) {
          record->waiting.push_back(stream);
          return;
        }
        at = std::max(at, record->end_us);
        break;
      }
      case OperationKind::record: {
        Record* record = operation->record;
        record->timed = true;
        record->end_us = at;
        unsettled_.insert(unsettled_.end(), record->waiting.begin(), record->waiting.end());
        record->waiting.clear();
        break;
      }
      case OperationKind::release:
        break;
      default:
        push(operation, at, true);
        return;
    }
    stream->times.pop();
    complete(operation, at, at);
  }
}

void Clock::complete(Operation* operation, double start, double end) {
  Stream* stream = operation->stream;
  stream->timed = operation->sequence;
  stream->end_us = end;
  operation->start_us = start;
  --pending(stream);
  pool_.time_done(operation);
}

bool Clock::step(double limit) {
  if (heap_.empty() || heap_.front().time > limit) return false;
  const Happening now = heap_.front();
  std::pop_heap(heap_.begin(), heap_.end());
  heap_.pop_back();
  time_ = std::max(time_, now.time);
  if (now.start) {
    ready(now.operation, now.time);
  } else {
    ended(now.operation, now.time);
  }
  return true;
}

void Clock::ready(Operation* operation, double time) {
  operation->ready_us = time;
  if (uses_sms(operation->kind)) {
    occupy_sms(operation, time);
  } else if (operation->kind == OperationKind::host_function) {
    operation->start_us = time;
    push(operation, time + operation->duration_us, false);
  } else {
    occupy_links(operation, time);
  }
}

// Starts the next wave, or queues it behind those that came before it or are more urgent.
void Clock::occupy_sms(Operation* operation, double time) {
  Device& device = devices_[operation->stream->device];
  if (device.waiting.empty() && take_sms(device, operation)) {
    begin_wave(operation, time);
    return;
  }
  device.waiting.insert({operation->stream->priority, operation->ready_us, operation->sequence, operation});
  hand_out_sms(device, time);
}

bool Clock::take_numbered(Device& device, Operation* operation) {
  Stream* stream = operation->stream;
  return device.free.take(operation->sms, allowed_sms(device.all, stream), device.reserved, &stream->held);
}

void Clock::hand_out_sms(Device& device, double time) {
  if (device.told_apart) {
    hand_out_numbered(device, time);
    return;
  }
  while (!device.waiting.empty()) {
    Operation* operation = device.waiting.begin()->operation;
    if (!take_sms(device, operation)) return;
    device.waiting.erase(device.waiting.begin());
    begin_wave(operation, time);
  }
}

void Clock::hand_out_numbered(Device& device, double time) {
  for (auto waiting = device.waiting.begin(); waiting != device.waiting.end();) {
    Operation* operation = waiting->operation;
    if (take_numbered(device, operation)) {
      waiting = device.waiting.erase(waiting);
      begin_wave(operation, time);
      continue;
    }
    device.reserved.add(allowed_sms(device.all, operation->stream));
    if (device.free.within(device.reserved)) break;
    ++waiting;
  }
  device.reserved.clear();
}

void Clock::tell_sms_apart(int ordinal) {
  Device& device = devices_[ordinal];
  if (device.told_apart) return;
  device.told_apart = true;
  device.all = device.free = SmMask::first(device.sm_count);
  device.reserved = SmMask(device.sm_count);
  std::vector<Happening> running;
  for (const Happening& one : heap_) {
    const Operation* operation = one.operation;
    if (!one.start && uses_sms(operation->kind) && operation->stream->device == ordinal)
      running.push_back(one);
  }
  std::sort(running.begin(), running.end(),
            [](const Happening& a, const Happening& b) { return a.sequence < b.sequence; });
  for (const Happening& one : running) take_numbered(device, one.operation);
}

// Reserves an engine and the links from the first moment at which all are free. Of the engines that are free
// by then it takes the one that has been so for the shortest time, which leaves the others to copies that
// could start earlier.
void Clock::occupy_links(Operation* operation, double time) {
  double start = time;
  for (const short link : operation->links) {
    if (link >= 0) start = std::max(start, links_free_us_[link]);
  }
  double* engine = nullptr;
  if (operation->engine) {
    std::vector<double>& engines = devices_[operation->stream->device].engines_free_us;
    start = std::max(start, *std::min_element(engines.begin(), engines.end()));
    for (double& candidate : engines) {
      if (candidate <= start && (engine == nullptr || candidate > *engine)) engine = &candidate;
    }
  }
  const double end = start + operation->duration_us;
  if (engine != nullptr) *engine = end;
  for (const short link : operation->links) {
    if (link >= 0) links_free_us_[link] = end;
  }
  operation->start_us = start;
  push(operation, end, false);
}

void Clock::ended(Operation* operation, double time) {
  if (uses_sms(operation->kind)) {
    Device& device = devices_[operation->stream->device];
    give_sms(device, operation);
    if (++operation->waves_done < operation->waves) {
      occupy_sms(operation, time);
      return;
    }
    hand_out_sms(device, time);
  }
  Stream* stream = operation->stream;
  stream->times.pop();
  if (recording_) {
    timeline_.emplace_back(
        operation->sequence,
        TimelineEntry{kind_name(operation->kind), operation->symbol, stream->device, stream->handle,
                      operation->start_us, time, operation->nbytes, operation->sms});
  }
  complete(operation, operation->start_us, time);
  // Completing may have returned the last operation of a stream that is reaped later, never at once.
  settle(stream);
}

void Clock::advance(double us) {
  while (step(us)) {
  }
}

void Clock::finish(const Stream* stream, std::uint64_t sequence) {
  while (stream->timed < sequence && step(forever)) {
  }
}

void Clock::finish(const Record* record) {
  while (!record->timed && step(forever)) {
  }
}

void Clock::finish_all() { advance(forever); }

void Clock::relieve() {
  while (crowded() && step(forever)) {
  }
}

std::vector<TimelineEntry> Clock::timeline() const {
  auto sorted = timeline_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.start_us, a.first) < std::tie(b.second.start_us, b.first);
  });
  std::vector<TimelineEntry> entries;
  entries.reserve(sorted.size());
  for (auto& entry : sorted) entries.push_back(std::move(entry.second));
  return entries;
}

}  // namespace stf_places::sim
