// Page-mapped memory, and what its way over links is counted as.
#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

Status Machine::page_granularity(int device, std::size_t* out) {
  constexpr const char* call = "page_granularity";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  *out = memory_.page(device);
  return {};
}

Status Machine::reserve_pages(std::size_t nbytes, Address* out) {
  constexpr const char* call = "reserve_pages";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  return memory_.reserve(call, nbytes, out);
}

Status Machine::release_pages(Address address, std::size_t nbytes) {
  constexpr const char* call = "release_pages";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = memory_.release(call, address, nbytes); !status) return status;
  unreclaimed_.push_back({nullptr, sequence_, address, nbytes});
  reclaim_released();
  return {};
}

Status Machine::map_pages(Address address, std::size_t nbytes, int device) {
  constexpr const char* call = "map_pages";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  if (Status status = find_device(call, device); !status) return status;
  if (Status status = memory_.can_map(call, address, nbytes, device); !status) return status;
  if (Status status = strike_at_call(call, FaultKind::allocation, device); !status) return status;
  if (Status status = make_room(lock, call, device, nbytes); !status) return status;
  if (Status status = memory_.map(call, address, nbytes, device); !status) return status;
  now_ += spec_.costs.page_map;
  return {};
}

Status Machine::unmap_pages(Address address, std::size_t nbytes) {
  constexpr const char* call = "unmap_pages";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  std::vector<Allocation*> pieces;
  if (Status status = memory_.pieces(call, address, nbytes, &pieces); !status) return status;
  for (Allocation* piece : pieces) {
    if (options_.check_conflicts) races_.host_free(piece->shadow, piece->address, piece->owner(), "unmaps");
    memory_.unmap(piece);
    now_ += spec_.costs.page_map;
  }
  return {};
}

Status Machine::grant_access(Address address, std::size_t nbytes, std::span<const int> devices) {
  constexpr const char* call = "grant_access";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  for (const int device : devices) {
    if (Status status = find_device(call, device); !status) return status;
  }
  std::vector<Allocation*> pieces;
  if (Status status = memory_.pieces(call, address, nbytes, &pieces); !status) return status;
  for (const Allocation* piece : pieces) {
    const int owner = piece->where.device;
    for (const int device : devices) {
      const int index = device == owner ? -1 : link_index(device, owner);
      if (device == owner || (index >= 0 && spec_.links[index].peer)) continue;
      return fail(Code::not_supported, call,
                  "device " + std::to_string(device) + " cannot reach the memory of device " +
                      std::to_string(owner) + " on machine '" + spec_.name + "': " + piece->name(),
                  device);
    }
  }
  for (Allocation* piece : pieces) {
    for (const int device : devices) piece->reachable[device] = true;
    const auto pages = static_cast<double>(piece->nbytes / memory_.page(piece->where.device));
    now_ += spec_.costs.piece_access + spec_.costs.page_access * pages;
  }
  return {};
}

std::vector<LinkTraffic> Machine::link_traffic() const {
  const Lock lock(mutex_);
  const int count = static_cast<int>(spec_.devices.size());
  std::vector<LinkTraffic> found;
  for (int from = -1; from < count; ++from) {
    for (int to = -1; to < count; ++to) {
      const std::uint64_t nbytes = traffic_[(from + 1) * (count + 1) + to + 1];
      if (nbytes != 0) found.push_back({from, to, nbytes});
    }
  }
  return found;
}

}  // namespace stf_places::sim
