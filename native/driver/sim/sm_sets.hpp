// How a device's SMs are split into groups: one rule for all counts, as measured on an H200.
//
// A count is rounded up to whole co-scheduling groups (`alignment` SMs), or to pairs when co-scheduling is
// ignored, and never beyond what there is. Groups of one co-scheduling group can only be made of SMs that lie
// in whole ones (`aligned_sms` of the device, its lowest ids); larger groups and pairs take any. Groups take
// ids in ascending order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../driver.hpp"
#include "machine_spec.hpp"

namespace stf_places::sim {

// What SmResource::opaque points to.
struct SmSet {
  enum class Origin : std::uint8_t { device, context, split };
  std::uint64_t machine = 0;  // Machine's id
  int device = 0;
  Origin origin = Origin::device;
  std::vector<int> ids;  // ascending
};

struct SmSplit {
  std::vector<std::vector<int>> groups;
  std::vector<int> left;
};

// Both return "" or what is wrong; then `out` is unchanged. `whole` is not itself of a split.
std::string split_equally(const DeviceSpec& device, const SmSet& whole, int sm_count, int groups, bool fine,
                          SmSplit* out);
std::string split_unequally(const DeviceSpec& device, const SmSet& whole, std::span<const SmGroup> groups,
                            SmSplit* out);

}  // namespace stf_places::sim
