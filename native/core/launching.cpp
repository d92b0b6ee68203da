// How a context with graphs runs what it recorded.
#include "core/context.hpp"

namespace stf_places {

void Context::flush(const Interrupt& interrupt) {
  if (!recording_) return;
  if (scope_ != nullptr) {
    throw Error(
        ErrorKind::task_state,
        "what a scope records is run when the scope ends, so nothing in it can be waited for: leave the "
        "scope first; work of the host is recorded with host_launch");
  }
  if (open_tasks_ != 0) {
    throw Error(
        ErrorKind::task_state,
        "what a graph context has recorded cannot be run while " + std::to_string(open_tasks_) +
            " task(s) are open, whose work is part of it: end them first, and use host_launch for work "
            "of the host in between");
  }
  launch_recorded();
  wait_for_launch(interrupt);
}

void Context::wait_for_launch(const Interrupt& interrupt) {
  if (!launch_pending_) return;
  runtime_->driver().synchronize_stream(launched_->stream->handle(), interrupt).check();
  launch_pending_ = false;
  for (Data* data : data_) data->writing_back_ = false;
}

// A graph that could not be launched is kept, and launched by the next that asks.
void Context::launch_recorded() {
  if (unlaunched_ != 0) launch(unlaunched_);
  if (!recording_->open()) return;
  // Memory that was asked for on these streams is there before the graph, and freed behind it.
  Stream& stream = *ordering_stream(launch_device());
  stream.before_operation();
  for (Stream* other : ordering_streams_) {
    if (other != nullptr && other->tail()) stream.wait(other->tail());
  }
  const GraphHandle graph = recording_->finish();
  forget_points();
  launch(graph);
}

void Context::launch(GraphHandle graph) {
  Driver& driver = runtime_->driver();
  unlaunched_ = graph;
  Stream& stream = *ordering_stream(launch_device());
  driver.launch_graph(executable(graph), stream.handle()).check();
  unlaunched_ = 0;
  recorded_before_ = {statistics_.tasks, statistics_.copies};
  ++statistics_.graphs_launched;
  driver.destroy_graph(graph).ignore();
  launched_ = stream.advance();
  launch_pending_ = true;
  try {
    for (Stream* other : ordering_streams_) {
      if (other != nullptr) other->follow({&launched_, 1});
    }
  } catch (const Error&) {
    stream.settle();  // so that nothing needs to be ordered behind it
    launch_pending_ = false;
    throw;
  }
}

// The executable of the graph before, or one that an earlier context left, if it can be made to fit; else a
// new one.
GraphExecHandle Context::executable(GraphHandle graph) {
  Driver& driver = runtime_->driver();
  const GraphExecs::Size size{statistics_.tasks - recorded_before_.tasks,
                              statistics_.copies - recorded_before_.copies};
  if (exec_ != 0 && !(exec_size_ == size)) {
    wait_for_launch({});
    give_executable();
  }
  if (exec_ == 0) exec_ = pool_->execs().take(size);
  exec_size_ = size;
  bool fits = false;
  if (exec_ != 0) driver.update_graph_exec(exec_, graph, &fits).check();
  if (exec_ != 0 && !fits) {
    wait_for_launch({});
    driver.destroy_graph_exec(std::exchange(exec_, 0)).check();
  }
  if (exec_ == 0) {
    driver.instantiate_graph(graph, &exec_).check();
    ++statistics_.graphs_instantiated;
  }
  return exec_;
}

// Leaves the executable to others.
void Context::give_executable() { pool_->execs().give(std::exchange(exec_, 0), exec_size_); }

// Nodes of a graph that was launched mean nothing to the next one, whose launch comes behind it.
void Context::forget_points() {
  for (Data* data : data_) {
    for (auto& instance : data->instances_) {
      if (instance->is_source && instance->writer) data->writing_back_ = true;
      instance->writer.reset();
      instance->readers.clear();
    }
  }
  memory_.forget_points();
  for (auto& stream : streams_) {
    if (stream->recording()) stream->forget();
  }
}

// What was recorded and not launched.
void Context::discard_recorded() noexcept {
  if (recording_) recording_->discard();
  if (unlaunched_ != 0) runtime_->driver().destroy_graph(std::exchange(unlaunched_, 0)).ignore();
}

// At the end of the context.
void Context::release_recording() {
  if (!recording_) return;
  discard_recorded();
  if (exec_ != 0) give_executable();
  launched_.reset();
  if (recorded_pool_) pool_->give_back(std::move(recorded_pool_));
}

}  // namespace stf_places
