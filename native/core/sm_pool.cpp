#include "core/sm_pool.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace stf_places {

namespace {

// Splits into unequal groups, and work queues.
constexpr int unequal_version = 13010;
// Unequal splits that are remembered, so that the same call finds the contexts of the last.
constexpr std::size_t kept_plans = 64;

bool holds(const SmPool::Holders& holders, const std::shared_ptr<Partition>& one) {
  return std::find(holders.begin(), holders.end(), one) != holders.end();
}

int total_of(const std::vector<SmResource>& groups) {
  int sum = 0;
  for (const SmResource& group : groups) sum += group.sm_count;
  return sum;
}

int sum_of(const std::vector<int>& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

bool is_uniform(const std::vector<int>& counts) {
  return std::all_of(counts.begin(), counts.end(), [&](int count) { return count == counts.front(); });
}

// The nearest requests in the order in which they are tried: fewer places of one size, or smaller ones.
SplitRequest smaller(SplitRequest request, const SmResource& whole) {
  auto& counts = request.counts;
  const bool uniform = is_uniform(counts);
  const auto largest = std::max_element(counts.begin(), counts.end());
  const auto [step, least] = steps_of(whole, request.fine);
  if (*largest > whole.sm_count) {
    *largest = round_up(whole.sm_count, whole, request.fine);
  } else if (!uniform && *largest - step >= least) {
    *largest -= *largest % step == 0 ? step : *largest % step;
  } else if (counts.size() > 1) {
    counts.pop_back();
  } else if (*largest - step >= least) {
    *largest -= *largest % step == 0 ? step : *largest % step;
  } else {
    counts.clear();
  }
  return request;
}

}  // namespace

SmPool::SmPool(std::shared_ptr<ReleasedContexts> released, SmResource whole, const Partition* parent)
    : released_(std::move(released)), whole_(std::move(whole)) {
  if (parent == nullptr) return;
  keep_ = parent->context;
  Grouping own;
  own.fine = parent->grouping->fine;
  own.step = parent->grouping->step;
  for (int group : parent->groups) {
    const auto index = static_cast<std::size_t>(group);
    if (index == parent->grouping->groups.size()) {
      own.left = parent->grouping->left;
      continue;
    }
    own.groups.push_back(parent->grouping->groups[index]);
  }
  if (own.groups.empty()) return;
  own.asked = own.groups.front().sm_count;
  for (const SmResource& group : own.groups) {
    if (group.sm_count != own.asked) own.asked = 0;
    if (own.asked == 0) break;
  }
  inherited_ = std::make_shared<const Grouping>(std::move(own));
}

// ---- Ways to split ---------------------------------------------------------------------------------------

std::shared_ptr<const Grouping> SmPool::split(int asked, bool fine) {
  if (const auto known = known_.find({asked, fine}); known != known_.end()) return known->second;
  Grouping grouping;
  grouping.asked = asked;
  grouping.fine = fine;
  grouping.step = steps_of(whole_, fine).step;
  Status status = driver().split_sms(whole_, asked, 0, fine, &grouping.groups, &grouping.left);
  if (!status.ok() && !status.is(Code::invalid_value)) status.check();
  if (!status.ok()) grouping.groups.clear();
  return known_[{asked, fine}] = std::make_shared<const Grouping>(std::move(grouping));
}

std::shared_ptr<const Grouping> SmPool::split_unequally(const SplitRequest& request) {
  std::vector<int> counts = request.counts;
  if (request.as_many) {
    const int each = round_up(counts.front(), whole_, false);
    counts.assign(static_cast<std::size_t>(std::max(1, whole_.sm_count / each)), counts.front());
  }
  for (; !counts.empty(); counts.pop_back()) {
    if (known_unequal_.size() >= kept_plans) known_unequal_.clear();
    const std::pair key(counts, request.coscheduled);
    if (const auto known = known_unequal_.find(key); known != known_unequal_.end()) return known->second;
    std::vector<SmGroup> wanted;
    for (int count : counts) {
      const int together = std::max(1, request.coscheduled);
      const int rounded = round_up(count, whole_, false);
      wanted.push_back({(rounded + together - 1) / together * together, request.coscheduled});
    }
    Grouping grouping;
    grouping.step = std::max(steps_of(whole_, false).step, request.coscheduled);
    Status status = driver().split_sms_unequally(whole_, wanted, &grouping.groups, &grouping.left);
    if (status.ok()) return known_unequal_[key] = std::make_shared<const Grouping>(std::move(grouping));
    if (!status.is(Code::invalid_value)) status.check();
    if (!request.as_many) return nullptr;
  }
  return nullptr;
}

SmPool::Candidates SmPool::candidates(const SplitRequest& request) {
  Candidates found;
  if (request.coscheduled > 0) {
    if (auto grouping = split_unequally(request)) found.push_back(std::move(grouping));
    return found;
  }
  if (inherited_ && inherited_->fine == request.fine) found.push_back(inherited_);
  std::vector<int> rounded;
  for (int count : request.counts) rounded.push_back(round_up(count, whole_, request.fine));
  for (int size : group_sizes(rounded, whole_, request.fine)) {
    if (size <= whole_.sm_count) found.push_back(split(size, request.fine));
  }
  return found;
}

void SmPool::check_version(const SplitRequest& request) {
  if (!request.queues && request.coscheduled == 0) return;
  int version = 0;
  driver().version(&version).check();
  if (version >= unequal_version) return;
  const char* what = request.queues ? "the work-queue resource" : "a split with coscheduled_sm_count";
  const std::string detail =
      "the driver of CUDA " + version_text(version) + " does not have " + what +
      ", which comes with CUDA 13.1; leave the argument out, or install a newer driver";
  const Failure failure{Code::not_supported, 0, "cuDevSmResourceSplit", "", detail, whole_.device};
  throw Error(ErrorKind::not_supported, stf_places::text_of(failure), failure);
}

// ---- Planning --------------------------------------------------------------------------------------------

// The one that grants what is nearest to the request; then the one that could meet it most often, so that the
// same call can come again; then the earlier, which has smaller groups and leaves more to other calls.
SplitPlan SmPool::best_of(const SplitRequest& request, const Candidates& candidates) {
  SplitPlan best;
  int best_times = 0;
  for (const auto& grouping : candidates) {
    SplitPlan plan = fill(request, grouping, std::vector<bool>(grouping->groups.size() + 1, false));
    if (!plan.fits) continue;
    for (std::size_t i = 0; i < plan.sm_counts.size(); ++i) {
      plan.miss = std::max(plan.miss, std::abs(request.count(i) - plan.sm_counts[i]));
    }
    const int often = times(request, grouping);
    if (best.fits && (plan.miss > best.miss || (plan.miss == best.miss && often <= best_times))) continue;
    best = std::move(plan);
    best_times = often;
  }
  return best;
}

SplitPlan SmPool::best(const SplitRequest& request, const Holders& leaving) {
  const std::vector<bool> now = taken(leaving);
  if (std::find(now.begin(), now.end(), true) != now.end()) {
    if (live_->fine != request.fine || request.coscheduled > 0) return {};
    return fill(request, live_, now);
  }
  Candidates found = candidates(request);
  SplitPlan plan = best_of(request, found);
  if ((plan.fits && plan.miss == 0) || request.fine || request.coscheduled > 0) return plan;
  int version = 0;
  driver().version(&version).check();
  if (version < unequal_version) return plan;
  if (auto grouping = split_unequally(request)) found.push_back(std::move(grouping));
  return best_of(request, found);
}

SplitPlan SmPool::plan(const SplitRequest& request, const Holders& leaving) {
  check_version(request);
  const std::vector<bool> now = taken(leaving);
  SplitPlan plan = best(request, leaving);
  bool rounds = false;
  if (plan.fits && request.exact) {
    for (std::size_t i = 0; i < plan.sm_counts.size(); ++i) {
      rounds = rounds || plan.sm_counts[i] != request.count(i);
    }
  }
  if (plan.fits && !rounds) {
    plan.nearest = plan.sm_counts;
    return plan;
  }
  SplitPlan refused;
  refused.nearest = rounds ? plan.sm_counts : nearest(request, leaving);
  refused.reason = rounds ? "exact=True, and these counts are granted as " + text_of(plan.sm_counts)
                          : why_not(request, leaving);
  refused.remainder = live_ ? free_sms(*live_, now) : whole_.sm_count;
  return refused;
}

// Of fewer places and of smaller ones, where all are to be equal, what grants more SMs.
std::vector<int> SmPool::nearest(const SplitRequest& request, const Holders& leaving) {
  SplitRequest attempt = request;
  attempt.as_many = false;
  const std::size_t most = static_cast<std::size_t>(std::max(1, whole_.sm_count));
  if (attempt.counts.size() > most) attempt.counts.resize(most);
  std::vector<int> shrunk;
  if (is_uniform(attempt.counts)) {
    const auto [step, least] = steps_of(whole_, request.fine);
    SplitRequest all = attempt;
    int each = std::min(attempt.counts.front(), whole_.sm_count) / step * step;
    for (; each >= least && shrunk.empty(); each -= step) {
      all.counts.assign(attempt.counts.size(), each);
      if (SplitPlan plan = best(all, leaving); plan.fits) shrunk = plan.sm_counts;
    }
  }
  while (true) {
    attempt = smaller(attempt, whole_);
    if (attempt.counts.empty()) return shrunk;
    if (SplitPlan plan = best(attempt, leaving); plan.fits) {
      return sum_of(shrunk) >= sum_of(plan.sm_counts) ? shrunk : plan.sm_counts;
    }
  }
}

std::string SmPool::why_not(const SplitRequest& request, const Holders& leaving) {
  const std::string whole = (keep_ ? "the place has " : "device " + std::to_string(whole_.device) + " has ") +
                            std::to_string(whole_.sm_count) + " SMs";
  std::set<std::string> texts;
  std::size_t count = 0;
  for (const auto& holder : holders()) {
    if (holds(leaving, holder)) continue;
    ++count;
    texts.insert(holder->text);
  }
  std::string reason = whole;
  if (count > 0) {
    reason += ", of which " + std::to_string(count) + " live place(s) of ";
    for (const std::string& text : texts) reason += (text == *texts.begin() ? "" : " and ") + text;
    reason += " hold some, in a split into groups of ";
    const int size = live_->asked > 0 ? live_->groups.front().sm_count : 0;
    reason += size > 0 ? std::to_string(size) + " SMs" : "different sizes";
    if (live_->fine != request.fine) {
      reason += live_->fine ? " (fine_grained)" : " (not fine_grained)";
      reason += ", and one split of a device lives at a time";
    }
    if (request.coscheduled > 0) reason += ", and a co-scheduled split needs the whole";
    reason += "; let go of them, or split one of them with within=";
  } else if (!request.fine) {
    const int least = steps_of(whole_, false).least;
    const auto smallest = known_.find({least, false});
    const bool asked_for_it =
        std::all_of(request.counts.begin(), request.counts.end(), [&](int asked) { return asked <= least; });
    if (asked_for_it && smallest != known_.end() && smallest->second->left.sm_count > 0) {
      reason += ", " + std::to_string(total_of(smallest->second->groups)) + " of them in groups of " +
                std::to_string(smallest->first.first);
    }
    SplitRequest fine = request;
    fine.fine = true;
    if (request.coscheduled == 0 && best(fine, leaving).fits) {
      reason += "; with fine_grained=True it can be met";
    }
  }
  return reason;
}

// ---- Holding ---------------------------------------------------------------------------------------------

SmPool::Holders SmPool::holders() const {
  Holders found;
  for (const auto& weak : holder_) {
    std::shared_ptr<Partition> holder = weak.lock();
    if (holder && std::find(found.begin(), found.end(), holder) == found.end())
      found.push_back(std::move(holder));
  }
  return found;
}

std::vector<std::shared_ptr<PlaceContext>> SmPool::contexts() const {
  std::vector<std::shared_ptr<PlaceContext>> all;
  for (const auto& kept : kept_) all.push_back(kept.second);
  return all;
}

std::vector<bool> SmPool::taken(const Holders& leaving) const {
  std::vector<bool> result(live_ ? live_->groups.size() + 1 : 1, false);
  for (std::size_t i = 0; i < holder_.size(); ++i) {
    const std::shared_ptr<Partition> holder = holder_[i].lock();
    result[i] = holder && !holds(leaving, holder);
  }
  return result;
}

std::shared_ptr<PlaceContext> SmPool::context_for(const Partition& partition, const SplitRequest& request) {
  if (partition.grouping == live_) {
    if (auto kept = kept_.find(partition.key); kept != kept_.end()) return kept->second;
  }
  std::vector<SmResource> sms;
  SmResource sum;
  sum.device = whole_.device;
  const Grouping& grouping = *partition.grouping;
  for (int group : partition.groups) {
    const auto index = static_cast<std::size_t>(group);
    sms.push_back(index < grouping.groups.size() ? grouping.groups[index] : grouping.left);
    sum.sm_count += sms.back().sm_count;
  }
  ContextHandle handle = 0;
  driver()
      .create_green_context(whole_.device, sms, request.queues ? &*request.queues : nullptr, &handle)
      .check();
  return std::make_shared<PlaceContext>(released_, handle, sum);
}

SmPool::Holders SmPool::make(const SplitPlan& plan, const SplitRequest& request, std::shared_ptr<SmPool> self,
                             const std::shared_ptr<Partition>& parent) {
  Holders made;
  for (const auto& groups : plan.groups) {
    auto partition = std::make_shared<Partition>();
    partition->pool = self;
    partition->parent = parent;
    partition->grouping = plan.grouping;
    partition->groups = groups;
    partition->key = groups;
    if (request.queues) {
      const WorkQueues& queues = *request.queues;
      partition->key.insert(partition->key.end(), {-1, queues.concurrency_limit, queues.balanced ? 1 : 0});
    }
    partition->context = context_for(*partition, request);
    partition->generation = partition->context->generation();
    partition->text = request.text;
    made.push_back(std::move(partition));
  }
  return made;
}

void SmPool::hold(const Holders& made) {
  if (made.empty()) return;
  if (made.front()->grouping != live_) {
    live_ = made.front()->grouping;
    kept_.clear();
    holder_.assign(live_->groups.size() + 1, {});
  }
  for (const auto& partition : made) {
    for (int group : partition->groups) holder_[static_cast<std::size_t>(group)] = partition;
  }
  // Of the contexts that nobody uses, only those stay that could be used again as they are.
  const std::vector<bool> now = taken();
  std::erase_if(kept_, [&](const auto& kept) {
    const auto groups_end = std::find(kept.first.begin(), kept.first.end(), -1);  // queues follow
    return std::any_of(kept.first.begin(), groups_end,
                       [&](int group) { return now[static_cast<std::size_t>(group)]; });
  });
  for (const auto& holder : holders()) kept_[holder->key] = holder->context;
}

void SmPool::let_go(const Holders& leaving) {
  for (auto& weak : holder_) {
    const std::shared_ptr<Partition> holder = weak.lock();
    if (holder && holds(leaving, holder)) weak.reset();
  }
}

std::shared_ptr<Partition> SmPool::gather(std::vector<int> groups, const std::string& text,
                                          std::shared_ptr<SmPool> self,
                                          const std::shared_ptr<Partition>& parent) {
  for (const auto& holder : holders()) {
    if (holder->groups == groups) return holder;
  }
  SplitRequest request;
  request.text = text;
  SplitPlan plan;
  plan.grouping = live_;
  plan.groups = {std::move(groups)};
  Holders made = make(plan, request, std::move(self), parent);
  hold(made);
  return made.front();
}

}  // namespace stf_places
