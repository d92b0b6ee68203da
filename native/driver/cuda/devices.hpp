// The devices of the process: properties, primary contexts, memory pools and who may reach whom.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "../driver.hpp"
#include "api.hpp"

namespace stf_places::cuda {

class Devices {
 public:
  explicit Devices(const Api& api) : api_(api) {}
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // Finds the devices. Creates no context.
  Status open();
  int count() const noexcept { return count_; }
  CUdevice handle(int device) const noexcept { return devices_[device].handle; }
  // Fails with invalid_device, saying how many devices there are.
  Status check(int device) const;

  Status properties(int device, DeviceProperties* out) const;
  // Retained on first use, for as long as this object lives.
  Status primary(int device, CUcontext* out);
  // The first device's primary context, for calls that need some context and no particular one.
  Status any_context(CUcontext* out);
  Status ordinal_of(CUcontext context, int* out);

  // Our own pool, made on first use: memory that others take from the process's default pool is not mixed
  // with ours, and freed memory stays in it until it is trimmed.
  Status pool(int device, CUmemoryPool* out);
  // Null when nothing was allocated on the device yet.
  CUmemoryPool existing_pool(int device) const noexcept { return devices_[device].pool.load(); }

  // Fails with not_supported where no memory can be mapped page by page.
  Status check_pages(int device) const;

  Status can_reach(int device, int peer, bool* out) const;
  Status enable_peer_access(int device, int peer);
  // True when enable_peer_access succeeded for the pair, in this direction.
  bool reaches(int device, int peer) const noexcept;

 private:
  struct Device {
    CUdevice handle = 0;
    std::atomic<CUcontext> primary{nullptr};
    std::atomic<CUmemoryPool> pool{nullptr};
    std::unique_ptr<std::atomic<bool>[]> reaches;
  };

  Status attribute(int device, CUdevice_attribute which, int* out) const;
  Status make_pool(int device, CUmemoryPool* out);

  const Api& api_;
  int count_ = 0;
  std::unique_ptr<Device[]> devices_;
  std::mutex mutex_;  // held while a primary context or a pool is made and while access is granted
};

}  // namespace stf_places::cuda
