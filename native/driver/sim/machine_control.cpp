// What only a simulated machine can do, and the parts of submitting that all operations share.
#include <algorithm>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

// ---- Submitting ----

void Machine::put_on_clock(Operation* operation, double cost_us) {
  now_ += cost_us;
  operation->submit_us = now_;
  clock_.submit(operation);
}

void Machine::submit(Operation* operation, double cost_us) {
  operation->sequence = ++sequence_;
  operation->stream->submitted = sequence_;
  effects_.submit(operation);
  put_on_clock(operation, cost_us);
}

void Machine::submit_made(Operation* operation, double cost_us) {
  Stream* stream = operation->stream;
  if (stream->effected != stream->submitted) {
    submit(operation, cost_us);
    return;
  }
  operation->sequence = ++sequence_;
  stream->submitted = stream->effected = sequence_;
  pool_.effect_done(operation);
  put_on_clock(operation, cost_us);
}

void Machine::bound_pending(Lock& lock) {
  if (clock_.crowded()) {
    clock_.advance(now_);
    if (clock_.crowded()) {
      clock_.relieve();
      now_ = std::max(now_, clock_.time_us());
    }
  }
  if (effects_.pending() > pending_limit && executor_ != std::this_thread::get_id()) {
    // The submission itself succeeded; what an effect left behind is reported by the next wait.
    make_effects(lock, "submit", {}, [&] { return effects_.pending() <= pending_limit / 2; }).ignore();
  }
}

void Machine::strike(FaultKind kind, Operation* operation) {
  operation->has_fault = faults_.strikes(kind, &operation->fault);
}

Status Machine::strike_at_call(const char* call, FaultKind kind, int device) {
  Code code = Code::failed;
  if (!faults_.strikes(kind, &code)) return {};
  Failure struck = failure(code, call, "an ordered fault", device);
  if (code == Code::device_lost && device >= 0) lose_device(device, struck);
  return Status(std::move(struck));
}

void Machine::lose_device(int device, const Failure& cause) {
  Failure lost = cause;
  lost.detail = "device " + std::to_string(device) + " was lost: " + cause.detail;
  lost_[device] = std::make_shared<StreamFailure>(StreamFailure{std::move(lost)});
}

// ---- Control ----

double Machine::now_us() const {
  const Lock lock(mutex_);
  return now_;
}

void Machine::advance_us(double us) {
  const Lock lock(mutex_);
  now_ += std::max(0.0, us);
}

void Machine::order_fault(FaultKind kind, std::uint64_t nth, Code code) {
  const Lock lock(mutex_);
  faults_.order(kind, std::max<std::uint64_t>(1, nth), code);
}

std::vector<std::string> Machine::conflicts() const {
  const Lock lock(mutex_);
  return races_.reports();
}

void Machine::record_timeline(bool on) {
  const Lock lock(mutex_);
  // What has happened up to now belongs to the time before the switch.
  clock_.advance(now_);
  clock_.record_timeline(on);
}

std::vector<TimelineEntry> Machine::timeline() const {
  const Lock lock(mutex_);
  clock_.advance(now_);
  return clock_.timeline();
}

std::size_t Machine::used_memory(int device) const {
  const Lock lock(mutex_);
  return device >= 0 && device < static_cast<int>(spec_.devices.size()) ? memory_.used(device) : 0;
}

std::size_t Machine::live_allocations() const {
  const Lock lock(mutex_);
  return memory_.live();
}

std::size_t Machine::live_graphs() const {
  const Lock lock(mutex_);
  const auto own = [](const auto& graph) { return graph.second->owner == 0; };
  return std::count_if(graphs_.begin(), graphs_.end(), own) + graph_execs_.size();
}

std::uint64_t Machine::operations() const {
  const Lock lock(mutex_);
  return sequence_;
}

Status Machine::drain() {
  constexpr const char* call = "drain";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = refuse_in_callback(call); !status) return status;
  if (Status status = make_effects(lock, call, {}, [&] { return effects_.pending() == 0; }); !status)
    return status;
  clock_.finish_all();
  wait_until(clock_.time_us(), spec_.costs.synchronize);
  for (const auto& stream : streams_) {
    if (stream != nullptr) races_.host_waited(stream->clock);
  }
  reap_streams();
  return first_failure(call);
}

Status Machine::first_failure(const char* call) {
  for (const auto& lost : lost_) {
    if (lost != nullptr) return fail_again(call, lost->failure);
  }
  std::shared_ptr<StreamFailure> first;
  for (const auto& stream : streams_) {
    if (stream == nullptr || !stream->unreported) continue;
    stream->unreported = false;
    stream->failure->reported_at = std::min(stream->failure->reported_at, sequence_);
    if (first == nullptr) first = stream->failure;
  }
  if (first != nullptr) return fail_again(call, first->failure);
  return report_conflicts(call);
}

}  // namespace stf_places::sim
