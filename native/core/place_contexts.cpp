#include "core/place_contexts.hpp"

#include <algorithm>

namespace stf_places {

ReleasedContexts::~ReleasedContexts() {
  for (const Remains& remains : waiting_) {
    for (StreamHandle stream : remains.streams) driver_->synchronize_stream(stream, {}).ignore();
    destroy(remains);
  }
}

void ReleasedContexts::add(Remains remains) noexcept {
  std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(remains));
}

void ReleasedContexts::sweep() noexcept {
  std::vector<Remains> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(waiting_);
  }
  std::vector<Remains> busy;
  for (Remains& remains : all) {
    bool idle = true;
    for (StreamHandle stream : remains.streams) {
      idle = idle && !driver_->query_stream(stream).is(Code::not_ready);
    }
    if (idle)
      destroy(remains);
    else
      busy.push_back(std::move(remains));
  }
  std::lock_guard lock(mutex_);
  for (Remains& remains : busy) waiting_.push_back(std::move(remains));
}

void ReleasedContexts::destroy(const Remains& remains) noexcept {
  for (StreamHandle stream : remains.streams) driver_->destroy_stream(stream).ignore();
  if (remains.release != nullptr)
    remains.release(remains.argument);
  else
    driver_->destroy_green_context(remains.context).ignore();
}

PlaceContext::PlaceContext(std::shared_ptr<ReleasedContexts> released, ContextHandle handle,
                           const SmResource& sms, HostFunction release, void* argument)
    : released_(std::move(released)), handle_(handle), sms_(sms), release_(release), argument_(argument) {}

PlaceContext::PlaceContext(std::shared_ptr<PlaceContext> base, HostFunction release, void* argument)
    : released_(base->released_),
      handle_(base->handle_),
      sms_(base->sms_),
      release_(release),
      argument_(argument),
      base_(std::move(base)) {}

PlaceContext::~PlaceContext() {
  ReleasedContexts::Remains remains{handle_, {}, release_, argument_};
  for (const Opened& stream : streams_) remains.streams.push_back(stream.handle);
  released_->add(std::move(remains));
}

StreamHandle PlaceContext::open_stream(int priority) {
  if (base_) return base_->open_stream(priority);
  {
    std::lock_guard lock(mutex_);
    for (Opened& stream : streams_) {
      if (stream.used || stream.priority != priority) continue;
      stream.used = true;
      return stream.handle;
    }
  }
  StreamHandle handle = 0;
  released_->driver().create_stream(handle_, priority, &handle).check();
  std::lock_guard lock(mutex_);
  streams_.push_back({handle, priority, true});
  return handle;
}

void PlaceContext::close_stream(StreamHandle handle) noexcept {
  if (base_) return base_->close_stream(handle);
  std::lock_guard lock(mutex_);
  for (Opened& stream : streams_) {
    if (stream.handle == handle) stream.used = false;
  }
}

Status PlaceContext::drain(const Interrupt& interrupt) const {
  std::vector<StreamHandle> all;
  {
    std::lock_guard lock(mutex_);
    for (const Opened& stream : streams_) all.push_back(stream.handle);
  }
  for (StreamHandle stream : all) {
    if (Status status = released_->driver().synchronize_stream(stream, interrupt); !status) return status;
  }
  return {};
}

void PlaceContext::enter() {
  if (base_) return base_->enter();
  std::lock_guard lock(mutex_);
  open_.push_back(std::this_thread::get_id());
}

void PlaceContext::leave() noexcept {
  if (base_) return base_->leave();
  std::lock_guard lock(mutex_);
  const auto mine = std::find(open_.begin(), open_.end(), std::this_thread::get_id());
  if (mine != open_.end()) open_.erase(mine);
}

PlaceContext::Open PlaceContext::open() const {
  std::lock_guard lock(mutex_);
  if (open_.empty()) return Open::none;
  const bool here = std::find(open_.begin(), open_.end(), std::this_thread::get_id()) != open_.end();
  return here ? Open::here : Open::elsewhere;
}

}  // namespace stf_places
