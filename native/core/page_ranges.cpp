#include "core/page_ranges.hpp"

#include <algorithm>

namespace stf_places {

PageRanges::~PageRanges() {
  for (const Range& range : kept_) unmap(*range.map, range.address, range.map->nbytes());
}

Status PageRanges::take(const PageMap& map, Address* out) {
  {
    std::lock_guard lock(mutex_);
    auto found =
        std::find_if(kept_.rbegin(), kept_.rend(), [&](const Range& kept) { return kept.map == &map; });
    if (found != kept_.rend()) {
      *out = found->address;
      used_[*out] = std::move(*found);
      kept_.erase(std::next(found).base());
      return {};
    }
  }
  Address address = 0;
  if (Status status = map_all(map, &address); !status) return status;
  std::lock_guard lock(mutex_);
  used_[address] = {&map, address, {}};
  *out = address;
  return {};
}

bool PageRanges::give(const PageMap& map, Address address) {
  std::lock_guard lock(mutex_);
  auto found = used_.find(address);
  if (found == used_.end() || found->second.map != &map) return false;
  kept_.push_back(std::move(found->second));
  used_.erase(found);
  return true;
}

Status PageRanges::let(const PageMap& map, Address address, int device) {
  if (map.used_by(device)) return {};
  const auto known = [&](const Range& range) {
    return std::find(range.guests.begin(), range.guests.end(), device) != range.guests.end();
  };
  {
    std::lock_guard lock(mutex_);
    auto found = used_.find(address);
    if (found == used_.end() || known(found->second)) return {};
  }
  if (Status status = driver_.grant_access(address, map.nbytes(), {&device, 1}); !status) return status;
  std::lock_guard lock(mutex_);
  auto found = used_.find(address);
  if (found != used_.end() && !known(found->second)) found->second.guests.push_back(device);
  return {};
}

std::size_t PageRanges::release(int device) {
  std::vector<Range> released;
  {
    std::lock_guard lock(mutex_);
    auto first = std::partition(kept_.begin(), kept_.end(),
                                [&](const Range& kept) { return kept.map->bytes_on(device) == 0; });
    released.assign(first, kept_.end());
    kept_.erase(first, kept_.end());
  }
  std::size_t freed = 0;
  for (const Range& range : released) {
    unmap(*range.map, range.address, range.map->nbytes());
    freed += range.map->bytes_on(device);
  }
  return freed;
}

Status PageRanges::map_all(const PageMap& map, Address* out) {
  Address address = 0;
  if (Status status = driver_.reserve_pages(map.nbytes(), &address); !status) return status;
  Status status;
  std::size_t mapped = 0;
  for (const PagePiece& piece : map.pieces()) {
    status = driver_.map_pages(address + piece.offset, piece.nbytes, piece.device);
    if (!status) break;
    mapped += piece.nbytes;
  }
  if (status) status = driver_.grant_access(address, map.nbytes(), map.devices());
  if (!status) {
    unmap(map, address, mapped);
    return status;
  }
  *out = address;
  return {};
}

// `mapped`: bytes from the start that have memory.
void PageRanges::unmap(const PageMap& map, Address address, std::size_t mapped) {
  if (mapped != 0) driver_.unmap_pages(address, mapped).ignore();
  driver_.release_pages(address, map.nbytes()).ignore();
}

}  // namespace stf_places
