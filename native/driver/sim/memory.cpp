#include "memory.hpp"

#include "failures.hpp"

namespace stf_places::sim {

namespace {

constexpr std::size_t freed_limit = 4096;  // freed ranges whose names are remembered

std::string bytes_at(Address address, std::size_t nbytes) {
  return std::to_string(nbytes) + " bytes at " + hexadecimal(address);
}

// Managed memory can be named by any location, other memory only by its own.
bool agrees(const Location& said, const Location& is) {
  if (is.kind == Location::Kind::managed) return true;
  return said.kind == is.kind && (said.kind != Location::Kind::device || said.device == is.device);
}

}  // namespace

std::string Allocation::owner() const {
  if (range == nullptr) return "allocation #" + std::to_string(id) + " " + text_of(where);
  return "pages of range #" + std::to_string(range->id) + " [" + std::to_string(address - range->address) +
         ", " + std::to_string(end() - range->address) + ") " + text_of(where);
}

std::string Allocation::name() const {
  if (range != nullptr) return owner();
  return "allocation #" + std::to_string(id) + " of " + std::to_string(nbytes) + " bytes " + text_of(where);
}

Memory::Memory(const MachineSpec& spec, bool backed) : used_(spec.devices.size(), 0), arena_(backed) {
  for (const DeviceSpec& device : spec.devices) {
    total_.push_back(device.memory);
    page_.push_back(device.page);
  }
}

Status Memory::refuse(const char* call, std::string detail, int device) const {
  return fail(Code::invalid_value, call, std::move(detail), device);
}

Status Memory::no_room(const char* call, int device, std::size_t nbytes) const {
  return fail(Code::out_of_memory, call,
              "device " + std::to_string(device) + " has no room: requested " + std::to_string(nbytes) +
                  " bytes, free " + std::to_string(total_[device] - used_[device]) + " of " +
                  std::to_string(total_[device]) + " bytes",
              device);
}

Status Memory::allocate(const char* call, Location where, std::size_t nbytes, Allocation** out) {
  if (nbytes == 0) return refuse(call, "an allocation needs at least 1 byte: got 0", where.device);
  const bool on_device = where.kind == Location::Kind::device;
  if (on_device && !has_room(where.device, nbytes)) return no_room(call, where.device, nbytes);
  const Address address = arena_.take(nbytes);
  if (address == 0) {
    return fail(Code::out_of_memory, call,
                "this process has no address space left for " + std::to_string(nbytes) +
                    " bytes of simulated memory; a machine with execute=False needs none",
                where.device);
  }
  forget_freed(address, address + nbytes);
  auto allocation = std::make_unique<Allocation>(Allocation{++last_id_, address, nbytes, where, {}});
  *out = allocation.get();
  live_.emplace(address, std::move(allocation));
  if (on_device) used_[where.device] += nbytes;
  return {};
}

Allocation* Memory::containing(Address address) const {
  if (last_hit_ != nullptr && address >= last_hit_->address && address < last_hit_->end()) return last_hit_;
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return nullptr;
  Allocation* allocation = std::prev(after)->second.get();
  if (address >= allocation->end()) return nullptr;
  return last_hit_ = allocation;
}

const Memory::Freed* Memory::freed(Address address) const {
  auto after = freed_.upper_bound(address);
  if (after == freed_.begin()) return nullptr;
  const Freed& range = std::prev(after)->second;
  return address < range.end ? &range : nullptr;
}

Status Memory::resolve(const char* call, Address address, std::size_t nbytes, const Location* expected,
                       Allocation** out) const {
  Allocation* allocation = containing(address);
  if (allocation == nullptr) {
    if (!arena_.owns(address) && (expected == nullptr || expected->kind == Location::Kind::host)) {
      *out = nullptr;
      return {};
    }
    return unknown(call, address, nbytes, expected);
  }
  if (nbytes > allocation->end() - address) {
    if (Status status = resolve_span(call, address, nbytes, expected, allocation); !status) return status;
  }
  if (expected != nullptr && !agrees(*expected, allocation->where)) {
    return disagrees(call, *allocation, *expected);
  }
  *out = allocation;
  return {};
}

// What lies behind the end of `first`.
Status Memory::resolve_span(const char* call, Address address, std::size_t nbytes, const Location* expected,
                            const Allocation* first) const {
  const Allocation* last = first;
  while (nbytes > last->end() - address) {
    const Allocation* behind = next(last);
    if (behind == nullptr) {
      return refuse(call,
                    "out of bounds: " + std::to_string(nbytes) + " bytes from offset " +
                        std::to_string(address - first->address) + " reach past the end of " + last->name(),
                    last->where.device);
    }
    if (expected != nullptr && !agrees(*expected, behind->where)) return disagrees(call, *behind, *expected);
    last = behind;
  }
  return {};
}

Status Memory::disagrees(const char* call, const Allocation& allocation, const Location& said) const {
  return refuse(call, allocation.name() + " was said to lie " + text_of(said), allocation.where.device);
}

Status Memory::unknown(const char* call, Address address, std::size_t nbytes,
                       const Location* expected) const {
  if (const Freed* range = freed(address)) {
    const char* what = range->pages ? "use after unmap: " : "use after free: ";
    const char* state = range->pages ? " lie in unmapped " : " lie in freed ";
    return refuse(call, what + bytes_at(address, nbytes) + state + range->name, -1);
  }
  if (const Range* range = range_at(address)) {
    return refuse(call,
                  bytes_at(address, nbytes) + " lie at offset " + std::to_string(address - range->address) +
                      " of range #" + std::to_string(range->id) +
                      ", where no pages are mapped; map_pages and grant_access come first",
                  -1);
  }
  std::string detail = bytes_at(address, nbytes) + " belong to no allocation of this machine";
  if (expected != nullptr) detail += ", but were said to lie " + text_of(*expected);
  return refuse(call, std::move(detail), expected == nullptr ? -1 : expected->device);
}

Status Memory::owned(const char* call, Address address, Location where, Allocation** out) const {
  Allocation* allocation = containing(address);
  if (allocation == nullptr) {
    if (const Freed* range = freed(address))
      return refuse(call, "double free of " + range->name, where.device);
    return refuse(call, hexadecimal(address) + " is no allocation of this machine", where.device);
  }
  if (allocation->range != nullptr) {
    return refuse(call, allocation->name() + " is given back by unmap_pages", where.device);
  }
  if (address != allocation->address) {
    return refuse(call,
                  "a free needs the first address of an allocation: got offset " +
                      std::to_string(address - allocation->address) + " of " + allocation->name(),
                  where.device);
  }
  const bool same_device = where.kind != Location::Kind::device || where.device == allocation->where.device;
  if (where.kind != allocation->where.kind || !same_device) {
    return refuse(call, "wrong place: " + allocation->name() + " was freed as memory " + text_of(where),
                  where.device);
  }
  *out = allocation;
  return {};
}

void Memory::retire(Allocation* allocation) {
  if (last_hit_ == allocation) last_hit_ = nullptr;
  auto at = live_.find(allocation->address);
  remember_freed(*allocation);
  allocation->shadow.clear();
  retired_.emplace(allocation->id, std::move(at->second));
  live_.erase(at);
}

void Memory::uncount(const Allocation* allocation) {
  if (allocation->where.kind == Location::Kind::device) used_[allocation->where.device] -= allocation->nbytes;
}

void Memory::reclaim(Allocation* allocation) {
  arena_.give(allocation->address, allocation->nbytes);
  retired_.erase(allocation->id);
}

void Memory::remember_freed(const Allocation& allocation) {
  forget_freed(allocation.address, allocation.end());
  freed_.emplace(allocation.address, Freed{allocation.end(), allocation.name(), allocation.range != nullptr});
  freed_order_.push_back(allocation.address);
  while (freed_order_.size() > freed_limit) {
    freed_.erase(freed_order_.front());
    freed_order_.pop_front();
  }
}

void Memory::forget_freed(Address begin, Address end) {
  auto at = freed_.upper_bound(begin);
  if (at != freed_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != freed_.end() && at->first < end) at = freed_.erase(at);
}

}  // namespace stf_places::sim
