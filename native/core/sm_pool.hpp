// The SMs of a device, or of a place, and who holds which of them.
//
// One live split owns the groups: all partitions come out of it and are disjoint. It can change once nobody
// holds a group. Contexts of partitions whose places are gone are kept, and used again when the same groups
// are asked for; a change of the split lets go of them. Members are called with the lock of Partitions held.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/place_contexts.hpp"
#include "core/sm_plans.hpp"

namespace stf_places {

class SmPool;

// The hold on some groups of a pool: what a place made of them owns. Letting go of it is all there is to
// giving them back.
struct Partition {
  std::shared_ptr<SmPool> pool;
  std::shared_ptr<Partition> parent;  // of which the pool is a split
  std::shared_ptr<const Grouping> grouping;
  std::vector<int> groups;  // ascending; grouping->groups.size() stands for what is left of the split
  std::vector<int> key;     // groups and queues: what a kept context has to have been made with
  std::shared_ptr<PlaceContext> context;
  unsigned generation = 0;        // of the context when the place was made
  std::string text;               // the request
  std::shared_ptr<SmPool> inner;  // its own SMs, once split further

  bool closed() const { return context->generation() != generation; }
  bool retiring() const { return context->retiring(); }
};

class SmPool {
 public:
  using Holders = std::vector<std::shared_ptr<Partition>>;

  // `parent`: the place whose SMs these are; its groups are offered first.
  SmPool(std::shared_ptr<ReleasedContexts> released, SmResource whole, const Partition* parent);

  const SmResource& whole() const { return whole_; }
  // Whether the request fits beside those who hold groups now, `leaving` not counted.
  SplitPlan plan(const SplitRequest& request, const Holders& leaving = {});
  // Contexts for the plan's places, without holding the groups yet. After a failure nothing is left.
  Holders make(const SplitPlan& plan, const SplitRequest& request, std::shared_ptr<SmPool> self,
               const std::shared_ptr<Partition>& parent);
  // The partitions hold their groups from now on; the plan's split is the live one.
  void hold(const Holders& made);
  void let_go(const Holders& leaving);
  // Who holds groups, each once.
  Holders holders() const;
  const std::shared_ptr<const Grouping>& live() const { return live_; }
  // One partition of the given groups of the live split, or the one there is.
  std::shared_ptr<Partition> gather(std::vector<int> groups, const std::string& text,
                                    std::shared_ptr<SmPool> self, const std::shared_ptr<Partition>& parent);
  // Those in use and those kept.
  std::vector<std::shared_ptr<PlaceContext>> contexts() const;
  std::vector<bool> taken(const Holders& leaving = {}) const;

 private:
  using Candidates = std::vector<std::shared_ptr<const Grouping>>;

  Candidates candidates(const SplitRequest& request);
  std::shared_ptr<const Grouping> split(int asked, bool fine);
  std::shared_ptr<const Grouping> split_unequally(const SplitRequest& request);
  SplitPlan best(const SplitRequest& request, const Holders& leaving);
  SplitPlan best_of(const SplitRequest& request, const Candidates& candidates);
  std::vector<int> nearest(const SplitRequest& request, const Holders& leaving);
  std::string why_not(const SplitRequest& request, const Holders& leaving);
  std::shared_ptr<PlaceContext> context_for(const Partition& partition, const SplitRequest& request);
  void check_version(const SplitRequest& request);
  Driver& driver() const { return released_->driver(); }

  std::shared_ptr<ReleasedContexts> released_;
  SmResource whole_;
  std::shared_ptr<PlaceContext> keep_;  // of the parent
  std::shared_ptr<const Grouping> inherited_;
  std::map<std::pair<int, bool>, std::shared_ptr<const Grouping>> known_;
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<const Grouping>> known_unequal_;
  std::shared_ptr<const Grouping> live_;
  std::vector<std::weak_ptr<Partition>> holder_;  // by group of the live split; the last: what is left
  std::map<std::vector<int>, std::shared_ptr<PlaceContext>> kept_;  // of the live split, by key
};

}  // namespace stf_places
