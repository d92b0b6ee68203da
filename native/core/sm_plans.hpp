// How a request for SM partitions is met: pure reckoning over the groups that a driver grants.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace stf_places {

struct SplitRequest {
  std::vector<int> counts;  // SMs a place
  bool as_many = false;     // `counts` holds one: as many places of it as fit
  bool exact = false;       // refuse instead of rounding
  bool fine = false;        // steps of 2 SMs, without thread-block clusters
  int coscheduled = 0;      // SMs of a place that are to share a cluster's hardware; 0: no wish
  std::optional<WorkQueues> queues;
  std::string text;  // as the caller wrote it, for messages

  // SMs asked for a place.
  int count(std::size_t place) const { return counts[as_many ? 0 : place]; }
};

// One way to split SMs: its groups, and what is left of them. Nothing of it exists on the device.
struct Grouping {
  std::vector<SmResource> groups;
  SmResource left;
  int asked = 0;  // SMs a group that were asked for; 0: groups of different sizes
  int step = 1;   // SMs that rounding can add to a count
  bool fine = false;
};

struct SplitPlan {
  bool fits = false;
  int miss = 0;                // the most SMs by which a place differs from its count
  std::vector<int> sm_counts;  // granted, by place; empty unless it fits
  int remainder = 0;           // SMs that no place of anybody holds
  std::vector<int> nearest;    // the same request if it fits, else the nearest that does
  std::string reason;          // why it does not fit
  std::shared_ptr<const Grouping> grouping;
  std::vector<std::vector<int>> groups;  // of `grouping`, by place
};

// In what steps SMs are granted, and at least how many.
struct Steps {
  int step = 1;
  int least = 1;
};
Steps steps_of(const SmResource& whole, bool fine);

// What rounding makes of a count; `total` when only the whole will do.
int round_up(int count, const SmResource& whole, bool fine);

// "[8, 16]"
std::string text_of(const std::vector<int>& counts);

// The group sizes worth asking for, ascending: those of which a request's rounded counts are multiples.
std::vector<int> group_sizes(const std::vector<int>& rounded, const SmResource& whole, bool fine);

// SMs of the groups, and of what is left, that are not taken (`taken` has one entry more than there are
// groups).
int free_sms(const Grouping& grouping, const std::vector<bool>& taken);

// How often the request can be met on all groups at once.
int times(const SplitRequest& request, const std::shared_ptr<const Grouping>& grouping);

// Places of these counts on the groups that are not taken, first fit. `sm_counts` and `groups` are set when
// all fit; `as_many` takes as many of the first count as do.
SplitPlan fill(const SplitRequest& request, std::shared_ptr<const Grouping> grouping,
               const std::vector<bool>& taken);

}  // namespace stf_places
