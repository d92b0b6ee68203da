// Streams and waiting for them.
#include <algorithm>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

// Handles 1 and 2 mean default streams to CUDA, so they are never given out.
constexpr StreamHandle first_stream = 3;

}  // namespace

// ---- Looking up ----

Stream* Machine::stream_at(StreamHandle handle) const {
  if (handle < first_stream || handle - first_stream >= streams_.size()) return nullptr;
  return streams_[handle - first_stream].get();
}

Status Machine::find_default_stream(const char* call, StreamHandle* handle) {
  ContextHandle context = 0;
  current_context(&context).ignore();
  if (context == 0) {
    return fail(Code::invalid_value, call,
                "stream 0 is the default stream of the current context: none is current");
  }
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  if (found->default_stream == 0) {
    Stream* made = make_stream(context, 0);
    made->is_default = true;
    found->default_stream = made->handle;
  }
  *handle = found->default_stream;
  return {};
}

Status Machine::find_open_stream(const char* call, StreamHandle handle, Stream** out, Recording recording) {
  if (handle == 0) {
    if (Status status = find_default_stream(call, &handle); !status) return status;
  }
  Stream* stream = stream_at(handle);
  if (stream == nullptr || stream->closed || stream->internal) {
    return fail(Code::invalid_value, call, "stream " + std::to_string(handle) + " does not exist (any more)");
  }
  if (stream->graph != nullptr && recording == Recording::refused) {
    return fail(Code::invalid_value, call,
                "stream " + std::to_string(handle) + " records graph " +
                    std::to_string(stream->graph->handle) +
                    ": it takes copies, fills, host functions and host work until end_capture",
                stream->device);
  }
  *out = stream;
  return {};
}

Status Machine::find_stream(const char* call, StreamHandle handle, Stream** out, Recording recording) {
  Stream* stream = nullptr;
  if (Status status = find_open_stream(call, handle, &stream, recording); !status) return status;
  if (Status status = find_device(call, stream->device); !status) return status;
  *out = stream;
  return {};
}

// ---- Streams ----

Stream* Machine::make_stream(ContextHandle context, int priority) {
  auto stream = std::make_unique<Stream>();
  stream->handle = first_stream + streams_.size();
  stream->context = context;
  const Context& owner = contexts_[context - 1];
  stream->device = owner.device;
  stream->partition = owner.partition;
  stream->sm_count =
      owner.sms != nullptr ? static_cast<int>(owner.sms->ids.size()) : spec_.devices[owner.device].sm_count;
  stream->priority = priority;
  stream->slot = races_.take_slot();
  streams_.push_back(std::move(stream));
  return streams_.back().get();
}

void Machine::close(Stream* stream) {
  stream->closed = true;
  if (stream->idle()) pool_.idle_streams().push_back(stream);
}

void Machine::reap_streams() {
  for (Stream* stream : pool_.idle_streams()) {
    races_.give_slot(stream->slot);
    streams_[stream->handle - first_stream].reset();
  }
  pool_.idle_streams().clear();
}

Status Machine::create_stream(ContextHandle context, int priority, StreamHandle* out) {
  constexpr const char* call = "create_stream";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  if (Status status = find_device(call, found->device); !status) return status;
  reap_streams();
  // What an H200 has: 0 down to -5.
  *out = make_stream(context, std::clamp(priority, -5, 0))->handle;
  ++found->open_streams;
  return {};
}

Status Machine::destroy_stream(StreamHandle handle) {
  constexpr const char* call = "destroy_stream";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_open_stream(call, handle, &stream); !status) return status;
  if (stream->is_default) return fail(Code::invalid_value, call, "a default stream cannot be destroyed");
  --contexts_[stream->context - 1].open_streams;
  close(stream);
  reap_streams();
  return {};
}

Status Machine::stream_context(StreamHandle handle, ContextHandle* out) {
  constexpr const char* call = "stream_context";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_open_stream(call, handle, &stream, Recording::allowed); !status) return status;
  *out = stream->context;
  return {};
}

Status Machine::stream_capturing(StreamHandle handle, bool* out) {
  constexpr const char* call = "stream_capturing";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_open_stream(call, handle, &stream, Recording::allowed); !status) return status;
  *out = stream->graph != nullptr;
  return {};
}

// ---- Waiting ----

void Machine::wait_until(double us, double cost_us) { now_ = std::max(now_, us) + cost_us; }

Status Machine::report_conflicts(const char* call) {
  std::string text = races_.take_unreported();
  return text.empty() ? Status() : fail(Code::conflict, call, std::move(text));
}

Status Machine::report(const char* call, Stream* stream) {
  if (lost_[stream->device] != nullptr) return fail_again(call, lost_[stream->device]->failure);
  if (stream->unreported) {
    stream->unreported = false;
    stream->failure->reported_at = std::min(stream->failure->reported_at, sequence_);
    return fail_again(call, stream->failure->failure);
  }
  return report_conflicts(call);
}

// Makes the effects of all that is on the stream by now. The stream is looked up anew each time, because
// another thread can destroy it while the mutex is given up; null afterwards says that one did.
Status Machine::make_stream_effects(Lock& lock, const char* call, const Interrupt& interrupt,
                                    Stream** stream) {
  const StreamHandle known = (*stream)->handle;
  const std::uint64_t sequence = (*stream)->submitted;
  const auto reached = [&] {
    const Stream* now = stream_at(known);
    return now == nullptr || now->effected >= sequence;
  };
  Status status = make_effects(lock, call, interrupt, reached);
  *stream = stream_at(known);
  return status;
}

Status Machine::synchronize_stream(StreamHandle handle, const Interrupt& interrupt) {
  constexpr const char* call = "synchronize_stream";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = refuse_in_callback(call); !status) return status;
  Stream* stream = nullptr;
  if (Status status = find_open_stream(call, handle, &stream); !status) return status;
  const std::uint64_t sequence = stream->submitted;
  const VectorClock clock = stream->clock;
  if (Status status = make_stream_effects(lock, call, interrupt, &stream); !status) return status;
  if (stream == nullptr) return {};
  clock_.finish(stream, sequence);
  wait_until(stream->end_us, spec_.costs.synchronize);
  races_.host_waited(clock);
  return report(call, stream);
}

Status Machine::query_stream(StreamHandle handle) {
  constexpr const char* call = "query_stream";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = refuse_in_callback(call); !status) return status;
  Stream* stream = nullptr;
  if (Status status = find_stream(call, handle, &stream); !status) return status;
  const std::uint64_t sequence = stream->submitted;
  const VectorClock clock = stream->clock;
  if (Status status = make_stream_effects(lock, call, {}, &stream); !status) return status;
  if (stream == nullptr) return {};
  now_ += query_cost_us();
  clock_.advance(now_);
  if (lost_[stream->device] != nullptr) return fail_again(call, lost_[stream->device]->failure);
  if (stream->unreported) return fail_again(call, stream->failure->failure);
  if (stream->timed < sequence) return fail(Code::not_ready, call, "");
  races_.host_waited(clock);
  return {};
}

Status Machine::query_default_streams(ContextHandle context) {
  constexpr const char* call = "query_default_streams";
  if (Status status = fork_.check(call); !status) return status;
  StreamHandle stream = 0;
  {
    const Lock lock(mutex_);
    Context* found = nullptr;
    if (Status status = find_context(call, context, &found); !status) return status;
    stream = found->default_stream;
  }
  return stream == 0 ? Status() : query_stream(stream);
}

}  // namespace stf_places::sim
