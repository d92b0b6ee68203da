#include "core/runtime.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/page_maps.hpp"
#include "core/page_ranges.hpp"
#include "core/partitions.hpp"

namespace stf_places {

namespace {
int count_devices(Driver& driver) {
  int count = 0;
  driver.device_count(&count).check();
  return count;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}
}  // namespace

Runtime::Runtime(std::shared_ptr<Driver> driver, RuntimeSettings settings)
    : driver_(std::move(driver)),
      settings_(settings),
      simulated_(driver_->simulated()),
      devices_(static_cast<std::size_t>(count_devices(*driver_))),
      partitions_(std::make_unique<Partitions>(driver_)),
      page_maps_(std::make_unique<PageMaps>()),
      page_ranges_(std::make_unique<PageRanges>(*driver_)),
      number_(next_number()) {
  for (Device& device : devices_) {
    device.peer = std::vector<std::atomic<signed char>>(devices_.size());
    for (auto& known : device.peer) known.store(-1, std::memory_order_relaxed);
  }
}

Runtime::~Runtime() {
  for (auto& [event, memory] : retired_) {
    driver_->synchronize_event(event, {}).ignore();
    give_back(memory).ignore();
    driver_->destroy_event(event).ignore();
  }
}

void Runtime::check_device(int device) const {
  if (device >= 0 && device < device_count()) return;
  const std::string last = std::to_string(device_count() - 1);
  throw Error(ErrorKind::invalid_device,
              "device " + std::to_string(device) + " does not exist: this machine (" +
                  std::string(driver_->machine()) + ") has " + std::to_string(device_count()) +
                  " device(s), ordinals 0 to " + last);
}

ContextHandle Runtime::primary(int device) {
  check_device(device);
  auto& slot = devices_[static_cast<std::size_t>(device)].primary;
  ContextHandle context = slot.load(std::memory_order_acquire);
  if (context == 0) {
    driver_->primary_context(device, &context).check();
    slot.store(context, std::memory_order_release);
  }
  return context;
}

int Runtime::current_device() {
  ContextHandle context = 0;
  driver_->current_context(&context).check();
  if (context == 0) return 0;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].primary.load(std::memory_order_acquire) == context) return static_cast<int>(i);
  }
  int device = 0;
  driver_->context_device(context, &device).check();
  return device;
}

bool Runtime::peers(int a, int b) {
  if (a == b) return true;
  auto& known = devices_[static_cast<std::size_t>(a)].peer[static_cast<std::size_t>(b)];
  signed char answer = known.load(std::memory_order_acquire);
  if (answer < 0) {
    Link link;
    driver_->link(a, b, &link).check();
    answer = link.peer ? 1 : 0;
    if (link.peer) driver_->enable_peer_access(a, b).check();
    known.store(answer, std::memory_order_release);
  }
  return answer == 1;
}

Status Runtime::give_back(const Retired& memory) {
  Status failure;
  for (Address block : memory.host_blocks) {
    Status status = driver_->free_host(block);
    if (!status) failure = std::move(status);
  }
  for (const auto& [map, address] : memory.ranges) page_ranges_->give(*map, address);
  for (GraphExecHandle exec : memory.execs) driver_->destroy_graph_exec(exec).ignore();
  return failure;
}

void Runtime::retire(EventHandle event, Retired memory) {
  collect_retired();
  std::lock_guard lock(retired_mutex_);
  retired_.emplace_back(event, std::move(memory));
}

void Runtime::collect_retired() {
  decltype(retired_) done;
  {
    std::lock_guard lock(retired_mutex_);
    decltype(retired_) waiting;
    for (auto& retired : retired_) {
      (driver_->query_event(retired.first).ok() ? done : waiting).push_back(std::move(retired));
    }
    retired_ = std::move(waiting);
  }
  for (const auto& [event, memory] : done) {
    give_back(memory).ignore();
    driver_->destroy_event(event).ignore();
  }
}

void Runtime::reclaim(int device) {
  collect_retired();
  decltype(retired_) wanted;
  {
    std::lock_guard lock(retired_mutex_);
    const auto elsewhere = [&](const auto& retired) {
      const auto& ranges = retired.second.ranges;
      return std::none_of(ranges.begin(), ranges.end(),
                          [&](const auto& range) { return range.first->bytes_on(device) != 0; });
    };
    auto first = std::stable_partition(retired_.begin(), retired_.end(), elsewhere);
    std::move(first, retired_.end(), std::back_inserter(wanted));
    retired_.erase(first, retired_.end());
  }
  for (const auto& [event, memory] : wanted) {
    driver_->synchronize_event(event, {}).ignore();
    give_back(memory).ignore();
    driver_->destroy_event(event).ignore();
  }
}

}  // namespace stf_places
