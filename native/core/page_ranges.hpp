// Mapped ranges of addresses, kept mapped once nobody uses them: mapping costs milliseconds.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/page_maps.hpp"

namespace stf_places {

class PageRanges {
 public:
  explicit PageRanges(Driver& driver) : driver_(driver) {}
  ~PageRanges();
  PageRanges(const PageRanges&) = delete;

  // A range whose pages lie as `map` says: a kept one, or a new one. Nothing is left of it when it fails;
  // out_of_memory names the device.
  Status take(const PageMap& map, Address* out);
  // Nobody uses the range any more, and all work on it is complete. False: there is no such range in use.
  bool give(const PageMap& map, Address address);
  // Lets one more device use a range that is in use; the map's own devices can already.
  Status let(const PageMap& map, Address address, int device);
  // Unmaps the kept ranges that have pages on a device; returns how many bytes that frees there.
  std::size_t release(int device);

 private:
  struct Range {
    const PageMap* map;
    Address address;
    std::vector<int> guests;  // devices that can use it beside those of the map
  };
  Status map_all(const PageMap& map, Address* out);
  void unmap(const PageMap& map, Address address, std::size_t mapped);

  Driver& driver_;
  std::mutex mutex_;  // no driver call is made under it
  std::vector<Range> kept_;
  std::unordered_map<Address, Range> used_;
};

}  // namespace stf_places
