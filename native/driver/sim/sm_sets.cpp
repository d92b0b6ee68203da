#include "sm_sets.hpp"

#include <algorithm>

namespace stf_places::sim {

namespace {

int count_of(const SmSet& set) { return static_cast<int>(set.ids.size()); }

constexpr int rounded_up(int count, int unit) { return (count + unit - 1) / unit * unit; }

int unit_of(const DeviceSpec& device, bool fine) { return fine ? 2 : std::max(1, device.alignment); }

// SMs of `whole` in whole co-scheduling groups.
int aligned_count(const DeviceSpec& device, const SmSet& whole) {
  const int aligned = device.aligned_sms != 0 ? device.aligned_sms
                                              : device.sm_count - device.sm_count % unit_of(device, false);
  const auto end = std::lower_bound(whole.ids.begin(), whole.ids.end(), aligned);
  return static_cast<int>(end - whole.ids.begin());
}

int granted(const DeviceSpec& device, const SmSet& whole, int asked, bool fine) {
  const int rounded = rounded_up(asked, unit_of(device, fine));
  return std::min(fine ? rounded : std::max(rounded, device.min_partition), count_of(whole));
}

std::string check_count(const SmSet& whole, int asked) {
  if (asked >= 1 && asked <= count_of(whole)) return "";
  return "a group of 1 to " + std::to_string(count_of(whole)) + " SMs can be split off: got " +
         std::to_string(asked);
}

// Groups of these sizes, which fit together.
SmSplit dealt(const SmSet& whole, std::span<const int> sizes) {
  SmSplit split;
  auto next = whole.ids.begin();
  for (const int size : sizes) {
    split.groups.emplace_back(next, next + size);
    next += size;
  }
  split.left.assign(next, whole.ids.end());
  return split;
}

std::string check_coscheduled(const DeviceSpec& device, const SmGroup& group, int size,
                              const std::string& at) {
  const int together = group.coscheduled;
  if (together < 0 || together % 2 != 0 || together > size) {
    return at + ": SMs are scheduled together in a multiple of 2, at most the group's " +
           std::to_string(size) + ": got " + std::to_string(together);
  }
  if (together > unit_of(device, false) && size % together != 0) {
    return at + ": " + std::to_string(size) + " SMs cannot be divided into parts of " +
           std::to_string(together);
  }
  return "";
}

}  // namespace

std::string split_equally(const DeviceSpec& device, const SmSet& whole, int sm_count, int groups, bool fine,
                          SmSplit* out) {
  if (std::string wrong = check_count(whole, sm_count); !wrong.empty()) return wrong;
  if (groups < 0) return "the number of groups is 0 (as many as fit) or more: got " + std::to_string(groups);
  int size = granted(device, whole, sm_count, fine);
  const bool small = !fine && size <= device.alignment;
  const int fit = (small ? aligned_count(device, whole) : count_of(whole)) / size;
  if (fit == 0) {
    return "none of the " + std::to_string(count_of(whole)) + " SMs lie in a whole group of " +
           std::to_string(size) + ", which " + std::to_string(sm_count) +
           " are rounded up to: splitting without co-scheduling can use them";
  }
  const int count = groups == 0 ? fit : std::min(groups, fit);
  // A context's own SMs that are used up completely come back as smaller groups: 64 as 4 x 14.
  const bool used_up = count > 1 && count * size == count_of(whole);
  if (whole.origin == SmSet::Origin::context && !fine && !small && used_up) size -= device.resplit_loss;
  *out = dealt(whole, std::vector<int>(count, size));
  return "";
}

std::string split_unequally(const DeviceSpec& device, const SmSet& whole, std::span<const SmGroup> groups,
                            SmSplit* out) {
  if (groups.empty()) return "at least one group is needed: got none";
  std::vector<int> sizes;
  int left = count_of(whole);
  for (const SmGroup& group : groups) {
    const std::string at = "group " + std::to_string(sizes.size());
    int size =
        left - left % std::max(unit_of(device, false), group.coscheduled);  // without a wish: what is left
    if (group.sm_count != 0) {
      if (std::string wrong = check_count(whole, group.sm_count); !wrong.empty()) return at + ": " + wrong;
      size = granted(device, whole, group.sm_count, false);
    }
    if (std::string wrong = check_coscheduled(device, group, size, at); !wrong.empty()) return wrong;
    if (size == 0 || size > left) {
      return "the groups do not fit into " + std::to_string(count_of(whole)) + " SMs together: " + at +
             " needs " + std::to_string(std::max(size, unit_of(device, false))) + " of the " +
             std::to_string(left) + " that are left";
    }
    sizes.push_back(size);
    left -= size;
  }
  *out = dealt(whole, sizes);
  return "";
}

}  // namespace stf_places::sim
