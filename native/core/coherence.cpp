#include "core/coherence.hpp"

#include <algorithm>

#include "core/context.hpp"
#include "core/page_maps.hpp"
#include "core/planted.hpp"

namespace stf_places {

void WaitList::before_write(Instance& instance) {
  // Each reader came behind the writer, so a graph needs no edge from both. One along a stream is kept:
  // without it the driver takes twice as long to instantiate and launch chains over partitions (H200,
  // CUDA 13.0).
  const bool implied = stream_.recording() && !instance.readers.empty() && instance.writer;
  if (implied && instance.writer->stream != &stream_)
    instance.writer.reset();
  else
    take(instance.writer);
  for (PointRef& reader : instance.readers) take(reader);
  instance.readers.clear();
}

void WaitList::before_read(Instance& instance) {
  hold(instance.writer);
  // The operation's own point will stand for earlier reads on its stream; not in a graph.
  if (stream_.recording()) return;
  std::erase_if(instance.readers, [this](const PointRef& reader) { return reader->stream == &stream_; });
}

void WaitList::enqueue() { stream_.follow(points_); }

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

namespace {
template <class Visit>
void each_device(const DataPlace& place, Visit visit) {
  if (place.pages == nullptr) return visit(place.device);
  for (int device : place.pages->devices()) {
    if (place.pages->bytes_on(device) != 0) visit(device);
  }
}
}  // namespace

bool Coherence::reach_each_other(const DataPlace& from, const DataPlace& to) const {
  bool all = true;
  Runtime& runtime = context_.runtime();
  each_device(to, [&](int target) {
    each_device(from, [&](int source) {
      all = all && runtime.peers(target, source) && runtime.peers(source, target) &&
            copying_device(from, source, to, target) >= 0;
    });
  });
  return all;
}

// Pages are reached by the devices of their place alone, other memory by all peers.
int Coherence::copying_device(const DataPlace& from, int source, const DataPlace& to, int target) {
  for (int device : {target, source}) {
    if (device < 0) continue;
    const bool reads = from.pages == nullptr || from.pages->used_by(device);
    const bool writes = to.pages == nullptr || to.pages->used_by(device);
    if (reads && writes) return device;
  }
  return -1;
}

int Coherence::distance(const DataPlace& from, const DataPlace& to) const {
  if (from.on_devices() && to.on_devices()) {
    if (from.kind == to.kind && from.device == to.device && from.pages == to.pages) return 0;
    return reach_each_other(from, to) ? 1 : 4;
  }
  if (from.kind == DataPlace::Kind::managed) return 2;
  return from.on_devices() == to.on_devices() ? 0 : 3;
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
  Pin from(*source);
  if (!target.has_memory()) allocate_beside(data, target, from, stream);
  if (distance(from->place, target.place) == 4) {
    // No direct way between these devices: through the host, whose copy stays valid for others.
    Instance& host = instance(data, DataPlace::host());
    make_valid(data, host, stream);
    copy(data, host, target, stream);
  } else {
    copy(data, *from, target, stream);
  }
}

// The copy that is read can itself be in the way of the new one: the host then has the value meanwhile.
void Coherence::allocate_beside(Data& data, Instance& target, Pin& source, Stream& stream) {
  try {
    return context_.memory_.allocate(data, target, stream);
  } catch (const Error& error) {
    const bool both = source->place.on_devices() && target.place.on_devices();
    if (error.kind != ErrorKind::out_of_memory || !both) throw;
  }
  Instance& host = instance(data, DataPlace::host());
  make_valid(data, host, stream);
  source.move(host);
  context_.memory_.allocate(data, target, stream);
}

Status Coherence::transfer(const Data& data, const End& from, const End& to, std::size_t nbytes,
                           Stream& stream) {
  if (nbytes == 0) return {};
  std::size_t traced = 0;
  if (context_.trace_) {
    traced = context_.trace_->open({.kind = "copy",
                                    .symbol = data.label(),
                                    .place = to_string(from.place) + " -> " + to_string(to.place),
                                    .device = stream.device(),
                                    .stream = stream.index(),
                                    .nbytes = nbytes},
                                   stream);
  }
  Status status = context_.runtime().driver().copy(to.address, to.place.location(), from.address,
                                                   from.place.location(), nbytes, stream.handle());
  if (context_.trace_) context_.trace_->close(traced, stream);
  if (context_.recording_ && (from.place.kind != DataPlace::Kind::device || from.place != to.place))
    context_.recording_->note_obstacle("it copies between devices or with the host");
  if (context_.log_ && status.ok()) {
    context_.log_->add(context_.recording_->after(stream.handle()), "copy", data.label(),
                       to_string(from.place) + " to " + to_string(to.place));
  }
  if (status.ok()) context_.count_copy(from.place, to.place, nbytes);
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
  const bool within_host = !to.place.on_devices();
  if (from.place.kind != DataPlace::Kind::host || !(from.is_source || within_host)) return;
  if (context_.recording()) {
    // Pageable memory is read when the copy is recorded, not when the graph runs (two H200s, CUDA 13.0).
    // A scope has none: what it is given lies elsewhere.
    if (from.writer && context_.scope_ == nullptr) context_.flush(context_.interrupt_);
    return;
  }
  Driver& driver = context_.runtime().driver();
  if (from.writer) Stream::synchronize(driver, from.writer, context_.interrupt_);
  from.writer.reset();
  if (!within_host) return;
  if (to.writer) Stream::synchronize(driver, to.writer, context_.interrupt_);
  for (const PointRef& reader : to.readers) Stream::synchronize(driver, reader, context_.interrupt_);
}

void Coherence::copy(Data& data, Instance& from, Instance& to, Stream& task_stream) {
  settle_host_memory(from, to);
  from.last_use = to.last_use = ++context_.tick_;
  if (from.place.pages != nullptr || to.place.pages != nullptr) {
    spread(data, from, &to, {to.place, to.address});
  } else {
    Stream& stream = lane(from, to, task_stream);
    WaitList waits(stream);
    waits.before_read(from);
    waits.before_write(to);
    Status status;
    try {
      waits.enqueue();
      status = transfer(data, {from.place, from.address}, {to.place, to.address}, data.nbytes(), stream);
    } catch (...) {
      waits.settle();
      throw;
    }
    PointRef point = stream.advance();
    from.add_reader(point);
    to.writer = point;
    status.check();
  }
  to.state = InstanceState::shared;
  if (from.state == InstanceState::modified) from.state = InstanceState::shared;
}

PointRef Coherence::copy_out(Data& data, Instance& from, void* out, Stream& stream) {
  const DataPlace host = DataPlace::host();
  const End target{host, reinterpret_cast<Address>(out)};
  if (from.place.pages != nullptr) return spread(data, from, nullptr, target);
  WaitList waits(stream);
  waits.before_read(from);
  Status status;
  try {
    waits.enqueue();
    status = transfer(data, {from.place, from.address}, target, data.nbytes(), stream);
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
