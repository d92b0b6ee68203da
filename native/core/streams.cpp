#include "core/streams.hpp"

#include <algorithm>

#include "core/place_contexts.hpp"

namespace stf_places {

StreamPool::~StreamPool() {
  for (auto& [key, entry] : entries_) {
    for (StreamHandle handle : entry.handles) {
      if (handle == 0) continue;
      if (entry.owner)
        entry.owner->close_stream(handle);
      else
        runtime_->driver().destroy_stream(handle).ignore();
    }
  }
}

std::shared_ptr<StreamPool> StreamPool::borrow() {
  std::lock_guard lock(mutex_);
  if (lent_.empty()) return std::make_shared<StreamPool>(runtime_);
  std::shared_ptr<StreamPool> one = std::move(lent_.back());
  lent_.pop_back();
  return one;
}

void StreamPool::give_back(std::shared_ptr<StreamPool> borrowed) {
  std::lock_guard lock(mutex_);
  lent_.push_back(std::move(borrowed));
}

int StreamPool::size(const ExecPlace& place, bool for_computation) {
  if (!for_computation) return transfer_streams;
  return place.kind == ExecPlace::Kind::context ? context_streams : device_streams;
}

StreamHandle StreamPool::get(const ExecPlace& place, bool for_computation, int priority, int index) {
  require_usable(place, runtime_->driver());
  const int device = std::max(place.device, 0);  // the host's streams belong to the first device
  const ContextHandle context =
      place.kind == ExecPlace::Kind::context ? place.context : runtime_->primary(device);
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[{static_cast<int>(place.kind), device, place.context, for_computation, priority}];
  if (entry.handles.empty()) entry.handles.resize(static_cast<std::size_t>(size(place, for_computation)), 0);
  StreamHandle& handle = entry.handles.at(static_cast<std::size_t>(index));
  if (handle == 0 && place.owner) {
    handle = place.owner->open_stream(-priority);
    entry.owner = place.owner;
  }
  if (handle == 0) runtime_->driver().create_stream(context, -priority, &handle).check();
  return handle;
}

StreamHandle StreamPool::next(const ExecPlace& place, bool for_computation) {
  const int device = std::max(place.device, 0);
  int index = 0;
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[{static_cast<int>(place.kind), device, place.context, for_computation, 0}];
    index = static_cast<int>(entry.turn++ % static_cast<unsigned>(size(place, for_computation)));
  }
  return get(place, for_computation, 0, index);
}

}  // namespace stf_places
