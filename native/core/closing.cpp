// How a context ends: values go back, work completes, memory is released.
#include <algorithm>

#include "core/coherence.hpp"
#include "core/context.hpp"
#include "core/entry.hpp"

namespace stf_places {

void Context::require_no_open_task(const char* what) const {
  if (open_tasks_ == 0) return;
  throw Error(ErrorKind::task_state, std::string(what) + " while " + std::to_string(open_tasks_) +
                                         " task(s) of this context are open: end them first");
}

StreamHandle Context::fence() {
  Entry entry(*this);
  require_no_open_task("fence()");
  if (recording_) launch_recorded();
  Stream* stream = ordering_stream(0);
  stream->before_operation();
  for (const auto& other : streams_) {
    if (other->tail()) stream->wait(other->tail());
  }
  stream->advance();
  return stream->handle();
}

void Context::join_caller() {
  Driver& driver = runtime_->driver();
  for (const auto& stream : streams_) {
    EventPool& pool = events_of(stream->context());
    EventHandle event = pool.take();
    Status status = driver.record_event(event, stream->handle());
    if (status.ok()) status = driver.wait_event(options_.stream, event);
    pool.give(event);
    status.check();
  }
}

void Context::drain(const Interrupt& interrupt) {
  for (const auto& stream : streams_) {
    runtime_->driver().synchronize_stream(stream->handle(), interrupt).check();
  }
}

void Context::release_unordered() {
  Runtime::Retired memory = memory_.take_unordered();
  if (options_.has_stream && exec_ != 0) memory.execs.push_back(std::exchange(exec_, 0));
  if (memory.host_blocks.empty() && memory.ranges.empty() && memory.execs.empty()) return;
  Driver& driver = runtime_->driver();
  if (!options_.has_stream) {
    runtime_->give_back(memory).check();
    return;
  }
  ContextHandle context = 0;
  EventHandle event = 0;
  try {
    driver.stream_context(options_.stream, &context).check();
    driver.create_event(context, false, &event).check();
    driver.record_event(event, options_.stream).check();
  } catch (const Error&) {
    if (event != 0) driver.destroy_event(event).ignore();
    drain({});  // nobody waits for the event then
    runtime_->give_back(memory).ignore();
    throw;
  }
  runtime_->retire(event, std::move(memory));
}

void Context::release_everything() {
  for (Data* data : data_) {
    for (auto& instance : data->instances_) memory_.recycle(*data, *instance);
  }
  memory_.release_all();
  if (options_.has_stream) join_caller();
  release_unordered();
  if (trace_ && !options_.has_stream) trace_->resolve();
  release_recording();
  forget_everything();
}

// A call that fails on the way is tried again once, so that nothing stays behind.
void Context::release_at_last() {
  try {
    drain({});
    release_everything();
  } catch (const Error&) {
    drain({});
    release_everything();
  }
}

void Context::forget_everything() noexcept {
  for (Data* data : data_) {
    data->instances_.clear();
    data->context_ = nullptr;
  }
  data_.clear();
  memory_.forget_all();
  for (auto& stream : streams_) stream->forget();
  launched_.reset();
  discard_recorded();
  last_place_ = nullptr;
  closed_ = true;
}

void Context::finalize(const Interrupt& interrupt) {
  Entry entry(*this, Entry::Closed::allow);
  if (closed_) return;
  require_no_open_task("finalize()");
  interrupt_ = interrupt;
  try {
    for (Data* data : data_) write_back(*data);
    if (recording_) launch_recorded();
    if (!options_.has_stream) drain(interrupt);
    release_everything();
  } catch (const Error& error) {
    if (error.kind == ErrorKind::device_lost) lose(error);
    throw;
  }
}

void Context::after_all(HostFunction function, void* argument) {
  Entry entry(*this, Entry::Closed::allow);
  runtime_->driver().host_function(options_.stream, function, argument).check();
}

void Context::lose(const Error& error) {
  std::vector<std::string> skipped;
  for (const Data* data : data_) {
    if (!data->has_source() || data->options_.read_only) continue;
    const Instance* source = data->find(data->options_.source_place);
    // With a write on its way nobody can tell any more whether it arrived.
    if (source == nullptr || !source->valid() || source->writer || data->writing_back_)
      skipped.push_back(data->label());
  }
  forget_everything();
  std::string text = error.what();
  if (!skipped.empty()) {
    text += "; not written back: ";
    for (std::size_t i = 0; i < skipped.size(); ++i) text += (i == 0 ? "" : ", ") + skipped[i];
  }
  throw Error(ErrorKind::device_lost,
              text + "; the context is closed, start a new process to use the device again", error.failure);
}

}  // namespace stf_places
