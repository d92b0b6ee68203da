// A driver together with what is asked of it once: primary contexts, peers, settings.
//
// Contexts, arrays and streams hold a shared pointer to the Runtime they were made with, so a program can
// change its machine while earlier objects live on. All members are safe to call from several threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "driver/driver.hpp"

namespace stf_places {

class Partitions;

struct RuntimeSettings {
  bool sync_each_task = false;  // STF_PLACES_SYNC=1: wait after each task, to name the culprit of a fault
  bool check_streams = false;   // STF_PLACES_CHECK=1: ask the default streams at each task's end
};

class Runtime {
 public:
  Runtime(std::shared_ptr<Driver> driver, RuntimeSettings settings);
  ~Runtime();

  Driver& driver() const { return *driver_; }
  bool simulated() const { return simulated_; }
  const RuntimeSettings& settings() const { return settings_; }

  int device_count() const { return static_cast<int>(devices_.size()); }
  // Throws InvalidDevice, naming how many devices there are.
  void check_device(int device) const;
  // The primary context, retained at the first call for that device.
  ContextHandle primary(int device);
  // The device of the current context; 0 when none is current.
  int current_device();
  // Whether copies between two devices go directly; access is enabled at the first call. Throws on failure.
  bool peers(int a, int b);

  // The SM partitions of this machine.
  Partitions& partitions() { return *partitions_; }

  // Pinned memory that work on `stream` may still use: freed at a later call, once the event has completed.
  void retire_host_memory(EventHandle event, std::vector<Address> blocks);

 private:
  struct Device {
    std::atomic<ContextHandle> primary{0};
    std::vector<std::atomic<signed char>> peer;  // -1 unknown, else 0 or 1
  };
  struct Retired {
    EventHandle event;
    std::vector<Address> blocks;
  };

  std::shared_ptr<Driver> driver_;
  RuntimeSettings settings_;
  bool simulated_;
  std::vector<Device> devices_;
  std::mutex retired_mutex_;
  std::vector<Retired> retired_;
  std::unique_ptr<Partitions> partitions_;
};

}  // namespace stf_places
