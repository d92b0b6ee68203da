#include "core/tasks.hpp"

#include <algorithm>
#include <exception>
#include <iterator>

#include "core/coherence.hpp"
#include "core/page_ranges.hpp"
#include "core/ranges.hpp"
#include "core/scope.hpp"

namespace stf_places {

std::string Task::label() const {
  return symbol.empty() ? "task " + std::to_string(number_) : "task '" + symbol + "'";
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
      if (access->place.on_devices()) device = access->place.home();
      for (const auto& instance : access->data->instances_) {
        if (instance->valid() && instance->place.on_devices() && !access->place.on_devices()) {
          device = instance->place.home();
        }
      }
    }
    task.streams_.push_back(context_.transfer_stream(device));
    return;
  }
  if (task.resolved_.kind != ExecPlace::Kind::grid) return pick_stream(task, task.resolved_);
  for (const ExecPlace& place : *task.resolved_.places) {
    pick_stream(task, place);
    task.streams_.back()->busy = true;  // so that a place listed twice gets two streams
  }
  for (Stream* stream : task.streams_) stream->busy = false;
}

void Tasks::pick_stream(Task& task, const ExecPlace& place) {
  Context::PlaceStreams& group = context_.streams_of(place, task.priority, false);
  Stream* stream = predecessor(task, &group);
  if (stream == nullptr) stream = context_.free_stream(group);
  if (stream == nullptr) stream = shared_stream(task, group.streams);
  if (stream == nullptr) stream = context_.next_stream(group);
  task.streams_.push_back(stream);
}

// A place that a grid lists more often than it has streams uses them again, in turn.
Stream* Tasks::shared_stream(const Task& task, const std::vector<Stream*>& streams) {
  std::vector<Stream*> own;
  std::copy_if(streams.begin(), streams.end(), std::back_inserter(own), [&](const Stream* stream) {
    return std::find(task.streams_.begin(), task.streams_.end(), stream) != task.streams_.end();
  });
  if (own.empty()) return nullptr;
  const auto taken = std::count_if(task.streams_.begin(), task.streams_.end(),
                                   [&](const Stream* stream) { return stream->group == own.front()->group; });
  return own[static_cast<std::size_t>(taken) % own.size()];
}

// ---- Data ------------------------------------------------------------------------------------------------

void Tasks::prepare(Task& task, Body body) {
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
    if (access->place.pages != nullptr && body != Body::scope) open_pages(task, instance);
    instance.last_use = ++context_.tick_;
  }
}

// Devices of the task that are none of a composite place's use its pages, too.
void Tasks::open_pages(const Task& task, const Instance& instance) {
  if (task.resolved_.kind == ExecPlace::Kind::host || !instance.has_memory()) return;
  for (std::size_t i = 0; i < task.streams_.size(); ++i) {
    context_.runtime()
        .page_ranges()
        .let(*instance.place.pages, instance.address, task.place_at(i).device)
        .check();
  }
}

void Tasks::unpin(Task& task) {
  for (Dependency* access : task.unique_) {
    if (access->instance != nullptr) --access->instance->pins;
    access->instance = nullptr;
  }
}

// A scope uses what its tasks use.
void Tasks::note_imports(const Task& task) {
  for (const Dependency* access : task.unique_) {
    if (Import* import = access->data->import_) import->note(access->merged);
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
    task.streams_[i]->follow({&start, 1});
  }
  task.streams_.front()->before_operation();
}

void Tasks::join(Task& task) {
  if (context_.log_) log(task);
  if (task.streams_.size() == 1) return;
  Stream& first = *task.streams_.front();
  for (std::size_t i = 1; i < task.streams_.size(); ++i) {
    PointRef done = task.streams_[i]->advance();
    first.wait(done);
  }
}

void Tasks::log(const Task& task) {
  const bool on_host = task.resolved_.kind == ExecPlace::Kind::host;
  for (std::size_t i = 0; i < task.streams_.size(); ++i) {
    context_.log_->add(context_.recording_->after(task.stream(i)), on_host ? "host" : "task",
                       task.symbol.empty() ? task.label() : task.symbol, to_string(task.place_at(i)));
  }
}

// One record for each place, on its stream.
void Tasks::trace_places(Task& task) {
  for (std::size_t i = 0; i < task.streams_.size(); ++i) {
    const ExecPlace& place = task.place_at(i);
    task.traces_.push_back(context_.trace_->open({.kind = "task",
                                                  .symbol = task.symbol.empty() ? task.label() : task.symbol,
                                                  .place = to_string(place),
                                                  .device = place.device,
                                                  .stream = task.streams_[i]->index()},
                                                 *task.streams_[i]));
  }
}

void Tasks::enter_body(Task& task, Body body, bool pending, const Interrupt& interrupt) {
  Runtime& runtime = context_.runtime();
  Stream& stream = *task.streams_.front();
  if (ranges_enabled() && body != Body::callback) {
    task.range_ = begin_range((task.symbol.empty() ? task.label() : task.symbol).c_str());
  }
  if (context_.trace_) trace_places(task);
  if (body != Body::work) return;
  if (task.resolved_.kind == ExecPlace::Kind::host) {
    if (context_.recording()) {
      context_.flush(interrupt);
    } else if (pending || context_.options_.has_stream) {
      Stream::synchronize(runtime.driver(), stream.advance(), interrupt);
    }
    return;
  }
  if (runtime.simulated() && !context_.recording()) {
    for (Stream* each : task.streams_) runtime.driver().begin_body(each->handle(), interrupt).check();
  }
}

void Tasks::open(Task& task, Body body, const Interrupt& interrupt) {
  if (task.state_ != Task::State::created) {
    throw Error(ErrorKind::task_state,
                task.label() + " was started before: a task runs once, make a new one");
  }
  if (context_.scope_ != nullptr) context_.scope_->require_taking(task);
  if (context_.scopes_inside_ != 0 && (body == Body::work || body == Body::callback)) {
    throw Error(ErrorKind::task_state,
                "the task was made before the scope that is open now: a task starts in the innermost scope, "
                "so make it there");
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
    for (std::size_t i = 0; body != Body::scope && i < task.dependencies.size(); ++i) check_reach(task, i);
    make_current(task, current);
    choose_streams(task);
    prepare(task, body);
    if (context_.scope_ != nullptr) note_imports(task);
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
  const auto find_instance = [](Dependency& dependency) {
    if (dependency.instance == nullptr) dependency.instance = dependency.data->find(dependency.place);
  };
  for (Dependency& dependency : task.dependencies) find_instance(dependency);
  for (const auto& replica : task.replicas_) find_instance(*replica.second);
  for (std::size_t i = 0; i < task.streams_.size(); ++i) task.runs_.push_back(0);
  if (task.streams_.size() > 1) task.whole_ = context_.runtime().next_whole();
  // What a host task waits for is over, so others may go on using its stream for their copies. In a graph a
  // callback's stream holds its dependencies.
  if (task.resolved_.kind != ExecPlace::Kind::host || context_.recording()) {
    for (Stream* stream : task.streams_) stream->busy = true;
  }
  ++context_.open_tasks_;
  context_.owner_ = std::this_thread::get_id();
  task.state_ = Task::State::open;
}

// ---- Closing ---------------------------------------------------------------------------------------------

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
  if (runtime.simulated() && body == Body::work && !on_host && !context_.recording())
    status = describe_body(task);
  try {
    for (std::size_t i = 0; i < task.traces_.size(); ++i) {
      context_.trace_->close(task.traces_[i], *task.streams_[i]);
    }
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
      if (!context_.recording())
        Stream::synchronize(runtime.driver(), point, interrupt);
      else if (context_.open_tasks_ == 0 && context_.scope_ == nullptr)
        context_.flush(interrupt);
    } catch (const Error& error) {
      if (error.kind == ErrorKind::interrupted) throw;
      throw Error(error.kind, task.label() + ": " + error.what(), error.failure);
    }
  }
}

}  // namespace stf_places
