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

// `part` out of `whole` of something, rounded down.
std::size_t share_of(std::size_t something, std::size_t part, std::size_t whole) {
  return static_cast<std::size_t>(static_cast<unsigned __int128>(something) * part / whole);
}

Node node_of(const Work& work, std::unique_ptr<NodeCode> code) {
  Node node;
  node.kind = OperationKind::work;
  node.code = std::move(code);
  node.symbol = work.symbol;
  node.cost_us = work.cost_us;
  node.sms = work.sms;
  node.waves = work.waves;
  node.accesses.assign(work.accesses.begin(), work.accesses.end());
  node.whole = work.whole;
  return node;
}

}  // namespace

Status Machine::host_function(StreamHandle stream_handle, HostFunction function, void* argument) {
  constexpr const char* call = "host_function";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_stream(call, stream_handle, &stream, Recording::allowed); !status) return status;
  if (function == nullptr)
    return fail(Code::invalid_value, call, "a host function is needed: got null", stream->device);
  if (stream->graph != nullptr) {
    Node node;
    node.kind = OperationKind::host_function;
    node.code = std::make_unique<NodeCode>(function, nullptr, argument);
    record(stream, std::move(node), {});
    return {};
  }
  put_host_function(stream, function, argument, spec_.costs.host_function);
  bound_pending(lock);
  return {};
}

void Machine::put_host_function(Stream* stream, HostFunction function, void* argument, double cost_us) {
  Operation* operation = take(OperationKind::host_function, stream);
  operation->function = function;
  operation->argument = argument;
  operation->duration_us = spec_.costs.host_function;
  strike(FaultKind::host_function, operation);
  submit(operation, cost_us);
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

Status Machine::check_access(const char* call, const Stream* stream, const Access& access, Allocation** out) {
  if (access.used > access.nbytes) {
    return fail(Code::invalid_value, call,
                "an access uses at most the " + std::to_string(access.nbytes) + " bytes of its range: got " +
                    std::to_string(access.used),
                stream->device);
  }
  if (access.nbytes == 0) return {};
  if (Status status = memory_.resolve(call, access.address, access.nbytes, nullptr, out); !status)
    return status;
  const Allocation* allocation = *out;
  if (allocation == nullptr || allocation->where.kind != Location::Kind::device) return {};
  if (allocation->range != nullptr) {
    return memory_.reaches(call, stream->device, allocation, access.address + access.nbytes);
  }
  const int owner = allocation->where.device;
  if (owner == stream->device || peer_access_[stream->device * spec_.devices.size() + owner]) return {};
  return fail(Code::invalid_value, call,
              "device " + std::to_string(stream->device) + " has no access to " + allocation->name() +
                  "; enable_peer_access(" + std::to_string(stream->device) + ", " + std::to_string(owner) +
                  ") gives it",
              stream->device);
}

Status Machine::check_accesses(const char* call, const Stream* stream, const Work& work,
                               std::vector<Allocation*>* found) {
  for (const Access& access : work.accesses) {
    Allocation* allocation = nullptr;
    if (Status status = check_access(call, stream, access, &allocation); !status) {
      Failure named = status.failure();
      named.detail = "task '" + std::string(work.symbol) + "': " + named.detail;
      return Status(std::move(named));
    }
    found->push_back(allocation);
  }
  return {};
}

// Adds the bytes that an access uses to `reach`, by the memory that they lie in.
void Machine::add_reach(int device, const Access& access, const Allocation* first, Reach* reach) const {
  const std::size_t used = access.used == 0 ? access.nbytes : access.used;
  reach->nbytes += used;
  std::size_t before = 0;
  for (const Allocation* piece = first; piece != nullptr; piece = memory_.next(piece)) {
    const Address end = std::min(access.address + access.nbytes, piece->end());
    const std::size_t upto = share_of(used, end - access.address, access.nbytes);
    const int owner = piece->where.device;
    if (piece->where.kind == Location::Kind::device && owner != device) {
      reach->remote.push_back({access.write ? device : owner, access.write ? owner : device, upto - before});
    }
    before = upto;
    if (end == access.address + access.nbytes) return;
  }
}

double Machine::remote_us(const Reach& reach, int device) const {
  double us[2] = {0, 0};  // into the device, out of it
  for (const LinkTraffic& one : reach.remote) {
    int index = link_index(one.from, one.to);
    if (index < 0) index = link_index(one.to, one.from);
    us[one.from == device ? 1 : 0] += static_cast<double>(one.nbytes) / (spec_.links[index].bandwidth * 1e3);
  }
  return std::max(us[0], us[1]);
}

// Memory of other devices comes over links: what is local (host and managed memory included) at the place's
// share of the device's bandwidth, and on top of it what is remote, reads towards the device and writes away
// from it. The two directions run side by side; in one direction the bytes of all links add up, since they go
// through the same ports of the device. It occupies neither links nor engines.
void Machine::time_work(Operation* operation, const Work& work, const Reach& reach) {
  const int ordinal = operation->stream->device;
  const DeviceSpec& device = spec_.devices[ordinal];
  operation->nbytes = reach.nbytes;
  operation->sms = work.sms == 0 ? operation->stream->sm_count : work.sms;
  operation->waves = work.waves;
  std::size_t local = reach.nbytes;
  for (const LinkTraffic& one : reach.remote) {
    traffic(one.from, one.to) += one.nbytes;
    local -= one.nbytes;
  }
  if (work.cost_us >= 0) {
    operation->duration_us = work.cost_us;
    return;
  }
  const double share = static_cast<double>(operation->sms) / device.sm_count;
  operation->duration_us = spec_.costs.kernel_latency +
                           static_cast<double>(local) / (device.bandwidth * 1e3 * share) +
                           remote_us(reach, ordinal);
}

Status Machine::check_work(const char* call, const Stream* stream, const Work& work,
                           std::vector<Allocation*>* found) {
  if (Status status = check_width(call, stream, work); !status) return status;
  return check_accesses(call, stream, work, found);
}

Operation* Machine::make_work(OperationKind kind, Stream* stream, const Work& work,
                              std::span<Allocation* const> found) {
  reach_.nbytes = 0;
  reach_.remote.clear();
  for (std::size_t i = 0; i < found.size(); ++i)
    add_reach(stream->device, work.accesses[i], found[i], &reach_);
  Operation* operation = take(kind, stream);
  operation->symbol = work.symbol;
  time_work(operation, work, reach_);
  strike(FaultKind::launch, operation);
  if (options_.check_conflicts && !work.accesses.empty()) {
    const Actor actor{stream, kind, work.symbol, races_.begin_operation(stream), work.whole};
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Access& access = work.accesses[i];
      const bool partial = access.used != 0 && access.used < access.nbytes;
      if (access.nbytes != 0) touch(actor, found[i], access.address, access.nbytes, access.write, partial);
    }
  }
  return operation;
}

Status Machine::host_work(StreamHandle stream_handle, HostFunction function, HostFunction release,
                          void* argument, const Work& work) {
  constexpr const char* call = "host_work";
  bool capturing = false;
  if (options_.measure_bodies && options_.execute && function != nullptr) {
    stream_capturing(stream_handle, &capturing).ignore();
    if (!capturing) return run_measured(stream_handle, function, release, argument, work);
  }
  Status status = fork_.check(call);
  if (status.ok()) {
    Lock lock(mutex_);
    Stream* stream = nullptr;
    touched_.clear();
    status = find_stream(call, stream_handle, &stream, Recording::allowed);
    if (status.ok()) status = check_work(call, stream, work, &touched_);
    if (status.ok() && stream->graph != nullptr) {
      record(stream, node_of(work, std::make_unique<NodeCode>(function, release, argument)), touched_);
    } else if (status.ok()) {
      Operation* operation = make_work(OperationKind::work, stream, work, touched_);
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
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  Work described = work;
  if (options_.measure_bodies && work.cost_us < 0)
    described.cost_us = thread_cpu_us() - stream->body_began_us;
  touched_.clear();
  if (Status status = check_work(call, stream, described, &touched_); !status) return status;
  Operation* operation = make_work(OperationKind::body, stream, described, touched_);
  if (operation->has_fault) {
    submit(operation, spec_.costs.kernel_launch);
  } else {
    submit_made(operation, spec_.costs.kernel_launch);
  }
  bound_pending(lock);
  return {};
}

}  // namespace stf_places::sim
