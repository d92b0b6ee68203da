#include "core/tasks.hpp"

#include <algorithm>
#include <exception>

#include "core/coherence.hpp"
#include "core/place_contexts.hpp"
#include "core/ranges.hpp"

namespace stf_places {

std::string Task::label() const {
  return symbol.empty() ? "task " + std::to_string(number_) : "task '" + symbol + "'";
}

// ---- Checks ----------------------------------------------------------------------------------------------

void Tasks::resolve_place(Task& task, ContextHandle current) {
  Runtime& runtime = context_.runtime();
  task.resolved_ = task.place;
  if (task.place.kind == ExecPlace::Kind::current) {
    task.resolved_.kind = ExecPlace::Kind::device;
    task.resolved_.device = current == 0 ? 0 : runtime.current_device();
  } else if (task.place.kind == ExecPlace::Kind::grid) {
    if (!task.place.places || task.place.places->empty()) {
      throw Error(ErrorKind::value, "a task needs at least one place: the grid is empty");
    }
    for (const ExecPlace& place : *task.place.places) {
      if (place.kind == ExecPlace::Kind::host || place.kind == ExecPlace::Kind::grid) {
        throw Error(ErrorKind::value, "a grid task runs on devices and partitions: got " + to_string(place));
      }
      require_usable(place, runtime.driver());
      runtime.check_device(place.device);
    }
  } else if (task.place.kind != ExecPlace::Kind::host) {
    require_usable(task.place, runtime.driver());
    runtime.check_device(task.place.device);
  }
}

namespace {
template <class Visit>
void each_owner(const ExecPlace& place, Visit visit) {
  if (place.owner) visit(*place.owner);
  if (place.kind != ExecPlace::Kind::grid || !place.places) return;
  for (const ExecPlace& member : *place.places) {
    if (member.owner) visit(*member.owner);
  }
}
}  // namespace

// What a repartition of the places looks at.
void Tasks::enter_places(const Task& task) {
  each_owner(task.place, [](PlaceContext& owner) { owner.enter(); });
}

void Tasks::leave_places(const Task& task) {
  each_owner(task.place, [](PlaceContext& owner) { owner.leave(); });
}

void Tasks::merge(Task& task) const {
  task.unique_.clear();
  for (Dependency& dependency : task.dependencies) {
    if (dependency.data == nullptr || dependency.data->context_ != &context_) {
      const char* why = dependency.data != nullptr && dependency.data->context_ == nullptr
                            ? " belongs to a context that was finalized"
                            : " belongs to another context";
      const std::string label =
          dependency.data == nullptr ? std::string("the data") : dependency.data->label();
      throw Error(ErrorKind::wrong_context, label + why + ": a task takes data of its own context only");
    }
    if (dependency.place.kind == DataPlace::Kind::affine && !dependency.data->token()) {
      dependency.place =
          task.affine.kind != DataPlace::Kind::affine ? task.affine : affine_of(task.resolved_);
    }
    if (dependency.data->token()) dependency.place = DataPlace::host();
    dependency.merged = dependency.mode;
    dependency.instance = nullptr;
    bool found = false;
    for (Dependency* other : task.unique_) {
      if (other->data != dependency.data) continue;
      if (other->place == dependency.place) {
        other->merged =
            static_cast<AccessMode>(static_cast<int>(other->merged) | static_cast<int>(dependency.mode));
        found = true;
      } else if (writes(other->merged) || writes(dependency.mode)) {
        throw Error(ErrorKind::value, dependency.data->label() +
                                          " is written by a task that also asks for it on "
                                          "another data place: got " +
                                          to_string(other->place) + " and " + to_string(dependency.place) +
                                          "; use one place");
      }
    }
    if (!found) task.unique_.push_back(&dependency);
  }
}

void Tasks::check(const Task& task, const Dependency& access) const {
  const Data& data = *access.data;
  if (writes(access.merged) && data.options_.read_only) {
    throw Error(ErrorKind::read_only, data.label() + " is read-only, and " + task.label() +
                                          " asks to write it: use read(), or register a writable copy");
  }
  if (reads(access.merged)) data.require_whole();
  for (const auto& instance : data.instances_) {
    if (!instance->open_writer && !(writes(access.merged) && instance->open_readers > 0)) continue;
    throw Error(ErrorKind::task_state, data.label() +
                                           " is in use by a task whose body is still open: end that "
                                           "task before " +
                                           task.label() + " starts");
  }
  check_reach(task, access);
}

// Memory of another device is used where it lies; access is granted when it is first asked for.
void Tasks::check_reach(const Task& task, const Dependency& access) const {
  if (access.place.kind != DataPlace::Kind::device || access.place.device == task.resolved_.device) return;
  Runtime& runtime = context_.runtime();
  runtime.check_device(access.place.device);
  auto check_place = [&](const ExecPlace& place) {
    if (place.kind == ExecPlace::Kind::host || runtime.peers(place.device, access.place.device)) return;
    throw Error(ErrorKind::value, task.label() + " on " + to_string(place) + " cannot use " +
                                      access.data->label() + " on " + to_string(access.place) +
                                      ": these devices have no peer access; use "
                                      "the place's own memory, host() or managed()");
  };
  if (task.resolved_.kind != ExecPlace::Kind::grid) return check_place(task.resolved_);
  for (const ExecPlace& place : *task.resolved_.places) check_place(place);
}

// ---- Streams ---------------------------------------------------------------------------------------------

Stream* Tasks::predecessor(const Task& task, const void* group) const {
  auto usable = [&](const PointRef& point) {
    return point && point->stream->group == group && !point->stream->busy && point->stream->is_tail(point);
  };
  for (const Dependency* access : task.unique_) {
    const Instance* instance = access->data->find(access->place);
    if (instance == nullptr) continue;
    if (usable(instance->writer)) return instance->writer->stream;
    if (!writes(access->merged)) continue;
    for (const PointRef& reader : instance->readers) {
      if (usable(reader)) return reader->stream;
    }
  }
  return nullptr;
}

void Tasks::choose_streams(Task& task) {
  task.streams_.clear();
  if (task.resolved_.kind == ExecPlace::Kind::host) {
    int device = 0;
    for (const Dependency* access : task.unique_) {
      for (const auto& instance : access->data->instances_) {
        if (instance->valid() && instance->place.kind == DataPlace::Kind::device)
          device = instance->place.device;
      }
    }
    task.streams_.push_back(context_.transfer_stream(device));
    return;
  }
  auto pick = [&](const ExecPlace& place) {
    Context::PlaceStreams& group = context_.streams_of(place, task.priority, false);
    Stream* stream = predecessor(task, &group);
    if (stream == nullptr) stream = context_.next_stream(group);
    task.streams_.push_back(stream);
  };
  if (task.resolved_.kind == ExecPlace::Kind::grid) {
    for (const ExecPlace& place : *task.resolved_.places) {
      pick(place);
      task.streams_.back()->busy = true;  // so that a place listed twice gets two streams
    }
    for (Stream* stream : task.streams_) stream->busy = false;
  } else {
    pick(task.resolved_);
  }
}

// ---- Data ------------------------------------------------------------------------------------------------

void Tasks::prepare(Task& task) {
  Coherence coherence(context_);
  Stream& stream = *task.streams_.front();
  for (Dependency* access : task.unique_) {
    Data& data = *access->data;
    Instance& instance = coherence.instance(data, access->place);
    ++instance.pins;
    access->instance = &instance;
    if (data.token()) continue;
    if (reads(access->merged)) {
      coherence.make_valid(data, instance, stream);
    } else if (!instance.has_memory() && data.nbytes() != 0) {
      context_.memory_.allocate(data, instance, stream);
    }
    instance.last_use = ++context_.tick_;
  }
}

void Tasks::unpin(Task& task) {
  for (Dependency* access : task.unique_) {
    if (access->instance != nullptr) --access->instance->pins;
    access->instance = nullptr;
  }
}

// Puts the task behind what it depends on; returns whether there was anything to wait for.
bool Tasks::order(Task& task, Body body) {
  WaitList waits(*task.streams_.front());
  // A body on the host leaves no point that could stand for earlier reads.
  const bool leaves_point = body != Body::work || task.resolved_.kind != ExecPlace::Kind::host;
  for (Dependency* access : task.unique_) {
    if (writes(access->merged)) {
      waits.before_write(*access->instance);
    } else if (leaves_point) {
      waits.before_read(*access->instance);
    } else {
      waits.hold(access->instance->writer);
    }
  }
  try {
    waits.enqueue();
  } catch (...) {
    waits.settle();
    throw;
  }
  return waits.pending();
}

void Tasks::replace_points(Task& task, const PointRef& point) {
  for (Dependency* access : task.unique_) {
    Instance& instance = *access->instance;
    if (writes(access->merged)) {
      instance.writer = point;
      instance.readers.clear();
    } else if (point) {
      instance.add_reader(point);
    }
  }
}

// ---- Opening ---------------------------------------------------------------------------------------------

void Tasks::make_current(Task& task, ContextHandle current) {
  const ExecPlace& first =
      task.resolved_.kind == ExecPlace::Kind::grid ? task.resolved_.places->front() : task.resolved_;
  const bool on_host = task.resolved_.kind == ExecPlace::Kind::host;
  const ContextHandle wanted = on_host ? 0 : context_.runtime().primary(first.device);
  task.current_.begin(context_.runtime().driver(), current, wanted);
}

// One event on the join stream lets the other places begin: N waits for N places.
void Tasks::fork(Task& task) {
  if (task.streams_.size() == 1) return;
  PointRef start = task.streams_.front()->advance();
  for (std::size_t i = 1; i < task.streams_.size(); ++i) {
    task.streams_[i]->before_operation();
    task.streams_[i]->wait(start);
  }
  task.streams_.front()->before_operation();
}

void Tasks::join(Task& task) {
  if (task.streams_.size() == 1) return;
  Stream& first = *task.streams_.front();
  for (std::size_t i = 1; i < task.streams_.size(); ++i) {
    PointRef done = task.streams_[i]->advance();
    first.wait(done);
  }
}

void Tasks::enter_body(Task& task, Body body, bool pending, const Interrupt& interrupt) {
  Runtime& runtime = context_.runtime();
  Stream& stream = *task.streams_.front();
  if (ranges_enabled() && body != Body::callback) {
    task.range_ = begin_range((task.symbol.empty() ? task.label() : task.symbol).c_str());
  }
  if (context_.trace_) {
    task.trace_ = context_.trace_->open({.kind = "task",
                                         .symbol = task.symbol.empty() ? task.label() : task.symbol,
                                         .place = to_string(task.resolved_),
                                         .device = task.resolved_.device,
                                         .stream = stream.index()},
                                        stream);
  }
  if (body != Body::work) return;
  if (task.resolved_.kind == ExecPlace::Kind::host) {
    if (pending || context_.options_.has_stream) {
      Stream::synchronize(runtime.driver(), stream.advance(), interrupt);
    }
    return;
  }
  if (runtime.simulated()) {
    for (Stream* each : task.streams_) runtime.driver().begin_body(each->handle(), interrupt).check();
  }
}

void Tasks::open(Task& task, Body body, const Interrupt& interrupt) {
  if (task.state_ != Task::State::created) {
    throw Error(ErrorKind::task_state,
                task.label() + " was started before: a task runs once, make a new one");
  }
  task.state_ = Task::State::ended;  // whatever goes wrong below
  context_.interrupt_ = interrupt;
  task.number_ = ++context_.task_number_;
  ContextHandle current = 0;
  context_.runtime().driver().current_context(&current).check();
  bool ordered = false;
  try {
    enter_places(task);
    resolve_place(task, current);
    merge(task);
    for (const Dependency* access : task.unique_) check(task, *access);
    make_current(task, current);
    choose_streams(task);
    prepare(task);
    const bool pending = order(task, body);
    ordered = true;
    fork(task);
    enter_body(task, body, pending, interrupt);
  } catch (...) {
    if (ordered) replace_points(task, task.streams_.front()->advance());
    leave(task).ignore();
    throw;
  }
  for (Dependency* access : task.unique_) {
    if (writes(access->merged))
      access->instance->open_writer = true;
    else
      ++access->instance->open_readers;
  }
  for (Dependency& dependency : task.dependencies) {
    if (dependency.instance == nullptr) dependency.instance = dependency.data->find(dependency.place);
  }
  // What a host task waits for is over, so others may go on using its stream for their copies.
  if (task.resolved_.kind != ExecPlace::Kind::host) {
    for (Stream* stream : task.streams_) stream->busy = true;
  }
  ++context_.open_tasks_;
  context_.owner_ = std::this_thread::get_id();
  task.state_ = Task::State::open;
}

// ---- Closing ---------------------------------------------------------------------------------------------

Tasks::Accesses Tasks::accesses(const Task& task) {
  Accesses result;
  for (const Dependency* access : task.unique_) {
    if (access->instance->address == 0) continue;
    if (reads(access->merged)) result.push_back({access->instance->address, access->data->nbytes(), false});
    if (writes(access->merged)) result.push_back({access->instance->address, access->data->nbytes(), true});
  }
  return result;
}

Status Tasks::describe_body(Task& task) {
  if (task.runs_ != 0) return {};  // the work that it enqueued says it all
  const Accesses touched = accesses(task);
  const std::string label = task.label();
  Work work{label, task.cost_us, task.sms, task.waves, {touched.data(), touched.size()}};
  for (Stream* stream : task.streams_) {
    Status status = context_.runtime().driver().end_body(stream->handle(), work);
    if (!status.ok()) return status;
    work.accesses = {};  // the places of a grid share the data; who touches what is told by shards
  }
  return {};
}

void Tasks::run(Task& task, HostFunction function, HostFunction release, void* argument) {
  if (task.state_ != Task::State::open) {
    release(argument);
    throw Error(ErrorKind::task_state, task.label() + " is not open: run() belongs inside its body");
  }
  const Accesses touched = accesses(task);
  const std::string label = task.label();
  // The cost hint is the whole task's: its first piece of work takes it.
  const Work work{
      label, task.runs_ == 0 ? task.cost_us : 0, task.sms, task.waves, {touched.data(), touched.size()}};
  ++task.runs_;
  context_.runtime()
      .driver()
      .host_work(task.streams_.front()->handle(), function, release, argument, work)
      .check();
}

Status Tasks::leave(Task& task) {
  leave_places(task);
  for (Stream* stream : task.streams_) stream->busy = false;
  unpin(task);
  if (task.range_ != 0) end_range(std::exchange(task.range_, 0));
  return task.current_.end(context_.runtime().driver());
}

void Tasks::check_default_streams(const Task& task) {
  if (!context_.runtime().settings().check_streams || task.resolved_.kind == ExecPlace::Kind::host) return;
  for (Stream* stream : task.streams_) {
    Status status =
        context_.runtime().driver().query_default_streams(context_.runtime().primary(stream->device()));
    if (status.is(Code::not_ready)) {
      throw Error(ErrorKind::task_state, task.label() + " put work on the default stream of device " +
                                             std::to_string(stream->device()) +
                                             ": launch on the task's own stream (stream_ptr())");
    }
    status.check();
  }
}

void Tasks::close(Task& task, Body body, bool failed, const Interrupt& interrupt) {
  if (task.state_ != Task::State::open) {
    throw Error(ErrorKind::task_state,
                task.label() + " is not open: start it before it is ended, and end it once");
  }
  task.state_ = Task::State::ended;
  --context_.open_tasks_;
  ++context_.statistics_.tasks;
  if (task.resolved_.kind == ExecPlace::Kind::host) {
    ++context_.host_tasks_;
  } else {
    for (Stream* each : task.streams_) ++each->tasks;
  }
  Runtime& runtime = context_.runtime();
  const bool on_host = task.resolved_.kind == ExecPlace::Kind::host;
  Stream& stream = *task.streams_.front();
  for (Dependency* access : task.unique_) {
    if (writes(access->merged))
      access->instance->open_writer = false;
    else
      --access->instance->open_readers;
  }
  Status status;
  std::exception_ptr broken;
  if (runtime.simulated() && body == Body::work && !on_host) status = describe_body(task);
  try {
    if (context_.trace_ && task.trace_ != ~std::size_t{0}) context_.trace_->close(task.trace_, stream);
    join(task);
  } catch (const Error&) {
    broken = std::current_exception();
    for (Stream* each : task.streams_) each->settle();  // so that one point still stands for all of them
  }
  PointRef point;
  if (!(on_host && body == Body::work)) point = stream.advance();
  replace_points(task, point);
  for (Dependency* access : task.unique_) {
    if (!writes(access->merged)) continue;
    Coherence::wrote(*access->data, *access->instance);
    access->data->poisoned_by_ = failed ? task.label() : std::string();
  }
  const Status left = leave(task);
  if (broken) std::rethrow_exception(broken);
  status.check();
  left.check();
  check_default_streams(task);
  if (runtime.settings().sync_each_task && point) {
    try {
      Stream::synchronize(runtime.driver(), point, interrupt);
    } catch (const Error& error) {
      if (error.kind == ErrorKind::interrupted) throw;
      throw Error(error.kind, task.label() + ": " + error.what(), error.failure);
    }
  }
}

}  // namespace stf_places
