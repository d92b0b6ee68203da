// Host functions, host work and task bodies.
#include <time.h>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

double thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

}  // namespace

Status Machine::host_function(StreamHandle stream_handle, HostFunction function, void* argument) {
  constexpr const char* call = "host_function";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (function == nullptr)
    return fail(Code::invalid_value, call, "a host function is needed: got null", stream->device);
  Operation* operation = take(OperationKind::host_function, stream);
  operation->function = function;
  operation->argument = argument;
  operation->duration_us = spec_.costs.host_function;
  strike(FaultKind::host_function, operation);
  submit(operation, spec_.costs.host_function);
  bound_pending(lock);
  return {};
}

Status Machine::launch(const KernelLaunch&, StreamHandle, const Work& work) {
  constexpr const char* call = "launch";
  if (Status status = fork_.check(call); !status) return status;
  return fail(Code::not_supported, call,
              "a device kernel cannot be launched on simulated machine '" + spec_.name + "' (task '" +
                  std::string(work.symbol) + "'); host_work stands for it there");
}

// ---- Work on the SMs ----

Status Machine::check_width(const char* call, const Stream* stream, const Work& work) const {
  if (work.sms < 0 || work.sms > stream->sm_count) {
    const std::string partition =
        stream->partition != nullptr ? "green context " + std::to_string(stream->context) + " on " : "";
    return fail(Code::invalid_value, call,
                "task '" + std::string(work.symbol) + "' can use 1 to " + std::to_string(stream->sm_count) +
                    " SMs of " + partition + "device " + std::to_string(stream->device) + " (0: all): got " +
                    std::to_string(work.sms),
                stream->device);
  }
  if (work.waves < 1) {
    return fail(
        Code::invalid_value, call,
        "task '" + std::string(work.symbol) + "' needs at least one wave: got " + std::to_string(work.waves),
        stream->device);
  }
  return {};
}

Status Machine::check_accesses(const char* call, const Stream* stream, const Work& work,
                               std::vector<Allocation*>* found, std::size_t* nbytes) {
  const auto count = spec_.devices.size();
  for (const Access& access : work.accesses) {
    Allocation* allocation = nullptr;
    if (access.nbytes != 0) {
      Status status = memory_.resolve(call, access.address, access.nbytes, nullptr, &allocation);
      if (!status) {
        Failure named = status.failure();
        named.detail = "task '" + std::string(work.symbol) + "': " + named.detail;
        return Status(std::move(named));
      }
    }
    if (allocation != nullptr && allocation->where.kind == Location::Kind::device) {
      const int owner = allocation->where.device;
      if (owner != stream->device && !peer_access_[stream->device * count + owner]) {
        return fail(Code::invalid_value, call,
                    "task '" + std::string(work.symbol) + "' on device " + std::to_string(stream->device) +
                        " has no access to " + allocation->name() + "; enable_peer_access(" +
                        std::to_string(stream->device) + ", " + std::to_string(owner) + ") gives it",
                    stream->device);
      }
    }
    found->push_back(allocation);
    *nbytes += access.nbytes;
  }
  return {};
}

void Machine::time_work(Operation* operation, const Work& work, std::size_t nbytes) const {
  const DeviceSpec& device = spec_.devices[operation->stream->device];
  operation->nbytes = nbytes;
  operation->sms = work.sms == 0 ? operation->stream->sm_count : work.sms;
  operation->waves = work.waves;
  if (work.cost_us >= 0) {
    operation->duration_us = work.cost_us;
    return;
  }
  const double share = static_cast<double>(operation->sms) / device.sm_count;
  operation->duration_us =
      spec_.costs.kernel_latency + static_cast<double>(nbytes) / (device.bandwidth * 1e3 * share);
}

// Checks everything, then notes what the work touches. Nothing has changed when it fails.
Status Machine::prepare_work(const char* call, OperationKind kind, Stream* stream, const Work& work,
                             Operation** out) {
  std::vector<Allocation*>& found = touched_;
  found.clear();
  std::size_t nbytes = 0;
  if (Status status = check_width(call, stream, work); !status) return status;
  if (Status status = check_accesses(call, stream, work, &found, &nbytes); !status) return status;
  Operation* operation = take(kind, stream);
  operation->symbol = work.symbol;
  time_work(operation, work, nbytes);
  strike(FaultKind::launch, operation);
  if (options_.check_conflicts && !work.accesses.empty()) {
    const Actor actor{stream, kind, work.symbol};
    const std::uint64_t epoch = races_.begin_operation(stream);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Access& access = work.accesses[i];
      if (access.nbytes != 0) touch(actor, epoch, found[i], access.address, access.nbytes, access.write);
    }
  }
  *out = operation;
  return {};
}

Status Machine::host_work(StreamHandle stream_handle, HostFunction function, HostFunction release,
                          void* argument, const Work& work) {
  constexpr const char* call = "host_work";
  if (options_.measure_bodies && options_.execute && function != nullptr) {
    return run_measured(stream_handle, function, release, argument, work);
  }
  Status status = fork_.check(call);
  if (status.ok()) {
    Lock lock(mutex_);
    Stream* stream = nullptr;
    Operation* operation = nullptr;
    status = find_stream(call, stream_handle, &stream);
    if (status.ok()) status = prepare_work(call, OperationKind::work, stream, work, &operation);
    if (status.ok()) {
      operation->function = function;
      operation->release = release;
      operation->argument = argument;
      submit(operation, spec_.costs.kernel_launch);
      bound_pending(lock);
    }
  }
  // Without the mutex, since it may take the interpreter's lock.
  if (!status && release != nullptr) release(argument);
  return status;
}

// Work whose duration is measured has to run before its time is settled: it becomes a body, run here.
Status Machine::run_measured(StreamHandle stream, HostFunction function, HostFunction release, void* argument,
                             Work work) {
  Status status = begin_body(stream, {});
  if (status.ok()) {
    const double began = thread_cpu_us();
    function(argument);
    if (work.cost_us < 0) work.cost_us = thread_cpu_us() - began;
  }
  if (release != nullptr) release(argument);
  return status.ok() ? end_body(stream, work) : std::move(status);
}

Status Machine::begin_body(StreamHandle stream_handle, const Interrupt& interrupt) {
  constexpr const char* call = "begin_body";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = refuse_in_callback(call); !status) return status;
  Stream* stream = nullptr;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (Status status = make_stream_effects(lock, call, interrupt, &stream); !status) return status;
  if (stream == nullptr) return {};
  if (options_.measure_bodies) stream->body_began_us = thread_cpu_us();
  return report(call, stream);
}

Status Machine::end_body(StreamHandle stream_handle, const Work& work) {
  constexpr const char* call = "end_body";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Stream* stream = nullptr;
  Operation* operation = nullptr;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  Work described = work;
  if (options_.measure_bodies && work.cost_us < 0)
    described.cost_us = thread_cpu_us() - stream->body_began_us;
  if (Status status = prepare_work(call, OperationKind::body, stream, described, &operation); !status)
    return status;
  if (operation->has_fault) {
    submit(operation, spec_.costs.kernel_launch);
  } else {
    submit_made(operation, spec_.costs.kernel_launch);
  }
  bound_pending(lock);
  return {};
}

}  // namespace stf_places::sim
