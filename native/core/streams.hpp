// Driver streams by place, shared between contexts: what `exec_place_resources` and `async_resources` hold.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "core/places.hpp"
#include "core/recording.hpp"
#include "core/runtime.hpp"

namespace stf_places {

class StreamPool {
 public:
  // Streams of a whole device for tasks, of a partition for tasks, and of any place for transfers. A
  // partition has one, because all partitions of a device share its hardware queues.
  static constexpr int device_streams = 8;
  static constexpr int context_streams = 1;
  static constexpr int transfer_streams = 2;

  explicit StreamPool(std::shared_ptr<Runtime> runtime) : runtime_(runtime), execs_(std::move(runtime)) {}
  ~StreamPool();
  StreamPool(const StreamPool&) = delete;

  // The stream number `index` (below `size`) of a place; made at the first call. Higher priority is more
  // urgent.
  StreamHandle get(const ExecPlace& place, bool for_computation, int priority, int index);
  // The next one in turn.
  StreamHandle next(const ExecPlace& place, bool for_computation);
  static int size(const ExecPlace& place, bool for_computation);
  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }

  // Streams that nobody else uses, for a recording: another pool, to be given back when no stream of it
  // records.
  std::shared_ptr<StreamPool> borrow();
  void give_back(std::shared_ptr<StreamPool> borrowed);
  GraphExecs& execs() { return execs_; }

 private:
  using Key = std::tuple<int, int, ContextHandle, bool, int>;
  struct Entry {
    std::shared_ptr<PlaceContext> owner;  // of the streams, where the place has one
    std::vector<StreamHandle> handles;
    unsigned turn = 0;
  };

  std::shared_ptr<Runtime> runtime_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::vector<std::shared_ptr<StreamPool>> lent_;  // and given back
  GraphExecs execs_;
};

}  // namespace stf_places
