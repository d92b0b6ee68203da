#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "failures.hpp"

namespace stf_places::sim {

namespace {

std::atomic<std::uint64_t> machine_count{0};

// The calling thread's current context on each machine.
thread_local std::unordered_map<std::uint64_t, ContextHandle> current_contexts;

std::string check_partitions(const DeviceSpec& device) {
  if (device.min_partition < 0 || device.min_partition > device.sm_count || device.alignment < 0) {
    return "min_partition is 0 to sm_count, alignment not negative";
  }
  if (device.aligned_sms < 0 || device.aligned_sms > device.sm_count ||
      device.aligned_sms % std::max(1, device.alignment) != 0) {
    return "aligned_sms is a multiple of alignment, at most sm_count: got " +
           std::to_string(device.aligned_sms);
  }
  if (device.resplit_loss < 0 || device.resplit_loss > device.alignment) {
    return "resplit_loss is 0 to alignment: got " + std::to_string(device.resplit_loss);
  }
  return "";
}

std::string check_spec(const MachineSpec& spec) {
  if (spec.devices.empty()) return "a machine needs at least one device: got none";
  const int count = static_cast<int>(spec.devices.size());
  for (int i = 0; i < count; ++i) {
    const DeviceSpec& device = spec.devices[i];
    const std::string at = "device " + std::to_string(i);
    if (device.sm_count < 1) return at + " needs at least one SM: got " + std::to_string(device.sm_count);
    if (!(device.bandwidth > 0)) return at + " needs a positive bandwidth";
    if (device.copy_engines < 1) return at + " needs at least one copy engine";
    if (device.page < 4096 || (device.page & (device.page - 1)) != 0) {
      return at + ": page is a power of two, at least 4096 bytes: got " + std::to_string(device.page);
    }
    if (std::string wrong = check_partitions(device); !wrong.empty()) return at + ": " + wrong;
  }
  std::vector<int> to_host(count, 0);
  std::vector<int> from_host(count, 0);
  for (const LinkSpec& link : spec.links) {
    const std::string at = "link from " + std::to_string(link.from) + " to " + std::to_string(link.to);
    if (link.from < -1 || link.from >= count || link.to < -1 || link.to >= count || link.from == link.to) {
      return at + " does not join two different ends out of -1 (host) to " + std::to_string(count - 1);
    }
    if (!(link.bandwidth > 0)) return at + " needs a positive bandwidth";
    if (link.to == -1) to_host[link.from] = 1;
    if (link.from == -1) from_host[link.to] = 1;
  }
  for (int i = 0; i < count; ++i) {
    if (!to_host[i] || !from_host[i])
      return "device " + std::to_string(i) + " needs links to and from the host (-1)";
  }
  return "";
}

}  // namespace

Status make_sim_driver(const MachineSpec& spec, const Options& options, std::shared_ptr<SimDriver>* out) {
  if (std::string wrong = check_spec(spec); !wrong.empty()) {
    return fail(Code::invalid_value, "make_sim_driver", "machine '" + spec.name + "': " + wrong);
  }
  *out = std::make_shared<Machine>(spec, options);
  return {};
}

Machine::Machine(const MachineSpec& spec, const Options& options)
    : spec_(spec),
      options_(options),
      id_(++machine_count),
      clock_(spec_, pool_),
      effects_(options.chaos, options.seed),
      memory_(spec_, options.execute),
      lost_(spec.devices.size()),
      peer_access_(spec.devices.size() * spec.devices.size(), false) {
  const int count = static_cast<int>(spec_.devices.size());
  for (int device = 0; device < count; ++device) contexts_.push_back(Context{device});
  link_of_.assign((count + 1) * (count + 1), -1);
  traffic_.assign(link_of_.size(), 0);
  for (std::size_t i = 0; i < spec_.links.size(); ++i) {
    const LinkSpec& link = spec_.links[i];
    link_of_[(link.from + 1) * (count + 1) + link.to + 1] = static_cast<short>(i);
  }
}

Machine::~Machine() {
  // In a forked child the pending work and the host code of graphs belong to the parent.
  if (fork_.forked()) {
    (void)new auto(std::move(graphs_));
    (void)new auto(std::move(graph_execs_));
    return;
  }
  current_contexts.erase(id_);
  while (Operation* operation = effects_.take_any()) {
    if (operation->release != nullptr) operation->release(operation->argument);
  }
}

// ---- Looking up ----

Status Machine::find_device(const char* call, int device) const {
  if (device < 0 || device >= static_cast<int>(spec_.devices.size())) {
    return fail(Code::invalid_device, call,
                "machine '" + spec_.name + "' has devices 0 to " + std::to_string(spec_.devices.size() - 1) +
                    ": got " + std::to_string(device),
                device);
  }
  if (lost_[device] != nullptr) return fail_again(call, lost_[device]->failure);
  return {};
}

Status Machine::find_context(const char* call, ContextHandle context, Context** out) {
  if (context == 0 || context > contexts_.size()) {
    return fail(Code::invalid_value, call, "no such context: " + std::to_string(context));
  }
  if (contexts_[context - 1].destroyed) {
    return fail(Code::invalid_value, call, "context " + std::to_string(context) + " was destroyed");
  }
  *out = &contexts_[context - 1];
  return {};
}

// ---- Devices ----

Status Machine::version(int* out) {
  if (Status status = fork_.check("version"); !status) return status;
  *out = spec_.driver_version;
  return {};
}

Status Machine::device_count(int* out) {
  if (Status status = fork_.check("device_count"); !status) return status;
  *out = static_cast<int>(spec_.devices.size());
  return {};
}

Status Machine::device_properties(int device, DeviceProperties* out) {
  constexpr const char* call = "device_properties";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  const DeviceSpec& spec = spec_.devices[device];
  DeviceProperties properties;
  properties.name = spec.name;
  properties.sm_count = spec.sm_count;
  properties.compute_major = spec.compute_major;
  properties.compute_minor = spec.compute_minor;
  properties.total_memory = spec.memory;
  properties.memory_bandwidth = spec.bandwidth;
  properties.copy_engines = spec.copy_engines;
  properties.memory_pools = true;
  properties.managed_memory = true;
  properties.uuid = "sim:" + spec_.name + ":" + std::to_string(device);
  *out = std::move(properties);
  return {};
}

Status Machine::memory_info(int device, std::size_t* free, std::size_t* total) {
  constexpr const char* call = "memory_info";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  *total = memory_.total(device);
  *free = *total - memory_.used(device);
  return {};
}

int Machine::link_index(int from, int to) const {
  const int width = static_cast<int>(spec_.devices.size()) + 1;
  return link_of_[(from + 1) * width + to + 1];
}

Status Machine::link(int from, int to, Link* out) {
  constexpr const char* call = "link";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  for (const int end : {from, to}) {
    if (end == -1) continue;
    if (Status status = find_device(call, end); !status) return status;
  }
  *out = Link{};
  if (const int index = link_index(from, to); index >= 0) {
    const LinkSpec& spec = spec_.links[index];
    *out = Link{spec.peer, spec.bandwidth, spec.latency_us};
  } else if (from == to && from >= 0) {
    *out = Link{true, spec_.devices[from].bandwidth, 0};
  }
  return {};
}

Status Machine::enable_peer_access(int device, int peer) {
  constexpr const char* call = "enable_peer_access";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  if (Status status = find_device(call, peer); !status) return status;
  if (device == peer) return {};
  const int index = link_index(device, peer);
  if (index < 0 || !spec_.links[index].peer) {
    return fail(Code::not_supported, call,
                "devices " + std::to_string(device) + " and " + std::to_string(peer) + " of machine '" +
                    spec_.name + "' are no peers; copies between them go through the host",
                device);
  }
  peer_access_[device * spec_.devices.size() + peer] = true;
  return {};
}

// ---- Contexts ----

Status Machine::primary_context(int device, ContextHandle* out) {
  constexpr const char* call = "primary_context";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  *out = static_cast<ContextHandle>(device) + 1;
  return {};
}

Status Machine::current_context(ContextHandle* out) {
  if (Status status = fork_.check("current_context"); !status) return status;
  const auto current = current_contexts.find(id_);
  *out = current == current_contexts.end() ? 0 : current->second;
  return {};
}

Status Machine::set_current_context(ContextHandle context) {
  constexpr const char* call = "set_current_context";
  if (Status status = fork_.check(call); !status) return status;
  if (context == 0) {
    current_contexts.erase(id_);
    return {};
  }
  const Lock lock(mutex_);
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  current_contexts[id_] = context;
  return {};
}

Status Machine::context_device(ContextHandle context, int* out) {
  constexpr const char* call = "context_device";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  *out = found->device;
  return {};
}

}  // namespace stf_places::sim
