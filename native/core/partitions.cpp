#include "core/partitions.hpp"

#include <algorithm>
#include <chrono>

namespace stf_places {

// Held while pools are looked at and changed. A host function that a simulated machine runs within a call of
// ours would wait for itself, so it is refused.
class Partitions::Lock {
 public:
  explicit Lock(Partitions& owner) : owner_(owner) {
    if (owner.inside_.load() == std::this_thread::get_id()) {
      throw Error(ErrorKind::task_state, "SM partitions cannot be made from within a call that makes some");
    }
    owner.released_->sweep();
    lock_ = std::unique_lock(owner.mutex_);
    owner.inside_.store(std::this_thread::get_id());
  }
  ~Lock() { owner_.inside_.store({}); }
  Lock(const Lock&) = delete;

  // Until nobody repartitions the pool.
  void await(const SmPool* pool, const Interrupt& interrupt) {
    while (true) {
      const auto change = std::find_if(owner_.changing_.begin(), owner_.changing_.end(),
                                       [&](const Change& one) { return one.pool == pool; });
      if (change == owner_.changing_.end()) return;
      const auto waits_for_us = [](const auto& place) {
        return place->context->open() == PlaceContext::Open::here;
      };
      if (change->thread == std::this_thread::get_id() ||
          std::any_of(change->leaving.begin(), change->leaving.end(), waits_for_us)) {
        throw Error(ErrorKind::task_state,
                    "work that repartition() waits for cannot ask for places of the same SMs");
      }
      owner_.inside_.store({});
      owner_.changed_.wait_for(lock_, std::chrono::milliseconds(5));
      lock_.unlock();
      const bool interrupted = interrupt.pending();
      lock_.lock();
      owner_.inside_.store(std::this_thread::get_id());
      if (interrupted) throw Error(ErrorKind::interrupted, "interrupted while another thread repartitions");
    }
  }

 private:
  Partitions& owner_;
  std::unique_lock<std::mutex> lock_;
};

Partitions::Partitions(std::shared_ptr<Driver> driver)
    : driver_(std::move(driver)), released_(std::make_shared<ReleasedContexts>(driver_)) {
  int count = 0;
  driver_->device_count(&count).check();
  devices_.resize(static_cast<std::size_t>(count));
}

void Partitions::refuse(const SplitRequest& request, const SplitPlan& plan) {
  const std::string nearest = plan.nearest.empty()
                                  ? "nothing can be granted now"
                                  : "the nearest that can is " + text_of(plan.nearest) + " SMs";
  throw Error(ErrorKind::partition, request.text + " cannot be met: " + plan.reason + "; " + nearest);
}

std::shared_ptr<SmPool> Partitions::pool_of(int device, const std::shared_ptr<Partition>& within) {
  SmResource whole;
  if (within == nullptr) {
    auto& pool = devices_.at(static_cast<std::size_t>(device));
    if (pool != nullptr) return pool;
    driver_->device_sms(device, &whole).check();
    pool = std::make_shared<SmPool>(released_, std::move(whole), nullptr);
    return pool;
  }
  if (within->closed()) {
    throw Error(ErrorKind::partition,
                "within= is a place that repartition() replaced: give one that it returned");
  }
  if (within->retiring()) {
    throw Error(ErrorKind::partition,
                "within= is a place that another thread repartitions: give one that repartition() returns");
  }
  if (within->inner == nullptr) {
    driver_->context_sms(within->context->handle(), &whole).check();
    within->inner = std::make_shared<SmPool>(released_, std::move(whole), within.get());
  }
  return within->inner;
}

SplitPlan Partitions::plan(int device, const SplitRequest& request, const std::shared_ptr<Partition>& within,
                           const Interrupt& interrupt) {
  Lock lock(*this);
  lock.await(pool_of(device, within).get(), interrupt);
  return pool_of(device, within)->plan(request);
}

Partitions::Made Partitions::make(int device, const SplitRequest& request,
                                  const std::shared_ptr<Partition>& within, const Interrupt& interrupt) {
  Lock lock(*this);
  Made made;
  lock.await(pool_of(device, within).get(), interrupt);
  made.pool = pool_of(device, within);
  made.parent = within;
  made.plan = made.pool->plan(request);
  if (!made.plan.fits) refuse(request, made.plan);
  made.places = made.pool->make(made.plan, request, made.pool, within);
  made.pool->hold(made.places);
  remember(made.places);
  return made;
}

std::shared_ptr<Partition> Partitions::remainder(const std::shared_ptr<SmPool>& pool,
                                                 const std::shared_ptr<const Grouping>& split,
                                                 const std::shared_ptr<Partition>& parent,
                                                 const Interrupt& interrupt) {
  Lock lock(*this);
  lock.await(pool.get(), interrupt);
  const std::vector<bool> taken = pool->taken();
  if (pool->live() != split || std::find(taken.begin(), taken.end(), true) == taken.end()) {
    throw Error(
        ErrorKind::partition,
        "the split is gone with its last place, and what was left of it with that: keep a place of it");
  }
  std::vector<int> groups;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const bool empty = i + 1 == taken.size() && pool->live()->left.sm_count == 0;
    if (!taken[i] && !empty) groups.push_back(static_cast<int>(i));
  }
  if (!groups.empty()) return gathered(pool, std::move(groups), remainder_text, parent);
  for (const auto& holder : pool->holders()) {
    if (holder->text == remainder_text || holder->text == rest_text) return holder;
  }
  return nullptr;
}

std::shared_ptr<Partition> Partitions::rest(const Holders& places, const Interrupt& interrupt) {
  Lock lock(*this);
  const std::shared_ptr<SmPool> pool = places.front()->pool;
  lock.await(pool.get(), interrupt);
  check_together(places, "rest()");
  std::vector<int> groups;
  const auto count = pool->live()->groups.size() + (pool->live()->left.sm_count > 0 ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    const int group = static_cast<int>(i);
    const bool theirs = std::any_of(places.begin(), places.end(), [&](const auto& place) {
      return std::find(place->groups.begin(), place->groups.end(), group) != place->groups.end();
    });
    if (!theirs) groups.push_back(group);
  }
  if (groups.empty()) {
    throw Error(ErrorKind::partition, "these places hold all SMs of their split: nothing is left for rest()");
  }
  for (const auto& holder : pool->holders()) {
    if (holder->groups == groups || std::find(places.begin(), places.end(), holder) != places.end()) continue;
    throw Error(ErrorKind::partition, "rest() would overlap a live place of " +
                                          std::to_string(holder->context->sm_count()) + " SMs, made by " +
                                          holder->text + ": add it to the places, or let go of it");
  }
  return gathered(pool, std::move(groups), rest_text, places.front()->parent);
}

std::shared_ptr<Partition> Partitions::gathered(const std::shared_ptr<SmPool>& pool, std::vector<int> groups,
                                                const char* text, const std::shared_ptr<Partition>& parent) {
  auto made = pool->gather(std::move(groups), text, pool, parent);
  remember({made});
  return made;
}

// ---- Splitting anew --------------------------------------------------------------------------------------

void Partitions::check_together(const Holders& places, const std::string& what) {
  for (const auto& place : places) {
    if (place->closed()) {
      throw Error(ErrorKind::partition, what + " takes live places: one was replaced by repartition()");
    }
    if (place->pool != places.front()->pool) {
      throw Error(ErrorKind::partition,
                  what + " takes places of one split: these come from different devices or places");
    }
  }
}

void Partitions::check_leaving(const Holders& places) const {
  check_together(places, "repartition()");
  for (const auto& place : places) {
    if (place->inner != nullptr && !place->inner->holders().empty()) {
      throw Error(ErrorKind::partition,
                  "a place that is split further cannot be repartitioned: let go of the places within it "
                  "first, or repartition those");
    }
  }
}

// No task starts on the places any more; those that are open in other threads are waited for.
void Partitions::await_tasks(const Holders& places, const Interrupt& interrupt) {
  constexpr auto pause = std::chrono::microseconds(50);
  int pauses = 0;
  for (const auto& place : places) {
    const PlaceContext& context = *place->context;
    for (auto open = context.open(); open != PlaceContext::Open::none; open = context.open()) {
      if (open == PlaceContext::Open::here) {
        throw Error(ErrorKind::task_state, "a task on a place of " + std::to_string(context.sm_count()) +
                                               " SMs is open in this thread: end it before repartition()");
      }
      std::this_thread::sleep_for(pause);
      if (++pauses % 100 == 0 && interrupt.pending()) {
        throw Error(ErrorKind::interrupted, "interrupted while a task of another thread is open");
      }
    }
  }
}

Partitions::Made Partitions::repartition(const Holders& places, const SplitRequest& request,
                                         const Interrupt& interrupt) {
  Made made;
  std::vector<std::shared_ptr<PlaceContext>> contexts;
  {
    Lock lock(*this);
    made.pool = places.front()->pool;
    lock.await(made.pool.get(), interrupt);
    check_leaving(places);
    made.parent = places.front()->parent;
    made.plan = made.pool->plan(request, places);
    if (!made.plan.fits) refuse(request, made.plan);
    contexts = begin_change(made, places);
  }
  try {
    await_tasks(places, interrupt);
    for (const auto& context : contexts) context->drain(interrupt).check();
    Lock lock(*this);
    Holders fresh = made.pool->make(made.plan, request, made.pool, made.parent);
    for (const auto& place : places) place->context->renew();
    for (const auto& place : fresh) place->generation = place->context->generation();
    made.places = std::move(fresh);
    made.pool->let_go(places);
    made.pool->hold(made.places);
    remember(made.places);
    end_change();
  } catch (...) {
    Lock lock(*this);
    for (const auto& place : places) place->context->restore();
    end_change();
    throw;
  }
  return made;
}

// Returns the contexts whose work has to be done first.
std::vector<std::shared_ptr<PlaceContext>> Partitions::begin_change(const Made& made,
                                                                    const Holders& leaving) {
  const auto thread = std::this_thread::get_id();
  std::vector<std::shared_ptr<PlaceContext>> contexts;
  changing_.push_back({made.pool.get(), thread, leaving});
  for (const auto& place : leaving) {
    contexts.push_back(place->context);
    if (place->inner == nullptr) continue;
    changing_.push_back({place->inner.get(), thread, leaving});
    for (auto& context : place->inner->contexts()) contexts.push_back(std::move(context));
  }
  for (const auto& place : leaving) place->context->retire();
  return contexts;
}

// Those of this thread: it repartitions one thing at a time.
void Partitions::end_change() {
  std::erase_if(changing_, [](const Change& one) { return one.thread == std::this_thread::get_id(); });
  changed_.notify_all();
}

void Partitions::remember(const Holders& made) {
  std::erase_if(ours_, [](const auto& known) { return known.second.expired(); });
  for (const auto& place : made) ours_[place->context->handle()] = place->context;
}

std::shared_ptr<PlaceContext> Partitions::adopt(ContextHandle context, const SmResource& sms,
                                                HostFunction release, void* argument) {
  std::shared_ptr<PlaceContext> base;
  {
    Lock lock(*this);
    if (const auto known = ours_.find(context); known != ours_.end()) base = known->second.lock();
  }
  if (release == nullptr && base != nullptr) return base;
  const HostFunction nothing = [](void*) {};
  const HostFunction after = release != nullptr ? release : nothing;
  if (base != nullptr) return std::make_shared<PlaceContext>(std::move(base), after, argument);
  return std::make_shared<PlaceContext>(released_, context, sms, after, argument);
}

}  // namespace stf_places
