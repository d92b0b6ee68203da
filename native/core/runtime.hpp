// A driver together with what is asked of it once: primary contexts, peers, settings.
//
// Contexts, arrays and streams hold a shared pointer to the Runtime they were made with, so a program can
// change its machine while earlier objects live on. All members are safe to call from several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/driver.hpp"

namespace stf_places {

class PageMap;
class PageMaps;
class PageRanges;
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

  // Page-mapped memory of this machine.
  PageMaps& page_maps() { return *page_maps_; }
  PageRanges& page_ranges() { return *page_ranges_; }

  // Memory that work may still use until an event: given back at a later call, once the event has completed.
  struct Retired {
    std::vector<Address> host_blocks;  // pinned
    std::vector<std::pair<const PageMap*, Address>> ranges;
    std::vector<GraphExecHandle> execs;
  };
  void retire(EventHandle event, Retired memory);
  // At once: nobody uses it. The status of the last block that could not be freed.
  Status give_back(const Retired& memory);
  // Gives back what has been retired and is complete; contexts call it now and then.
  void collect_retired();
  // Waits for what has been retired and lies on a device, since that is short of room.
  void reclaim(int device);

  // Tells apart the tasks that have several parts, among those of all contexts; never 0.
  std::uint64_t next_whole() { return ++wholes_; }
  // Tells this machine apart from all others of the process, also from those that are gone.
  std::uint64_t number() const { return number_; }

 private:
  struct Device {
    std::atomic<ContextHandle> primary{0};
    std::vector<std::atomic<signed char>> peer;  // -1 unknown, else 0 or 1
  };
  std::shared_ptr<Driver> driver_;
  RuntimeSettings settings_;
  bool simulated_;
  std::vector<Device> devices_;
  std::mutex retired_mutex_;
  std::vector<std::pair<EventHandle, Retired>> retired_;
  std::unique_ptr<Partitions> partitions_;
  std::unique_ptr<PageMaps> page_maps_;
  std::unique_ptr<PageRanges> page_ranges_;
  std::atomic<std::uint64_t> wholes_{0};
  std::uint64_t number_;
};

}  // namespace stf_places
