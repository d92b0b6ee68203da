#include "devices.hpp"

#include <cstdio>
#include <limits>

#include "contexts.hpp"

namespace stf_places::cuda {

Status Devices::open() {
  int count = 0;
  if (Status status = api_.DeviceGetCount(&count); !status) return status;
  auto devices = std::make_unique<Device[]>(count);
  for (int i = 0; i < count; ++i) {
    if (Status status = api_.DeviceGet(&devices[i].handle, i); !status) return status;
    devices[i].reaches = std::make_unique<std::atomic<bool>[]>(count);
    for (int peer = 0; peer < count; ++peer) devices[i].reaches[peer].store(i == peer);
  }
  devices_ = std::move(devices);
  count_ = count;
  return {};
}

Devices::~Devices() {
  // Nothing to do about a failure here: the process may be ending, or be the child of a fork.
  for (int i = 0; i < count_; ++i) {
    if (CUmemoryPool pool = devices_[i].pool.load()) api_.MemPoolDestroy(pool).ignore();
    if (devices_[i].primary.load() != nullptr) api_.DevicePrimaryCtxRelease(devices_[i].handle).ignore();
  }
}

Status Devices::check(int device) const {
  if (forked()) return forked_failure("cuDeviceGet");
  if (device >= 0 && device < count_) return {};
  std::string seen = "no device";
  if (count_ == 1) seen = "1 device, 0";
  if (count_ > 1) seen = std::to_string(count_) + " devices, 0 to " + std::to_string(count_ - 1);
  return Status(Failure{Code::invalid_device, 0, "cuDeviceGet", "",
                        "this process sees " + seen + ": got " + std::to_string(device), device});
}

Status Devices::attribute(int device, CUdevice_attribute which, int* out) const {
  return api_.DeviceGetAttribute(out, which, devices_[device].handle);
}

namespace {

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

}  // namespace

Status Devices::properties(int device, DeviceProperties* out) const {
  if (Status status = check(device); !status) return status;
  DeviceProperties found;
  char name[256] = {};
  if (Status status = api_.DeviceGetName(name, sizeof name - 1, devices_[device].handle); !status)
    return status;
  found.name = name;
  if (Status status = api_.DeviceTotalMem(&found.total_memory, devices_[device].handle); !status)
    return status;
  int pools = 0, managed = 0;
  const struct {
    CUdevice_attribute which;
    int* value;
  } asked[] = {{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &found.sm_count},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &found.compute_major},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &found.compute_minor},
               {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &found.copy_engines},
               {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &pools},
               {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &managed}};
  for (const auto& [which, value] : asked)
    if (Status status = attribute(device, which, value); !status) return status;
  found.memory_pools = pools != 0;
  found.managed_memory = managed != 0;
  // What may be unknown stays unknown: neither is a reason to refuse the device.
  int clock_khz = 0, bus_bits = 0;
  if (attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &clock_khz).ok() &&
      attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &bus_bits).ok())
    found.memory_bandwidth = 2.0 * clock_khz * (bus_bits / 8.0) / 1e6;  // two transfers a clock
  CUuuid uuid{};
  if (api_.DeviceGetUuid(&uuid, devices_[device].handle).ok()) found.uuid = uuid_text(uuid);
  *out = std::move(found);
  return {};
}

Status Devices::primary(int device, CUcontext* out) {
  if (Status status = check(device); !status) return status;
  Device& here = devices_[device];
  CUcontext context = here.primary.load(std::memory_order_acquire);
  if (context == nullptr) {
    std::scoped_lock lock(mutex_);
    context = here.primary.load();
    if (context == nullptr) {
      if (Status status = api_.DevicePrimaryCtxRetain(&context, here.handle); !status)
        return explained(std::move(status), "device " + std::to_string(device), device);
      here.primary.store(context, std::memory_order_release);
    }
  }
  *out = context;
  return {};
}

Status Devices::any_context(CUcontext* out) { return primary(0, out); }

Status Devices::ordinal_of(CUcontext context, int* out) {
  ContextScope scope(api_, context);
  if (Status status = scope.status(); !status) return status;
  CUdevice handle = 0;
  if (Status status = api_.CtxGetDevice(&handle); !status) return status;
  for (int i = 0; i < count_; ++i) {
    if (devices_[i].handle != handle) continue;
    *out = i;
    return {};
  }
  return Status(Failure{Code::invalid_device, 0, "cuCtxGetDevice", "",
                        "the context's device is none of the " + std::to_string(count_) + " visible ones"});
}

Status Devices::make_pool(int device, CUmemoryPool* out) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = devices_[device].handle;
  CUmemoryPool made = nullptr;
  if (Status status = api_.MemPoolCreate(&made, &props); !status)
    return explained(std::move(status), "a memory pool on device " + std::to_string(device), device);
  cuuint64_t keep = std::numeric_limits<cuuint64_t>::max();
  if (Status status = api_.MemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep); !status) {
    api_.MemPoolDestroy(made).ignore();
    return status;
  }
  *out = made;
  return {};
}

Status Devices::pool(int device, CUmemoryPool* out) {
  if (Status status = check(device); !status) return status;
  CUmemoryPool found = devices_[device].pool.load(std::memory_order_acquire);
  if (found == nullptr) {
    // The pool keeps memory of the primary context's device alive, so that context has to exist first.
    CUcontext context = nullptr;
    if (Status status = primary(device, &context); !status) return status;
    std::scoped_lock lock(mutex_);
    found = devices_[device].pool.load();
    if (found == nullptr) {
      if (Status status = make_pool(device, &found); !status) return status;
      devices_[device].pool.store(found, std::memory_order_release);
    }
  }
  *out = found;
  return {};
}

Status Devices::check_pages(int device) const {
  if (Status status = check(device); !status) return status;
  int supported = 0;
  if (Status status = attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &supported);
      !status)
    return status;
  if (supported != 0) return {};
  return Status(
      Failure{Code::not_supported, 0, api_.DeviceGetAttribute.name(), "",
              "memory is mapped page by page on devices with virtual memory management, which device " +
                  std::to_string(device) + " does not have; allocations that lie on one device still work",
              device});
}

Status Devices::can_reach(int device, int peer, bool* out) const {
  if (Status status = check(device); !status) return status;
  if (Status status = check(peer); !status) return status;
  int answer = 1;
  if (device != peer)
    if (Status status = api_.DeviceCanAccessPeer(&answer, devices_[device].handle, devices_[peer].handle);
        !status)
      return status;
  *out = answer != 0;
  return {};
}

bool Devices::reaches(int device, int peer) const noexcept {
  if (device < 0 || device >= count_ || peer < 0 || peer >= count_) return false;
  return devices_[device].reaches[peer].load(std::memory_order_acquire);
}

Status Devices::enable_peer_access(int device, int peer) {
  bool possible = false;
  if (Status status = can_reach(device, peer, &possible); !status) return status;
  const std::string pair =
      "device " + std::to_string(device) + " to memory of device " + std::to_string(peer);
  if (!possible)
    return Status(Failure{Code::not_supported, 0, "cuDeviceCanAccessPeer", "",
                          pair + ": the devices cannot reach each other; copies still work", device});
  if (reaches(device, peer)) return {};
  CUcontext from = nullptr, to = nullptr;
  CUmemoryPool theirs = nullptr;
  if (Status status = primary(device, &from); !status) return status;
  if (Status status = primary(peer, &to); !status) return status;
  if (Status status = pool(peer, &theirs); !status) return status;

  std::scoped_lock lock(mutex_);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = devices_[device].handle;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (Status status = api_.MemPoolSetAccess(theirs, &access, 1); !status)
    return explained(std::move(status), pair, device);
  // The pool's access does not cover memory that the user allocated in the peer's context.
  ContextScope scope(api_, from);
  if (Status status = scope.status(); !status) return status;
  CUresult enabled = CUDA_SUCCESS;
  if (Status status = api_.CtxEnablePeerAccess.raw(&enabled, to, 0); !status) return status;
  if (enabled != CUDA_SUCCESS && enabled != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    return explained(status_of(api_, enabled, api_.CtxEnablePeerAccess.name()), pair, device);
  devices_[device].reaches[peer].store(true, std::memory_order_release);
  return {};
}

}  // namespace stf_places::cuda
