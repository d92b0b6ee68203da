#include "core/context.hpp"

#include <algorithm>

#include "core/coherence.hpp"
#include "core/entry.hpp"
#include "core/partitions.hpp"
#include "core/place_contexts.hpp"
#include "core/tasks.hpp"

namespace stf_places {

std::size_t Context::PlaceHash::operator()(const PlaceKey& key) const noexcept {
  std::size_t hash = std::hash<ContextHandle>{}(key.context);
  for (int part : {static_cast<int>(key.kind), key.device, key.priority, static_cast<int>(key.transfer)}) {
    hash = hash * 1000003u + static_cast<std::size_t>(part + 7);
  }
  return hash;
}

Context::Context(std::shared_ptr<Runtime> runtime, std::shared_ptr<StreamPool> pool, ContextOptions options)
    : runtime_(std::move(runtime)),
      pool_(std::move(pool)),
      options_(options),
      scope_(options.scope),
      memory_(*this) {
  runtime_->collect_retired();  // a moment to collect what earlier contexts left
  runtime_->partitions().sweep();
  if (options_.graph) {
    if (options_.trace) {
      throw Error(ErrorKind::not_supported,
                  "a context with graphs has no trace: operations run when the graph is launched; trace a "
                  "context on streams");
    }
    recording_ = std::make_unique<Recording>(runtime_->driver());
    recorded_pool_ = pool_->borrow();
  }
  if (options_.trace) trace_ = std::make_unique<Trace>(runtime_->driver());
  if (options_.has_stream) open_entry_event();
}

Context::~Context() {
  if (!closed_) {
    try {
      for (Data* data : data_) {
        for (auto& instance : data->instances_) instance->open_writer = false;
      }
      if (recording_) {
        recording_->discard();
        forget_points();
      }
      release_at_last();
    } catch (const Error&) {
      forget_everything();
    }
  }
  for (const Dropped& one : dropped_) {
    delete one.data;
    one.finish();
  }
  for (const Dropped& orphan : orphans_) {
    delete orphan.data;
    orphan.finish();
  }
  if (entry_event_ != 0) runtime_->driver().destroy_event(entry_event_).ignore();
}

// ---- Streams ---------------------------------------------------------------------------------------------

// Everything of this context comes behind what the caller has put on its stream so far.
void Context::open_entry_event() {
  Driver& driver = runtime_->driver();
  bool capturing = false;
  driver.stream_capturing(options_.stream, &capturing).check();
  if (capturing) {
    throw Error(ErrorKind::value,
                "the stream is capturing a graph: give a stream that is not, or record with a "
                "graph context");
  }
  ContextHandle context = 0;
  driver.stream_context(options_.stream, &context).check();
  driver.create_event(context, false, &entry_event_).check();
  driver.record_event(entry_event_, options_.stream).check();
}

EventPool& Context::events_of(ContextHandle context) {
  auto& pool = events_[context];
  if (!pool) pool = std::make_unique<EventPool>(runtime_->driver(), context);
  return *pool;
}

Context::PlaceStreams& Context::streams_of(const ExecPlace& place, int priority, bool transfer) {
  const PlaceKey key{place.kind, place.device, place.context, priority, transfer};
  if (last_place_ != nullptr && key == last_key_ && last_place_->place.generation == place.generation) {
    return *last_place_;
  }
  auto& group = places_[key];
  if (!group) {
    group = std::make_unique<PlaceStreams>();
    group->place = place;
    group->priority = priority;
    group->transfer = transfer;
    group->streams.resize(static_cast<std::size_t>(StreamPool::size(place, !transfer)), nullptr);
  }
  if (group->place.generation != place.generation)
    group->place = place;  // on the same context, after a repartition
  last_key_ = key;
  last_place_ = group.get();
  return *group;
}

Stream* Context::open_stream(PlaceStreams& group, int index) {
  Stream*& slot = group.streams[static_cast<std::size_t>(index)];
  if (slot != nullptr) return slot;
  StreamPool& pool = recording_ ? *recorded_pool_ : *pool_;
  const StreamHandle handle = pool.get(group.place, !group.transfer, group.priority, index);
  const int device = std::max(group.place.device, 0);
  // Events on a green context's streams are its device's; those of other owners' contexts are their own.
  const bool foreign = group.place.owner && !group.place.owner->ours();
  const ContextHandle context = foreign ? group.place.context : runtime_->primary(device);
  auto stream =
      std::make_unique<Stream>(runtime_->driver(), events_of(context), points_, statistics_, handle,
                               static_cast<int>(streams_.size()), device, context, recording_.get(),
                               group.place.kind == ExecPlace::Kind::context ? group.place.context : context);
  stream->group = &group;
  if (entry_event_ != 0 && !recording_) stream->wait_foreign(entry_event_);
  slot = stream.get();
  if (recording_ && first_place_.kind == ExecPlace::Kind::current) first_place_ = group.place;
  streams_.push_back(std::move(stream));
  return slot;
}

Stream* Context::free_stream(PlaceStreams& group) {
  const auto count = static_cast<unsigned>(group.streams.size());
  for (unsigned tried = 0; tried < count; ++tried) {
    const unsigned index = group.turn++ % count;
    if (group.streams[index] != nullptr && group.streams[index]->busy) continue;
    return open_stream(group, static_cast<int>(index));
  }
  return nullptr;
}

Stream* Context::next_stream(PlaceStreams& group) {
  if (Stream* stream = free_stream(group)) return stream;
  throw Error(ErrorKind::task_state,
              "all " + std::to_string(group.streams.size()) + " streams of " + to_string(group.place) +
                  " belong to tasks whose body is open: end some before the next starts");
}

Stream* Context::transfer_stream(int device) {
  return next_stream(streams_of(ExecPlace::on(device), 0, true));
}

Stream* Context::ordering_stream(int device) {
  if (!recording_) return transfer_stream(device);
  ordering_streams_.resize(std::max(ordering_streams_.size(), static_cast<std::size_t>(device) + 1), nullptr);
  Stream*& slot = ordering_streams_[static_cast<std::size_t>(device)];
  if (slot != nullptr) return slot;
  const ContextHandle context = runtime_->primary(device);
  auto stream = std::make_unique<Stream>(runtime_->driver(), events_of(context), points_, statistics_,
                                         pool_->get(ExecPlace::on(device), false, 0, 0),
                                         static_cast<int>(streams_.size()), device, context);
  if (entry_event_ != 0) stream->wait_foreign(entry_event_);
  if (launched_) stream->wait(launched_);
  slot = stream.get();
  streams_.push_back(std::move(stream));
  return slot;
}

void Context::count_copy(const DataPlace& from, const DataPlace& to, std::size_t nbytes) {
  ++statistics_.copies;
  statistics_.bytes_copied += nbytes;
  auto at = [this](const DataPlace& place) -> Traffic& {
    for (Traffic& traffic : traffic_) {
      if (traffic.place == place) return traffic;
    }
    return traffic_.emplace_back(Traffic{place});
  };
  at(from).out += nbytes;
  at(to).in += nbytes;
}

std::vector<PlaceStatistics> Context::place_statistics() const {
  std::vector<PlaceStatistics> result;
  auto at = [&](const std::string& name) -> PlaceStatistics& {
    for (PlaceStatistics& one : result) {
      if (one.place == name) return one;
    }
    return result.emplace_back(PlaceStatistics{name});
  };
  for (const auto& [key, group] : places_) {
    for (const Stream* stream : group->streams) {
      if (stream != nullptr && stream->tasks != 0) at(to_string(group->place)).tasks += stream->tasks;
    }
  }
  if (host_tasks_ != 0) at(to_string(DataPlace::host())).tasks = host_tasks_;
  for (const Traffic& traffic : traffic_) {
    PlaceStatistics& one = at(to_string(traffic.place));
    one.bytes_in += traffic.in;
    one.bytes_out += traffic.out;
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
  return result;
}

// ---- Data ------------------------------------------------------------------------------------------------

Data* Context::create(DataOptions options) {
  Entry entry(*this);
  if (options.source_place.kind == DataPlace::Kind::device)
    runtime_->check_device(options.source_place.device);
  return make(std::move(options), ++data_number_);
}

Data* Context::make(DataOptions options, std::uint64_t number) {
  auto* data = new Data(this, std::move(options), number);
  if (data->has_source())
    data->add_source(data->options_.source_place, data->options_.source);
  else if (data->token())
    data->add_source(DataPlace::host(), 0);
  data->slot_ = data_.size();
  data_.push_back(data);
  return data;
}

void Context::detach(Data* data) {
  data_.back()->slot_ = data->slot_;
  data_[data->slot_] = data_.back();
  data_.pop_back();
}

// Returns whether the source is still in use; `release` is then called behind its last use.
bool Context::destroy(const Dropped& dropped) {
  Data* data = dropped.data;
  write_back(*data);
  const bool in_use = release_source(*data, dropped);
  for (auto& instance : data->instances_) memory_.recycle(*data, *instance);
  detach(data);
  delete data;
  return in_use;
}

bool Context::release_source(const Data& data, const Dropped& dropped) {
  Instance* source = data.has_source() ? data.find(data.options_.source_place) : nullptr;
  if (source == nullptr) return false;
  if (!source->writer && source->readers.empty()) {
    if (!launch_pending_) return false;
    // A graph that was launched may use it.
    if (dropped.release == nullptr) return true;
    runtime_->driver().host_function(launched_->stream->handle(), dropped.release, dropped.argument).check();
    launched_ = launched_->stream->advance();
    return true;
  }
  if (dropped.release == nullptr) return true;
  // In a graph the streams of tasks hold what these depend on.
  Stream& stream = recording_       ? *transfer_stream(launch_device())
                   : source->writer ? *source->writer->stream
                                    : *source->readers.back()->stream;
  WaitList waits(stream);
  waits.before_write(*source);
  waits.enqueue();
  runtime_->driver().host_function(stream.handle(), dropped.release, dropped.argument).check();
  stream.advance();
  return true;
}

bool Context::drain_dropped(const Data* asked) {
  std::vector<Dropped> all;
  {
    std::lock_guard lock(dropped_mutex_);
    all.swap(dropped_);
    has_dropped_.store(false, std::memory_order_relaxed);
  }
  bool asked_in_use = false;
  for (const Dropped& one : all) {
    bool in_use = false;
    const bool is_asked = one.data == asked;
    if (closed_) {
      delete one.data;
    } else {
      try {
        in_use = destroy(one);
      } catch (const Error&) {
        orphans_.push_back(one);  // keeps its value: finalize() tries again and reports
        in_use = true;
      }
    }
    if (is_asked)
      asked_in_use = in_use;
    else if (!in_use)
      one.finish();
  }
  return asked_in_use;
}

bool Context::drop(const std::shared_ptr<Context>& context, Data* data, HostFunction release,
                   void* argument) noexcept {
  if (context->busy_.exchange(true, std::memory_order_acquire)) {
    // Another call is inside, perhaps this very thread's: the next one takes the list along.
    std::lock_guard lock(context->dropped_mutex_);
    context->dropped_.push_back({data, release, argument});
    context->has_dropped_.store(true, std::memory_order_relaxed);
    return true;
  }
  {
    std::lock_guard lock(context->dropped_mutex_);
    context->dropped_.push_back({data, release, argument});
  }
  const bool in_use = context->drain_dropped(data);
  context->busy_.store(false, std::memory_order_release);
  return in_use;
}

void Context::write_back(Data& data) {
  if (!data.has_source() || data.options_.read_only || !data.poisoned_by_.empty()) return;
  Instance* source = data.find(data.options_.source_place);
  if (source == nullptr || source->valid()) return;
  Coherence coherence(*this);
  Instance* best = coherence.best_source(data, source->place);
  if (best == nullptr) return;
  const int device = best->place.on_devices() ? best->place.home() : source->place.home();
  coherence.make_valid(data, *source, *transfer_stream(device));
}

// Whether somebody may wait for the value: it is of this context, written, whole and not being written.
void Context::require_value(const Data& data) const {
  if (data.context_ != this) {
    throw Error(ErrorKind::wrong_context, data.label() + " belongs to another context: wait for it there");
  }
  data.require_whole();
  for (const auto& instance : data.instances_) {
    if (!instance->open_writer) continue;
    throw Error(ErrorKind::task_state, data.label() +
                                           " is being written by a task whose body is still open: end "
                                           "that task first");
  }
  if (!data.has_value()) {
    throw Error(ErrorKind::task_state,
                "wait for " + data.label() + " before anything wrote it: write it first");
  }
}

void Context::read_back(Data& data, void* out, const Interrupt& interrupt) {
  Entry entry(*this);
  require_value(data);
  Coherence coherence(*this);
  Instance* best = coherence.best_source(data, DataPlace::host());
  flush(interrupt);
  // Not recorded: should a launch fail, a later one must not write to `out`.
  Stream& stream = *ordering_stream(best->place.home());
  Driver& driver = runtime_->driver();
  // Signals can end this part of the wait. Not the copy itself: the caller takes `out` back when this
  // returns.
  if (best->writer) Stream::synchronize(driver, best->writer, interrupt);
  driver.synchronize_stream(stream.handle(), interrupt).check();
  PointRef done = coherence.copy_out(data, *best, out, stream);
  try {
    Stream::synchronize(driver, done, {});
  } catch (const Error&) {
    stream.settle();
    throw;
  }
}

void Context::synchronize(Data& data, const Interrupt& interrupt) {
  Entry entry(*this);
  require_value(data);
  flush(interrupt);
  for (const auto& instance : data.instances_) {
    if (instance->writer) Stream::synchronize(runtime_->driver(), instance->writer, interrupt);
  }
}

// ---- Tasks -----------------------------------------------------------------------------------------------

void Context::start(Task& task, const Interrupt& interrupt) {
  Entry entry(*this);
  Tasks(*this).open(task, Body::work, interrupt);
}

void Context::end(Task& task, bool failed, const Interrupt& interrupt) {
  Entry entry(*this);
  Tasks(*this).close(task, Body::work, failed, interrupt);
}

void Context::open_callback(Task& task, const Interrupt& interrupt) {
  Entry entry(*this);
  task.place = ExecPlace::host();
  Tasks(*this).open(task, Body::callback, interrupt);
}

void Context::enqueue_callback(Task& task, HostFunction function, HostFunction release, void* argument,
                               const Interrupt& interrupt) {
  struct Owned {
    HostFunction release;
    void* argument;
    ~Owned() {
      if (argument != nullptr) release(argument);
    }
  } owned{release, argument};
  Entry entry(*this);
  if (task.state() != Task::State::open) {
    throw Error(ErrorKind::task_state, task.label() + " is not open: open_callback comes first");
  }
  Tasks tasks(*this);
  try {
    // Copies of others may have come in between; in a graph the stream is this task's alone.
    if (!recording_)
      task.streams_.front()->before_operation();
    else
      recording_->note_host_call();
    runtime_->driver().host_function(task.stream(0), function, argument).check();
  } catch (...) {
    tasks.close(task, Body::callback, true, interrupt);
    throw;
  }
  owned.argument = nullptr;
  tasks.close(task, Body::callback, false, interrupt);
}

void Context::run_in(Task& task, std::size_t place, HostFunction function, HostFunction release,
                     void* argument) {
  Tasks(*this).run(task, place, function, release, argument);
}

void Context::launch_in(Task& task, std::size_t place, const KernelLaunch& kernel) {
  Tasks(*this).launch(task, place, kernel);
}

}  // namespace stf_places
