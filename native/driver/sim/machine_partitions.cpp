// SMs, splits of them, and green contexts.
#include <algorithm>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

constexpr int green_contexts_version = 12050;
constexpr int cuda_13_1 = 13010;

}  // namespace

Status Machine::needs_version(const char* call, int version, const char* what) const {
  if (spec_.driver_version >= version) return {};
  return fail(Code::not_supported, call,
              "machine '" + spec_.name + "' has a driver of CUDA " + version_text(spec_.driver_version) +
                  ": it does not have " + what + ", which comes with CUDA " + version_text(version));
}

Status Machine::needs_green_contexts(const char* call) const {
  return needs_version(call, green_contexts_version, "what green contexts need");
}

SmResource Machine::resource_of(std::shared_ptr<const SmSet> set) const {
  SmResource resource;
  resource.device = set->device;
  resource.sm_count = static_cast<int>(set->ids.size());
  if (set->origin != SmSet::Origin::split) {
    const DeviceSpec& device = spec_.devices[set->device];
    resource.min_partition = std::max(1, device.min_partition);
    resource.alignment = std::max(1, device.alignment);
  }
  resource.opaque = std::move(set);
  return resource;
}

SmResource Machine::resource_of(int device, SmSet::Origin origin, std::vector<int> ids) const {
  return resource_of(std::make_shared<const SmSet>(SmSet{id_, device, origin, std::move(ids)}));
}

std::vector<int> Machine::all_sms(int device) const {
  std::vector<int> ids(spec_.devices[device].sm_count);
  for (std::size_t id = 0; id < ids.size(); ++id) ids[id] = static_cast<int>(id);
  return ids;
}

// ---- Having and splitting ----

Status Machine::device_sms(int device, SmResource* out) {
  constexpr const char* call = "device_sms";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  if (Status status = needs_green_contexts(call); !status) return status;
  *out = resource_of(device, SmSet::Origin::device, all_sms(device));
  return {};
}

Status Machine::context_sms(ContextHandle context, SmResource* out) {
  constexpr const char* call = "context_sms";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  if (Status status = find_device(call, found->device); !status) return status;
  if (Status status = needs_green_contexts(call); !status) return status;
  *out = found->sms != nullptr ? resource_of(found->sms)
                               : resource_of(found->device, SmSet::Origin::device, all_sms(found->device));
  return {};
}

Status Machine::find_sms(const char* call, const SmResource& resource, const SmSet** out) const {
  const auto* set = static_cast<const SmSet*>(resource.opaque.get());
  if (set == nullptr) return fail(Code::invalid_value, call, "a set of SMs is needed: got an empty one");
  if (set->machine != id_) return fail(Code::invalid_value, call, "the SMs are of another simulated machine");
  if (Status status = find_device(call, set->device); !status) return status;
  *out = set;
  return {};
}

Status Machine::find_whole(const char* call, const SmResource& whole, const SmSet** out) const {
  const SmSet* set = nullptr;
  if (Status status = find_sms(call, whole, &set); !status) return status;
  if (set->origin == SmSet::Origin::split) {
    return fail(Code::invalid_value, call,
                "the SMs of a device or of a context can be split: got a group of a split, or what one left",
                set->device);
  }
  *out = set;
  return {};
}

void Machine::hand_over(const SmSet& whole, SmSplit&& split, std::vector<SmResource>* out,
                        SmResource* left) const {
  std::vector<SmResource> groups;
  for (auto& ids : split.groups) {
    groups.push_back(resource_of(whole.device, SmSet::Origin::split, std::move(ids)));
  }
  SmResource rest{whole.device};
  if (!split.left.empty()) rest = resource_of(whole.device, SmSet::Origin::split, std::move(split.left));
  // Last, since `left` may be what was split.
  *out = std::move(groups);
  *left = std::move(rest);
}

Status Machine::split_sms(const SmResource& whole, int sm_count, int groups, bool fine,
                          std::vector<SmResource>* out, SmResource* left) {
  constexpr const char* call = "split_sms";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  const SmSet* set = nullptr;
  SmSplit split;
  if (Status status = needs_green_contexts(call); !status) return status;
  if (Status status = find_whole(call, whole, &set); !status) return status;
  std::string wrong = split_equally(spec_.devices[set->device], *set, sm_count, groups, fine, &split);
  if (!wrong.empty()) return fail(Code::invalid_value, call, std::move(wrong), set->device);
  hand_over(*set, std::move(split), out, left);
  return {};
}

Status Machine::split_sms_unequally(const SmResource& whole, std::span<const SmGroup> groups,
                                    std::vector<SmResource>* out, SmResource* left) {
  constexpr const char* call = "split_sms_unequally";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  const SmSet* set = nullptr;
  SmSplit split;
  if (Status status = needs_version(call, cuda_13_1, "splits into unequal groups"); !status) return status;
  if (Status status = find_whole(call, whole, &set); !status) return status;
  std::string wrong = split_unequally(spec_.devices[set->device], *set, groups, &split);
  if (!wrong.empty()) return fail(Code::invalid_value, call, std::move(wrong), set->device);
  hand_over(*set, std::move(split), out, left);
  return {};
}

// ---- Green contexts ----

Status Machine::join_sms(const char* call, int device, std::span<const SmResource> sms,
                         std::vector<int>* out) const {
  if (sms.empty()) return fail(Code::invalid_value, call, "a green context needs SMs: got none", device);
  std::vector<int> ids;
  for (const SmResource& resource : sms) {
    const SmSet* set = nullptr;
    if (Status status = find_sms(call, resource, &set); !status) return status;
    if (set->device != device) {
      return fail(Code::invalid_value, call,
                  "a green context of device " + std::to_string(device) +
                      " needs that device's SMs: got some of device " + std::to_string(set->device),
                  device);
    }
    ids.insert(ids.end(), set->ids.begin(), set->ids.end());
  }
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
    return fail(
        Code::invalid_value, call,
        "the sets of SMs of a green context do not overlap: got SM " + std::to_string(*twice) + " twice",
        device);
  }
  *out = std::move(ids);
  return {};
}

Status Machine::create_green_context(int device, std::span<const SmResource> sms, const WorkQueues* queues,
                                     ContextHandle* out) {
  constexpr const char* call = "create_green_context";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  std::vector<int> ids;
  if (Status status = find_device(call, device); !status) return status;
  if (Status status = needs_green_contexts(call); !status) return status;
  if (queues != nullptr) {
    if (Status status = needs_version(call, cuda_13_1, "work queues of a context"); !status) return status;
    if (queues->concurrency_limit < 0) {
      return fail(Code::invalid_value, call,
                  "the concurrency limit is 0 (the driver's own) or more: got " +
                      std::to_string(queues->concurrency_limit),
                  device);
    }
  }
  if (Status status = join_sms(call, device, sms, &ids); !status) return status;
  if (Status status = strike_at_call(call, FaultKind::green_context, device); !status) return status;
  // Numbers are given to the SMs of what runs at this moment.
  clock_.advance(now_);
  clock_.tell_sms_apart(device);
  now_ += spec_.costs.green_context;
  Context made;
  made.device = device;
  made.partition = std::make_shared<const SmMask>(spec_.devices[device].sm_count, ids);
  made.sms = std::make_shared<const SmSet>(SmSet{id_, device, SmSet::Origin::context, std::move(ids)});
  contexts_.push_back(std::move(made));
  *out = contexts_.size();
  return {};
}

Status Machine::destroy_green_context(ContextHandle context) {
  constexpr const char* call = "destroy_green_context";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Context* found = nullptr;
  if (Status status = find_context(call, context, &found); !status) return status;
  if (found->sms == nullptr) {
    return fail(Code::invalid_value, call,
                "a primary context cannot be destroyed: got that of device " + std::to_string(found->device),
                found->device);
  }
  if (found->open_streams != 0) {
    return fail(Code::invalid_value, call,
                "the streams of a green context must be destroyed first: context " + std::to_string(context) +
                    " has " + std::to_string(found->open_streams),
                found->device);
  }
  if (Stream* stream = stream_at(found->default_stream); stream != nullptr) close(stream);
  *found = Context{found->device};
  found->destroyed = true;
  reap_streams();
  return {};
}

std::vector<int> Machine::sm_ids(ContextHandle context) const {
  const Lock lock(mutex_);
  if (context == 0 || context > contexts_.size()) return {};
  const Context& found = contexts_[context - 1];
  if (found.destroyed) return {};
  return found.sms != nullptr ? found.sms->ids : all_sms(found.device);
}

}  // namespace stf_places::sim
