// How bytes lie over devices, page by page: what a composite data place is for memory of one size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/layouts.hpp"
#include "core/places.hpp"

namespace stf_places {

class Runtime;

// Neighbouring pages of one device.
struct PagePiece {
  int device = -1;
  std::size_t offset = 0;  // bytes
  std::size_t nbytes = 0;
  bool operator==(const PagePiece&) const = default;
};

class PageMap {
 public:
  // `pieces`: one behind the other from offset 0, neighbours of different devices. `devices`: all that use
  // the memory, owners included, in ascending order.
  PageMap(std::vector<PagePiece> pieces, std::vector<int> devices);

  const std::vector<PagePiece>& pieces() const { return pieces_; }
  const std::vector<int>& devices() const { return devices_; }
  std::size_t nbytes() const { return pieces_.back().offset + pieces_.back().nbytes; }
  bool used_by(int device) const;
  std::size_t bytes_on(int device) const;
  // The piece that has a byte.
  const PagePiece& at(std::size_t offset) const;
  // Calls visit(offset, bytes, device) -> Status for each part of a range, until one fails.
  template <class Visit>
  Status each(std::size_t offset, std::size_t nbytes, Visit visit) const {
    for (const std::size_t end = offset + nbytes; offset < end;) {
      const PagePiece& piece = at(offset);
      const std::size_t stop = std::min(end, piece.offset + piece.nbytes);
      if (Status status = visit(offset, stop - offset, piece.device); !status) return status;
      offset = stop;
    }
    return {};
  }
  std::size_t hash() const { return hash_; }
  bool operator==(const PageMap& other) const {
    return hash_ == other.hash_ && devices_ == other.devices_ && pieces_ == other.pieces_;
  }

 private:
  std::vector<PagePiece> pieces_;
  std::vector<int> devices_;
  std::size_t hash_;
};

// The maps of a machine, each once: equal ones are one object, so that a DataPlace compares by address. They
// live as long as the machine does, since there are as many as a program has layouts.
class PageMaps {
 public:
  const PageMap* keep(PageMap map);

 private:
  std::mutex mutex_;
  std::unordered_multimap<std::size_t, std::unique_ptr<const PageMap>> known_;
};

// Throws Error(partition), naming the pair, unless each of the devices reaches the memory of each other.
void require_peers(Runtime& runtime, std::span<const int> devices);
// The page size that suits all of the devices, in bytes.
std::size_t page_size(Runtime& runtime, std::span<const int> devices);
// The data place of memory whose pages of `page` bytes belong to places as `runs` say; place number i lies on
// `devices[i]`. Where one device has all pages, that device. Throws as require_peers does.
DataPlace place_of_pages(Runtime& runtime, std::span<const PageRun> runs, std::span<const int> devices,
                         std::size_t page);

}  // namespace stf_places
