#include "core/sm_plans.hpp"

#include <algorithm>
#include <numeric>

namespace stf_places {

namespace {
constexpr int fine_step = 2;  // SMs of a texture processing cluster, the smallest unit of a split

// The free groups of a grouping, handed out first fit.
class FreeGroups {
 public:
  FreeGroups(const Grouping& grouping, const std::vector<bool>& taken) : grouping_(grouping), taken_(taken) {}

  // Groups for a place of `count` SMs; empty when there are none.
  std::vector<int> take(int count) {
    return grouping_.asked > 0 ? take_equal((count + grouping_.asked - 1) / grouping_.asked)
                               : take_smallest(count);
  }
  const std::vector<bool>& taken() const { return taken_; }

 private:
  std::vector<int> take_equal(int wanted) {
    std::vector<int> found;
    for (std::size_t i = 0; i < grouping_.groups.size() && static_cast<int>(found.size()) < wanted; ++i) {
      if (!taken_[i]) found.push_back(static_cast<int>(i));
    }
    if (static_cast<int>(found.size()) < wanted) return {};
    for (int group : found) taken_[static_cast<std::size_t>(group)] = true;
    return found;
  }
  std::vector<int> take_smallest(int count) {
    int best = -1;
    for (std::size_t i = 0; i < grouping_.groups.size(); ++i) {
      const int size = grouping_.groups[i].sm_count;
      if (taken_[i] || size < count || size - count >= std::max(1, grouping_.step)) continue;
      if (best < 0 || size < grouping_.groups[static_cast<std::size_t>(best)].sm_count)
        best = static_cast<int>(i);
    }
    if (best < 0) return {};
    taken_[static_cast<std::size_t>(best)] = true;
    return {best};
  }

  const Grouping& grouping_;
  std::vector<bool> taken_;
};

}  // namespace

Steps steps_of(const SmResource& whole, bool fine) {
  if (fine) return {fine_step, fine_step};
  const int step = std::max(1, whole.alignment);
  return {step, std::max(step, whole.min_partition)};
}

int round_up(int count, const SmResource& whole, bool fine) {
  const auto [step, least] = steps_of(whole, fine);
  const int rounded = std::max(least, (count + step - 1) / step * step);
  return count <= whole.sm_count ? std::min(rounded, whole.sm_count) : rounded;
}

std::string text_of(const std::vector<int>& counts) {
  std::string text = "[";
  for (std::size_t i = 0; i < counts.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(counts[i]);
  return text + "]";
}

std::vector<int> group_sizes(const std::vector<int>& rounded, const SmResource& whole, bool fine) {
  const auto [step, least] = steps_of(whole, fine);
  const int divisor = std::accumulate(rounded.begin(), rounded.end(), 0, std::gcd<int, int>);
  if (fine) return {divisor % step == 0 ? step : divisor};
  std::vector<int> sizes;
  for (int size = least; size < divisor; size += step) {
    if (divisor % size == 0) sizes.push_back(size);
  }
  sizes.push_back(std::max(divisor, least));
  return sizes;
}

int free_sms(const Grouping& grouping, const std::vector<bool>& taken) {
  int sum = taken.back() ? 0 : grouping.left.sm_count;
  for (std::size_t i = 0; i < grouping.groups.size(); ++i) {
    if (!taken[i]) sum += grouping.groups[i].sm_count;
  }
  return sum;
}

SplitPlan fill(const SplitRequest& request, std::shared_ptr<const Grouping> grouping,
               const std::vector<bool>& taken) {
  SplitPlan plan;
  plan.grouping = std::move(grouping);
  FreeGroups free(*plan.grouping, taken);
  auto place = [&](int count) {
    std::vector<int> groups = free.take(count);
    if (groups.empty()) return false;
    int granted = 0;
    for (int group : groups) granted += plan.grouping->groups[static_cast<std::size_t>(group)].sm_count;
    plan.sm_counts.push_back(granted);
    plan.groups.push_back(std::move(groups));
    return true;
  };
  if (request.as_many) {
    while (place(request.counts.front())) {
    }
    plan.fits = !plan.groups.empty();
  } else {
    plan.fits = std::all_of(request.counts.begin(), request.counts.end(), place);
  }
  plan.remainder = free_sms(*plan.grouping, free.taken());
  return plan;
}

int times(const SplitRequest& request, const std::shared_ptr<const Grouping>& grouping) {
  std::vector<bool> taken(grouping->groups.size() + 1, false);
  for (int count = 0;; ++count) {
    const SplitPlan plan = fill(request, grouping, taken);
    if (!plan.fits || request.as_many) return plan.fits ? static_cast<int>(plan.groups.size()) : count;
    for (const auto& place : plan.groups) {
      for (int group : place) taken[static_cast<std::size_t>(group)] = true;
    }
  }
}

}  // namespace stf_places
