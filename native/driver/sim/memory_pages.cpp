// Memory: reserved ranges and the pages that are mapped into them.
#include <algorithm>
#include <utility>

#include "failures.hpp"
#include "memory.hpp"

namespace stf_places::sim {

namespace {

std::string offset_in(const Range& range, Address address) {
  return "offset " + std::to_string(address - range.address) + " of range #" + std::to_string(range.id);
}

std::string name_of(const Range& range) {
  return "range #" + std::to_string(range.id) + " of " + std::to_string(range.nbytes) + " bytes at " +
         hexadecimal(range.address);
}

}  // namespace

// ---- Ranges ----

std::size_t Memory::coarsest_page() const { return *std::max_element(page_.begin(), page_.end()); }

// For pages of any device: it is not known yet whose come there.
Status Memory::reserve(const char* call, std::size_t nbytes, Address* out) {
  const std::size_t page = coarsest_page();
  if (nbytes == 0 || nbytes % page != 0) {
    return refuse(call,
                  "a range is a positive multiple of the page granularity, " + std::to_string(page) +
                      " bytes: got " + std::to_string(nbytes),
                  -1);
  }
  const Address address = arena_.take(nbytes, page);
  if (address == 0) {
    return fail(Code::out_of_memory, call,
                "this process has no address space left for a range of " + std::to_string(nbytes) +
                    " bytes; a machine with execute=False needs none");
  }
  forget_freed(address, address + nbytes);
  ranges_.emplace(address, Range{++last_range_id_, address, nbytes});
  *out = address;
  return {};
}

Status Memory::release(const char* call, Address address, std::size_t nbytes) {
  const Range* range = range_at(address);
  if (range == nullptr) return refuse(call, "no range is reserved at " + hexadecimal(address), -1);
  if (address != range->address || nbytes != range->nbytes) {
    return refuse(call,
                  "a range is released as a whole: got " + std::to_string(nbytes) + " bytes from " +
                      offset_in(*range, address) + "; " + name_of(*range) + " would work",
                  -1);
  }
  const auto piece = live_.lower_bound(address);
  if (piece != live_.end() && piece->first < range->end()) {
    return refuse(call, piece->second->name() + " is still mapped; unmap_pages comes first",
                  piece->second->where.device);
  }
  ranges_.erase(address);
  return {};
}

void Memory::give_back(Address address, std::size_t nbytes) { arena_.give(address, nbytes, coarsest_page()); }

const Range* Memory::range_at(Address address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  return address < range.end() ? &range : nullptr;
}

Status Memory::find_range(const char* call, Address address, std::size_t nbytes, const Range** out) const {
  const Range* range = range_at(address);
  if (range == nullptr) {
    return refuse(call, hexadecimal(address) + " lies in no reserved range; reserve_pages makes one", -1);
  }
  if (nbytes == 0 || nbytes > range->end() - address) {
    return refuse(call,
                  "pages lie within one range, 1 to " + std::to_string(range->end() - address) +
                      " bytes from " + offset_in(*range, address) + ": got " + std::to_string(nbytes),
                  -1);
  }
  *out = range;
  return {};
}

// ---- Pieces ----

Status Memory::can_map(const char* call, Address address, std::size_t nbytes, int device) const {
  const Range* range = nullptr;
  if (Status status = find_range(call, address, nbytes, &range); !status) return status;
  const std::size_t page = page_[device];
  if ((address - range->address) % page != 0 || nbytes % page != 0) {
    return refuse(call,
                  "offsets and sizes of pages are multiples of the granularity of device " +
                      std::to_string(device) + ", " + std::to_string(page) + " bytes: got " +
                      std::to_string(nbytes) + " bytes at " + offset_in(*range, address),
                  device);
  }
  const auto behind = live_.lower_bound(address + nbytes);
  if (behind != live_.begin() && std::prev(behind)->second->end() > address) {
    return refuse(call,
                  std::to_string(nbytes) + " bytes at " + offset_in(*range, address) + " overlap mapped " +
                      std::prev(behind)->second->name() + "; unmap_pages makes room",
                  device);
  }
  return {};
}

Status Memory::map(const char* call, Address address, std::size_t nbytes, int device) {
  if (Status status = can_map(call, address, nbytes, device); !status) return status;
  if (!has_room(device, nbytes)) return no_room(call, device, nbytes);
  // Also here, since work that was not waited for could have written after unmap().
  arena_.discard(address, nbytes);
  forget_freed(address, address + nbytes);
  const Location where{Location::Kind::device, device};
  auto piece = std::make_unique<Allocation>(Allocation{++last_id_, address, nbytes, where, {}});
  piece->range = range_at(address);
  piece->reachable.assign(total_.size(), false);
  live_.emplace(address, std::move(piece));
  used_[device] += nbytes;
  return {};
}

Status Memory::pieces(const char* call, Address address, std::size_t nbytes,
                      std::vector<Allocation*>* out) const {
  const Range* range = nullptr;
  if (Status status = find_range(call, address, nbytes, &range); !status) return status;
  std::vector<Allocation*> found;
  for (Address at = address; at < address + nbytes; at = found.back()->end()) {
    Allocation* piece = containing(at);
    if (piece == nullptr) return refuse(call, "no pages are mapped at " + offset_in(*range, at), -1);
    if (piece->address != at || piece->end() > address + nbytes) {
      return refuse(call,
                    "pages are named by whole pieces, as they were mapped: got " + std::to_string(nbytes) +
                        " bytes at " + offset_in(*range, address) + ", a part of " + piece->name(),
                    piece->where.device);
    }
    found.push_back(piece);
  }
  *out = std::move(found);
  return {};
}

void Memory::unmap(Allocation* piece) {
  if (last_hit_ == piece) last_hit_ = nullptr;
  uncount(piece);
  remember_freed(*piece);
  arena_.discard(piece->address, piece->nbytes);
  live_.erase(piece->address);
}

Allocation* Memory::next(const Allocation* piece) const {
  if (piece->range == nullptr) return nullptr;
  const auto behind = live_.find(piece->end());
  if (behind == live_.end() || behind->second->range != piece->range) return nullptr;
  return behind->second.get();
}

Status Memory::reaches(const char* call, int device, const Allocation* first, Address end) const {
  if (first == nullptr || first->range == nullptr) return {};
  for (const Allocation* piece = first; piece != nullptr && piece->address < end; piece = next(piece)) {
    if (piece->reachable[device]) continue;
    const std::string number = std::to_string(device);
    return refuse(call,
                  "device " + number + " has no access to " + piece->name() + "; grant_access(" +
                      hexadecimal(piece->address) + ", " + std::to_string(piece->nbytes) + ", {" + number +
                      "}) gives it",
                  device);
  }
  return {};
}

}  // namespace stf_places::sim
