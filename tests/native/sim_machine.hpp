// Simulated machines and shorthand for their tests.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "driver/sim/sim_driver.hpp"

namespace stf_places::sim::testing {

inline constexpr Location host{Location::Kind::host, -1};
inline constexpr Location on(int device) { return {Location::Kind::device, device}; }

// The figures of machine file h200x<devices>.
inline MachineSpec h200(int devices) {
  MachineSpec spec;
  spec.name = "h200x" + std::to_string(devices);
  spec.costs = {0.26, 0.21, 3.9, 2.5, 2.5, 2.7, 1.5, 12.0, 0.5, 1500, 14, 8.5, 50};
  for (int i = 0; i < devices; ++i) {
    spec.devices.push_back(
        {"NVIDIA H200 (simulated)", 132, 9, 0, 8, 8, 120, 2, std::size_t{143771} << 20, 2142, 3});
    spec.links.push_back({-1, i, false, 55, 5});
    spec.links.push_back({i, -1, false, 55, 5});
    for (int j = 0; j < devices; ++j) {
      if (i != j) spec.links.push_back({i, j, true, 397, 3});
    }
  }
  return spec;
}

inline MachineSpec tiny() {
  MachineSpec spec = h200(2);
  spec.name = "tiny";
  for (DeviceSpec& device : spec.devices) {
    device.sm_count = device.aligned_sms = 16;
    device.memory = 64 << 20;
    device.page = 4096;
  }
  return spec;
}

struct Bench {
  std::shared_ptr<SimDriver> driver;

  explicit Bench(const MachineSpec& spec = tiny(), const Options& options = {}) {
    CHECK_OK(make_sim_driver(spec, options, &driver));
  }
  SimDriver* operator->() const { return driver.get(); }

  StreamHandle stream(int device = 0, int priority = 0) const {
    ContextHandle context = 0;
    StreamHandle made = 0;
    CHECK_OK(driver->primary_context(device, &context));
    CHECK_OK(driver->create_stream(context, priority, &made));
    return made;
  }
  EventHandle event(int device = 0, bool timing = false) const {
    ContextHandle context = 0;
    EventHandle made = 0;
    CHECK_OK(driver->primary_context(device, &context));
    CHECK_OK(driver->create_event(context, timing, &made));
    return made;
  }
  Address memory(std::size_t nbytes, StreamHandle on_stream, int device = 0) const {
    Address made = 0;
    CHECK_OK(driver->allocate_device(device, nbytes, on_stream, &made));
    return made;
  }
  // `later` waits for what `earlier` holds now.
  void order(StreamHandle earlier, StreamHandle later, int device = 0) const {
    const EventHandle between = event(device);
    CHECK_OK(driver->record_event(between, earlier));
    CHECK_OK(driver->wait_event(later, between));
    CHECK_OK(driver->destroy_event(between));
  }
  Status work(StreamHandle stream_handle, std::string_view symbol, std::initializer_list<Access> accesses,
              double cost_us = 1) const {
    const std::vector<Access> list(accesses);
    return driver->host_work(stream_handle, nullptr, nullptr, nullptr, Work{symbol, cost_us, 1, 1, list});
  }
  Status busy(StreamHandle stream_handle, double cost_us, int sms, int waves = 1) const {
    return driver->host_work(stream_handle, nullptr, nullptr, nullptr, Work{"busy", cost_us, sms, waves, {}});
  }
  Status wait(StreamHandle stream_handle) const { return driver->synchronize_stream(stream_handle, {}); }
};

// A reserved range; pieces are mapped into it by offset.
struct Pages {
  const Bench& machine;
  std::size_t nbytes;
  Address address = 0;

  Pages(const Bench& on_machine, std::size_t of_nbytes) : machine(on_machine), nbytes(of_nbytes) {
    CHECK_OK(machine->reserve_pages(nbytes, &address));
  }
  Status map(std::size_t offset, std::size_t size, int device) const {
    return machine->map_pages(address + offset, size, device);
  }
  Status unmap(std::size_t offset, std::size_t size) const {
    return machine->unmap_pages(address + offset, size);
  }
  Status grant(std::size_t offset, std::size_t size, std::initializer_list<int> devices) const {
    return machine->grant_access(address + offset, size, {devices.begin(), devices.size()});
  }
  // Pieces of `size` over the whole range, on devices 0 and 1 in turn, for both to reach.
  void alternate(std::size_t size) const {
    for (std::size_t i = 0; i * size < nbytes; ++i) CHECK_OK(map(i * size, size, static_cast<int>(i % 2)));
    CHECK_OK(grant(0, nbytes, {0, 1}));
  }
};

// A device's SMs, split into as many groups of `sm_count` as fit.
struct Cut {
  std::vector<SmResource> groups;
  SmResource left;

  Cut(const Bench& machine, int sm_count, int device = 0) {
    SmResource whole;
    CHECK_OK(machine->device_sms(device, &whole));
    CHECK_OK(machine->split_sms(whole, sm_count, 0, false, &groups, &left));
  }
};

inline ContextHandle context_of(const Bench& machine, const std::vector<SmResource>& sms, int device = 0) {
  ContextHandle made = 0;
  CHECK_OK(machine->create_green_context(device, sms, nullptr, &made));
  return made;
}

inline StreamHandle stream_of(const Bench& machine, ContextHandle context, int priority = 0) {
  StreamHandle made = 0;
  CHECK_OK(machine->create_stream(context, priority, &made));
  return made;
}

inline Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

}  // namespace stf_places::sim::testing
