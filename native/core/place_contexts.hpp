// Contexts behind places that are not whole devices: green contexts of ours, and contexts of other owners.
//
// A PlaceContext is kept alive by whatever uses it: places, kept contexts of a split, stream pools. It owns
// the streams that pools open on it, because a context must outlive its streams. The last reference can go at
// any moment and on any thread, host functions included, where the driver must not be called: what is left
// goes to ReleasedContexts, which gives it back at a later call, once its work is done.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/driver.hpp"

namespace stf_places {

class ReleasedContexts {
 public:
  struct Remains {
    ContextHandle context = 0;
    std::vector<StreamHandle> streams;
    HostFunction release = nullptr;  // null: a green context of ours
    void* argument = nullptr;
  };

  explicit ReleasedContexts(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}
  ~ReleasedContexts();  // waits for what is left
  ReleasedContexts(const ReleasedContexts&) = delete;

  Driver& driver() const { return *driver_; }
  void add(Remains remains) noexcept;
  // Gives back those whose work is done.
  void sweep() noexcept;

 private:
  void destroy(const Remains& remains) noexcept;

  std::shared_ptr<Driver> driver_;
  mutable std::mutex mutex_;
  std::vector<Remains> waiting_;
};

class PlaceContext {
 public:
  // Takes the context over: `release(argument)` is called when it is over; null: it is a green context of
  // ours, to be destroyed.
  PlaceContext(std::shared_ptr<ReleasedContexts> released, ContextHandle handle, const SmResource& sms,
               HostFunction release = nullptr, void* argument = nullptr);
  // Another owner's name for a context of ours: everything goes to that, which lives as long.
  PlaceContext(std::shared_ptr<PlaceContext> base, HostFunction release, void* argument);
  ~PlaceContext();
  PlaceContext(const PlaceContext&) = delete;

  ContextHandle handle() const { return handle_; }
  int device() const { return sms_.device; }
  int sm_count() const { return sms_.sm_count; }  // 0: unknown
  const SmResource& sms() const { return sms_; }
  bool ours() const { return base_ != nullptr || release_ == nullptr; }
  const Driver& driver() const { return released_->driver(); }

  // A stream for a pool; `close_stream` takes it back for the next one that asks.
  StreamHandle open_stream(int priority);
  void close_stream(StreamHandle handle) noexcept;
  // Waits for everything on its streams.
  Status drain(const Interrupt& interrupt) const;

  // Places are refused while a repartition is under way, and for good once it was done, which makes a new
  // generation.
  unsigned generation() const { return base_ ? base_->generation() : generation_.load(); }
  bool retiring() const { return base_ ? base_->retiring() : retiring_.load(); }
  void retire() { retiring_ = true; }
  void restore() { retiring_ = false; }
  void renew() {
    ++generation_;
    retiring_ = false;
  }

  // Tasks between start and end. A task counts itself and then looks whether the place is retiring; whoever
  // retires it does so the other way round, so one of the two sees the other.
  void enter();
  void leave() noexcept;                      // also of a task that could not be counted
  enum class Open { none, here, elsewhere };  // `here`: on this thread
  Open open() const;

 private:
  struct Opened {
    StreamHandle handle;
    int priority;
    bool used;
  };

  std::shared_ptr<ReleasedContexts> released_;
  ContextHandle handle_;
  SmResource sms_;
  HostFunction release_;
  void* argument_;
  std::shared_ptr<PlaceContext> base_;
  std::atomic<unsigned> generation_{0};
  std::atomic<bool> retiring_{false};
  mutable std::mutex mutex_;
  std::vector<Opened> streams_;
  std::vector<std::thread::id> open_;  // threads of the open tasks
};

}  // namespace stf_places
