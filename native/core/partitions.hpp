// The SM partitions of a machine: makes them, tells who holds what, splits anew.
//
// One lock guards all pools. It is held while the driver makes a context, never while something waits for
// work, and no host function takes it: places give their groups back by letting go of a shared pointer.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/sm_pool.hpp"

namespace stf_places {

class Partitions {
 public:
  // How their places are named in messages.
  static constexpr const char* remainder_text = "remainder";
  static constexpr const char* rest_text = "exec_place.rest()";

  using Holders = SmPool::Holders;
  struct Made {
    Holders places;
    SplitPlan plan;
    std::shared_ptr<SmPool> pool;
    std::shared_ptr<Partition> parent;
  };

  explicit Partitions(std::shared_ptr<Driver> driver);

  // All throw Error(partition) for a request that cannot be met, naming the nearest that can; `within` is a
  // partition to split further, or null.
  // A repartition in another thread is waited for.
  SplitPlan plan(int device, const SplitRequest& request, const std::shared_ptr<Partition>& within,
                 const Interrupt& interrupt);
  Made make(int device, const SplitRequest& request, const std::shared_ptr<Partition>& within,
            const Interrupt& interrupt);
  // One partition of all that nobody holds of a split; null when nothing is left. Throws when the split is
  // gone.
  std::shared_ptr<Partition> remainder(const std::shared_ptr<SmPool>& pool,
                                       const std::shared_ptr<const Grouping>& split,
                                       const std::shared_ptr<Partition>& parent, const Interrupt& interrupt);
  // One partition of all that these do not hold of their split.
  std::shared_ptr<Partition> rest(const Holders& places, const Interrupt& interrupt);
  // Other partitions instead of these, out of their groups and free ones. Waits for the work on their
  // streams; they are refused from then on. After a failure or an interrupt they are as before.
  Made repartition(const Holders& places, const SplitRequest& request, const Interrupt& interrupt);

  // Gives back contexts that nobody uses any more and whose work is done.
  void sweep() { released_->sweep(); }

  // A context of another owner; `release(argument)` is called when no place and no pool uses it any more.
  // Without `release` it is not kept, and may be one of ours, given by its handle.
  std::shared_ptr<PlaceContext> adopt(ContextHandle context, const SmResource& sms, HostFunction release,
                                      void* argument);

 private:
  class Lock;

  std::shared_ptr<SmPool> pool_of(int device, const std::shared_ptr<Partition>& within);
  // Live places of one split.
  static void check_together(const Holders& places, const std::string& what);
  void check_leaving(const Holders& places) const;
  std::shared_ptr<Partition> gathered(const std::shared_ptr<SmPool>& pool, std::vector<int> groups,
                                      const char* text, const std::shared_ptr<Partition>& parent);
  std::vector<std::shared_ptr<PlaceContext>> begin_change(const Made& made, const Holders& leaving);
  void end_change();
  void remember(const Holders& made);
  static void await_tasks(const Holders& places, const Interrupt& interrupt);
  [[noreturn]] static void refuse(const SplitRequest& request, const SplitPlan& plan);

  std::shared_ptr<Driver> driver_;
  std::shared_ptr<ReleasedContexts> released_;
  std::mutex mutex_;
  std::atomic<std::thread::id> inside_{};
  std::vector<std::shared_ptr<SmPool>> devices_;
  struct Change {
    const SmPool* pool;
    std::thread::id thread;
    Holders leaving;
  };
  std::vector<Change> changing_;  // being repartitioned, with the pools within the places
  std::map<ContextHandle, std::weak_ptr<PlaceContext>> ours_;
  std::condition_variable changed_;
};

}  // namespace stf_places
