// Events: recording, waiting, asking and measuring.
#include <algorithm>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

constexpr EventHandle event_handle(std::uint32_t slot, std::uint32_t generation) {
  return (static_cast<EventHandle>(generation) << 32) | (slot + 1);
}

}  // namespace

Status Machine::find_event(const char* call, EventHandle handle, Event** out) {
  const auto slot = static_cast<std::uint32_t>(handle) - 1;
  const bool known =
      handle != 0 && slot < events_.size() && events_[slot].live && events_[slot].event.handle == handle;
  if (!known)
    return fail(Code::invalid_value, call, "event " + std::to_string(handle) + " does not exist (any more)");
  *out = &events_[slot].event;
  return {};
}

Status Machine::report_record(const char* call, const Record* record) {
  if (lost_[record->device] != nullptr) return fail_again(call, lost_[record->device]->failure);
  const auto& failure = record->failure;
  if (failure == nullptr) return report_conflicts(call);
  failure->reported_at = std::min(failure->reported_at, sequence_);
  Stream* stream = stream_at(record->stream);
  if (stream != nullptr && stream->failure == failure) stream->unreported = false;
  return fail_again(call, failure->failure);
}

Status Machine::create_event(ContextHandle context, bool timing, EventHandle* out) {
  constexpr const char* call = "create_event";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  if (Status status = find_device(call, found->device); !status) return status;
  if (Status status = strike_at_call(call, FaultKind::event, found->device); !status) return status;
  if (free_events_.empty()) {
    free_events_.push_back(static_cast<std::uint32_t>(events_.size()));
    events_.emplace_back();
  }
  const std::uint32_t slot = free_events_.back();
  free_events_.pop_back();
  EventSlot& made = events_[slot];
  made.live = true;
  made.event = Event{event_handle(slot, made.generation++), found->device, timing, nullptr};
  *out = made.event.handle;
  return {};
}

Status Machine::destroy_event(EventHandle handle) {
  constexpr const char* call = "destroy_event";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Event* event = nullptr;
  if (Status status = find_event(call, handle, &event); !status) return status;
  if (event->last != nullptr) pool_.drop(event->last);
  const auto slot = static_cast<std::uint32_t>(handle) - 1;
  events_[slot].live = false;
  free_events_.push_back(slot);
  return {};
}

Record* Machine::put_record(Stream* stream, double cost_us) {
  Record* record = pool_.take_record();
  record->device = stream->device;
  record->stream = stream->handle;
  if (options_.check_conflicts) {
    races_.join_host(stream);
    record->clock = stream->clock;
  }
  Operation* operation = take(OperationKind::record, stream);
  operation->record = record;
  pool_.hold(record);
  submit(operation, cost_us);
  return record;
}

void Machine::put_wait(Stream* stream, Record* record, double cost_us) {
  if (options_.check_conflicts) stream->clock.join(record->clock);
  Operation* operation = take(OperationKind::wait, stream);
  operation->record = record;
  pool_.hold(record);
  submit(operation, cost_us);
}

Status Machine::record_event(EventHandle handle, StreamHandle stream_handle) {
  constexpr const char* call = "record_event";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Event* event = nullptr;
  Stream* stream = nullptr;
  if (Status status = find_event(call, handle, &event); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (event->device != stream->device) {
    return fail(Code::invalid_value, call,
                "an event of device " + std::to_string(event->device) +
                    " cannot be recorded on a stream of device " + std::to_string(stream->device),
                stream->device);
  }
  if (Status status = strike_at_call(call, FaultKind::event, stream->device); !status) return status;
  if (event->last != nullptr) pool_.drop(event->last);
  event->last = put_record(stream, spec_.costs.event_record);
  bound_pending(lock);
  return {};
}

Status Machine::wait_event(StreamHandle stream_handle, EventHandle handle) {
  constexpr const char* call = "wait_event";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Event* event = nullptr;
  Stream* stream = nullptr;
  if (Status status = find_event(call, handle, &event); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (Status status = strike_at_call(call, FaultKind::event, stream->device); !status) return status;
  if (event->last == nullptr) {
    now_ += spec_.costs.event_wait;
    return {};
  }
  put_wait(stream, event->last, spec_.costs.event_wait);
  bound_pending(lock);
  return {};
}

Status Machine::query_event(EventHandle handle) {
  constexpr const char* call = "query_event";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = refuse_in_callback(call); !status) return status;
  Event* event = nullptr;
  if (Status status = find_event(call, handle, &event); !status) return status;
  if (Status status = find_device(call, event->device); !status) return status;
  now_ += query_cost_us();
  Record* record = event->last;
  if (record == nullptr) return {};
  pool_.hold(record);
  Status status = make_effects(lock, call, {}, [&] { return record->effected; });
  clock_.advance(now_);
  if (status.ok() && record->failure != nullptr) status = fail_again(call, record->failure->failure);
  if (status.ok() && !(record->timed && record->end_us <= now_)) status = fail(Code::not_ready, call, "");
  if (status.ok()) races_.host_waited(record->clock);
  pool_.drop(record);
  return status;
}

Status Machine::synchronize_event(EventHandle handle, const Interrupt& interrupt) {
  constexpr const char* call = "synchronize_event";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = refuse_in_callback(call); !status) return status;
  Event* event = nullptr;
  if (Status status = find_event(call, handle, &event); !status) return status;
  Record* record = event->last;
  if (record == nullptr) {
    if (Status status = find_device(call, event->device); !status) return status;
    now_ += spec_.costs.synchronize;
    return {};
  }
  pool_.hold(record);
  Status status = make_effects(lock, call, interrupt, [&] { return record->effected; });
  if (status.ok()) {
    clock_.finish(record);
    wait_until(record->end_us, spec_.costs.synchronize);
    races_.host_waited(record->clock);
    status = report_record(call, record);
  }
  pool_.drop(record);
  return status;
}

Status Machine::elapsed_us(EventHandle from, EventHandle to, double* out) {
  constexpr const char* call = "elapsed_us";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Event* events[2] = {};
  if (Status status = find_event(call, from, &events[0]); !status) return status;
  if (Status status = find_event(call, to, &events[1]); !status) return status;
  clock_.advance(now_);
  for (const Event* event : events) {
    if (Status status = find_device(call, event->device); !status) return status;
    if (!event->timing)
      return fail(Code::invalid_value, call, "both events need timing: one was created without");
    if (event->last == nullptr) return fail(Code::invalid_value, call, "both events must have been recorded");
  }
  if (events[0]->device != events[1]->device) {
    return fail(Code::invalid_value, call,
                "both events must belong to one device: got " + std::to_string(events[0]->device) + " and " +
                    std::to_string(events[1]->device));
  }
  for (const Event* event : events) {
    if (!event->last->timed || event->last->end_us > now_) return fail(Code::not_ready, call, "");
  }
  *out = events[1]->last->end_us - events[0]->last->end_us;
  return {};
}

}  // namespace stf_places::sim
