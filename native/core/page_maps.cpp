#include "core/page_maps.hpp"

#include <algorithm>
#include <string>

#include "core/runtime.hpp"

namespace stf_places {

PageMap::PageMap(std::vector<PagePiece> pieces, std::vector<int> devices)
    : pieces_(std::move(pieces)), devices_(std::move(devices)), hash_(pieces_.size()) {
  const auto mix = [this](std::size_t value) { hash_ = hash_ * 1000003u ^ value; };
  for (int device : devices_) mix(static_cast<std::size_t>(device));
  for (const PagePiece& piece : pieces_) {
    mix(static_cast<std::size_t>(piece.device));
    mix(piece.offset);
    mix(piece.nbytes);
  }
}

bool PageMap::used_by(int device) const {
  return std::binary_search(devices_.begin(), devices_.end(), device);
}

std::size_t PageMap::bytes_on(int device) const {
  std::size_t nbytes = 0;
  for (const PagePiece& piece : pieces_) nbytes += piece.device == device ? piece.nbytes : 0;
  return nbytes;
}

const PagePiece& PageMap::at(std::size_t offset) const {
  auto behind =
      std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                       [](std::size_t byte, const PagePiece& piece) { return byte < piece.offset; });
  return *std::prev(behind);
}

const PageMap* PageMaps::keep(PageMap map) {
  std::lock_guard lock(mutex_);
  auto [first, last] = known_.equal_range(map.hash());
  for (auto at = first; at != last; ++at) {
    if (*at->second == map) return at->second.get();
  }
  const std::size_t hash = map.hash();
  return known_.emplace(hash, std::make_unique<const PageMap>(std::move(map)))->second.get();
}

void require_peers(Runtime& runtime, std::span<const int> devices) {
  for (int device : devices) {
    for (int other : devices) {
      runtime.check_device(device);
      runtime.check_device(other);
      if (runtime.peers(device, other)) continue;
      throw Error(ErrorKind::partition,
                  "the devices of a composite data place reach each other's memory: device " +
                      std::to_string(device) + " cannot reach that of device " + std::to_string(other) +
                      "; leave one of them out, or split the data into one logical data a device");
    }
  }
}

std::size_t page_size(Runtime& runtime, std::span<const int> devices) {
  std::size_t page = 1;
  for (int device : devices) {
    runtime.check_device(device);
    std::size_t own = 0;
    runtime.driver().page_granularity(device, &own).check();
    page = std::max(page, own);  // powers of two
  }
  return page;
}

DataPlace place_of_pages(Runtime& runtime, std::span<const PageRun> runs, std::span<const int> devices,
                         std::size_t page) {
  std::vector<int> users(devices.begin(), devices.end());
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  require_peers(runtime, users);
  std::vector<PagePiece> pieces;
  for (const PageRun& run : runs) {
    const int device = devices[static_cast<std::size_t>(run.place)];
    const std::size_t nbytes = static_cast<std::size_t>(run.count) * page;
    if (!pieces.empty() && pieces.back().device == device) {
      pieces.back().nbytes += nbytes;
    } else {
      pieces.push_back({device, static_cast<std::size_t>(run.first) * page, nbytes});
    }
  }
  if (pieces.size() == 1) return DataPlace::on(pieces.front().device);
  return DataPlace::over(runtime.page_maps().keep(PageMap(std::move(pieces), std::move(users))));
}

}  // namespace stf_places
