#include "core/coherence.hpp"

#include <algorithm>

#include "core/context.hpp"
#include "core/planted.hpp"

namespace stf_places {

void WaitList::before_write(Instance& instance) {
  take(instance.writer);
  for (PointRef& reader : instance.readers) take(reader);
  instance.readers.clear();
}

void WaitList::before_read(Instance& instance) {
  hold(instance.writer);
  // The operation's own point will stand for earlier reads on its stream.
  std::erase_if(instance.readers, [this](const PointRef& reader) { return reader->stream == &stream_; });
}

void WaitList::enqueue() {
  stream_.before_operation();
  for (const PointRef& point : points_) stream_.wait(point);
}

void WaitList::settle() noexcept {
  stream_.settle();
  for (const PointRef& point : points_) point->stream->settle();
}

Instance& Coherence::instance(Data& data, const DataPlace& place) {
  if (Instance* found = data.find(place)) return *found;
  if (place.kind == DataPlace::Kind::device) context_.runtime().check_device(place.device);
  auto made = std::make_unique<Instance>();
  made->place = place;
  data.instances_.push_back(std::move(made));
  return *data.instances_.back();
}

int Coherence::distance(const DataPlace& from, const DataPlace& to) const {
  const bool from_device = from.kind == DataPlace::Kind::device;
  const bool to_device = to.kind == DataPlace::Kind::device;
  if (from_device && to_device) {
    if (from.device == to.device) return 0;
    return context_.runtime().peers(to.device, from.device) ? 1 : 4;
  }
  if (from.kind == DataPlace::Kind::managed) return 2;
  return from_device == to_device ? 0 : 3;
}

Instance* Coherence::best_source(const Data& data, const DataPlace& place) const {
  Instance* best = nullptr;
  int best_distance = 0;
  for (const auto& candidate : data.instances_) {
    if (!candidate->valid() || candidate->open_writer) continue;
    const int away = distance(candidate->place, place);
    if (best == nullptr || away < best_distance) {
      best = candidate.get();
      best_distance = away;
    }
  }
  return best;
}

void Coherence::make_valid(Data& data, Instance& target, Stream& stream) {
  if (target.valid()) return;
  Instance* source = best_source(data, target.place);
  if (source == nullptr) {
    throw Error(ErrorKind::task_state, "read of " + data.label() +
                                           " before anything wrote it: write it first, or make it with "
                                           "logical_data_full or from a buffer");
  }
  ++source->pins;
  try {
    if (!target.has_memory()) context_.memory_.allocate(data, target, stream);
    if (distance(source->place, target.place) == 4) {
      // No direct way between these devices: through the host, whose copy stays valid for others.
      Instance& host = instance(data, DataPlace::host());
      make_valid(data, host, stream);
      copy(data, host, target, stream);
    } else {
      copy(data, *source, target, stream);
    }
  } catch (...) {
    --source->pins;
    throw;
  }
  --source->pins;
}

Status Coherence::transfer(const Data& data, const Instance& from, const DataPlace& to_place, Address to,
                           Stream& stream) {
  if (data.nbytes() == 0) return {};
  std::size_t traced = 0;
  if (context_.trace_) {
    traced = context_.trace_->open({.kind = "copy",
                                    .symbol = data.label(),
                                    .place = to_string(from.place) + " -> " + to_string(to_place),
                                    .device = stream.device(),
                                    .stream = stream.index(),
                                    .nbytes = data.nbytes()},
                                   stream);
  }
  Status status = context_.runtime().driver().copy(to, to_place.location(), from.address,
                                                   from.place.location(), data.nbytes(), stream.handle());
  if (context_.trace_) context_.trace_->close(traced, stream);
  if (status.ok()) context_.count_copy(from.place, to_place, data.nbytes());
  return status;
}

// Device memory is copied by a stream of its own device: a pool of another device can be out of the reach of
// the stream of a task that runs elsewhere (seen on two H200s, as an invalid value).
Stream& Coherence::lane(const Instance& from, const Instance& to, Stream& stream) const {
  const DataPlace& end = to.place.kind == DataPlace::Kind::device ? to.place : from.place;
  if (end.kind != DataPlace::Kind::device || end.device == stream.device()) return stream;
  return *context_.transfer_stream(end.device);
}

// CUDA reads pageable memory when the copy is enqueued, not when its turn in the stream comes, and copies
// between two places of the host at once. So what such memory waits for is waited for here. Our own host
// memory is pinned.
void Coherence::settle_host_memory(Instance& from, Instance& to) {
  const bool within_host = to.place.kind != DataPlace::Kind::device;
  if (from.place.kind != DataPlace::Kind::host || !(from.is_source || within_host)) return;
  Driver& driver = context_.runtime().driver();
  if (from.writer) Stream::synchronize(driver, from.writer, context_.interrupt_);
  from.writer.reset();
  if (!within_host) return;
  if (to.writer) Stream::synchronize(driver, to.writer, context_.interrupt_);
  for (const PointRef& reader : to.readers) Stream::synchronize(driver, reader, context_.interrupt_);
}

void Coherence::copy(Data& data, Instance& from, Instance& to, Stream& task_stream) {
  settle_host_memory(from, to);
  Stream& stream = lane(from, to, task_stream);
  WaitList waits(stream);
  waits.before_read(from);
  waits.before_write(to);
  Status status;
  try {
    waits.enqueue();
    status = transfer(data, from, to.place, to.address, stream);
  } catch (...) {
    waits.settle();
    throw;
  }
  PointRef point = stream.advance();
  from.add_reader(point);
  to.writer = point;
  from.last_use = to.last_use = ++context_.tick_;
  status.check();
  to.state = InstanceState::shared;
  if (from.state == InstanceState::modified) from.state = InstanceState::shared;
}

PointRef Coherence::copy_out(Data& data, Instance& from, void* out, Stream& stream) {
  WaitList waits(stream);
  waits.before_read(from);
  Status status;
  try {
    waits.enqueue();
    status = transfer(data, from, DataPlace::host(), reinterpret_cast<Address>(out), stream);
  } catch (...) {
    waits.settle();
    throw;
  }
  PointRef point = stream.advance();
  from.add_reader(point);
  status.check();
  return point;
}

void Coherence::wrote(Data& data, Instance& instance) {
  for (const auto& other : data.instances_) {
    if (planted(Mistake::wrong_state) && other->place.kind == DataPlace::Kind::host) continue;
    other->state = InstanceState::invalid;
  }
  instance.state = InstanceState::modified;
}

}  // namespace stf_places
