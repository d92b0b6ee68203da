// How what a scope recorded is made ready, and run.
#include "core/coherence.hpp"
#include "core/entry.hpp"
#include "core/scope.hpp"
#include "core/tasks.hpp"

namespace stf_places {

// ---- Making ready ----------------------------------------------------------------------------------------

// An executable that an earlier scope left, if it can be made to fit; else a new one.
void Scope::make_executable(Piece& piece) {
  Driver& driver = inner_->runtime().driver();
  GraphExecHandle exec = 0;
  if (piece.size.tasks != 0) exec = inner_->pool_->execs().take(piece.size);
  if (exec != 0) {
    bool fits = false;
    Status status = driver.update_graph_exec(exec, piece.graph, &fits);
    if (status.ok() && fits) {
      piece.exec = exec;
      return;
    }
    driver.destroy_graph_exec(exec).ignore();
    status.check();
  }
  driver.instantiate_graph(piece.graph, &piece.exec).check();
  ++outermost()->statistics_.graphs_instantiated;
}

void Scope::make_ready() {
  for (Piece& piece : pieces_) {
    if (piece.loop && !piece.loop->obstacle_.empty()) {
      piece.loop->make_ready();  // the host goes round
      continue;
    }
    if (piece.loop) {
      inner_->runtime().driver().create_graph(&piece.graph).check();
      piece.loop->put_loop(piece.graph, {}, false);
    }
    make_executable(piece);
  }
}

// ---- Running ---------------------------------------------------------------------------------------------

void Scope::fill_task(Task& task) const {
  for (const auto& import : imports_) {
    if (import->mode == AccessMode::none) continue;
    task.dependencies.push_back({import->outer, import->mode, import->homes.front()->place});
    for (std::size_t i = 1; i < import->homes.size(); ++i)
      task.dependencies.push_back({import->outer, AccessMode::read, import->homes[i]->place});
  }
}

// Memory of the scope's own is there before its first launch.
void Scope::order_memory(Stream& stream) {
  Driver& driver = inner_->runtime().driver();
  for (Stream* other : inner_->ordering_streams_) {
    if (other == nullptr || !other->tail()) continue;
    driver.wait_event(stream.handle(), Stream::event_of(other->tail())).check();
  }
  for (const Piece& piece : pieces_) {
    if (piece.loop) piece.loop->order_memory(stream);
  }
  for (const auto& loop : inline_loops_) loop->order_memory(stream);
}

void Scope::run_pieces(Stream& stream, const Interrupt& interrupt) {
  Driver& driver = inner_->runtime().driver();
  for (const Piece& piece : pieces_) {
    if (piece.exec != 0) {
      driver.launch_graph(piece.exec, stream.handle()).check();
      ++outermost()->statistics_.graphs_launched;
    } else if (piece.loop) {
      piece.loop->run_rounds(stream, interrupt);
    }
  }
}

void Scope::run_rounds(Stream& stream, const Interrupt& interrupt) {
  Driver& driver = inner_->runtime().driver();
  if (kind_ == Kind::repeat) {
    for (std::uint64_t round = 0; round < count_; ++round) {
      if (interrupt.pending()) Status(Failure{Code::interrupted}).check();
      run_pieces(stream, interrupt);
    }
    return;
  }
  do {
    // The wait looks for signals only while there is something to wait for.
    if (interrupt.pending()) Status(Failure{Code::interrupted}).check();
    run_pieces(stream, interrupt);
    driver.synchronize_stream(stream.handle(), interrupt).check();
  } while (driver.executes() && holds(when_));
}

// What a task in the scope left half-written counts as written by it.
void Scope::mark_poisoned() noexcept {
  for (const auto& import : imports_) {
    if (writes(import->mode) && !import->inner->poisoned_by_.empty())
      import->outer->poisoned_by_ = import->inner->poisoned_by_;
  }
}

void Scope::run(const Interrupt& interrupt) {
  if (state_ != State::ready) {
    throw Error(ErrorKind::task_state,
                state_ == State::released
                    ? "the graph was reset, or discarded: record a new one"
                    : "the graph is still being recorded: launch it once its scope has ended");
  }
  Entry entry(*outer_);
  outer_->require_no_open_task("a graph cannot be launched");
  Task task;
  task.symbol = "graph";
  task.place = ExecPlace::on(inner_->launch_device());
  fill_task(task);
  Tasks tasks(*outer_);
  tasks.open(task, Body::scope, interrupt);
  Stream& stream = *task.streams_.front();
  try {
    if (!std::exchange(ordered_, true)) order_memory(stream);
    // Launches share the memory of the scope's own. One executable follows itself, several graphs would not.
    if (last_ != nullptr && last_ != &stream && last_->tail()) stream.wait(last_->tail());
    last_ = &stream;
    run_pieces(stream, interrupt);
  } catch (...) {
    tasks.close(task, Body::scope, true, {});
    throw;
  }
  tasks.close(task, Body::scope, false, interrupt);
  mark_poisoned();
}

bool Scope::idle() {
  if (last_ == nullptr || outer_->closed()) return true;
  return inner_->runtime().driver().query_stream(last_->handle()).ok();
}

void Scope::leave_behind() {
  if (state_ == State::ready) outermost()->spent_.push_back(weak_from_this());
}

namespace {
[[noreturn]] void refuse_several(const char* what) {
  throw Error(
      ErrorKind::not_supported,
      std::string(
          "this runs as several graphs, because the host drives a loop in it or it is empty, so it has "
          "no single ") +
          what + ": launch() runs it");
}
}  // namespace

GraphHandle Scope::graph() const {
  if (pieces_.size() != 1 || pieces_.front().graph == 0) refuse_several("graph");
  return pieces_.front().graph;
}

GraphExecHandle Scope::executable() const {
  if (pieces_.size() != 1 || pieces_.front().exec == 0) refuse_several("executable");
  return pieces_.front().exec;
}

// A stream of the place that it is launched on.
StreamHandle Scope::stream() {
  if (last_ != nullptr && !outer_->closed()) return last_->handle();
  Entry entry(*outer_);
  return outer_->next_stream(outer_->streams_of(ExecPlace::on(inner_->launch_device()), 0, false))->handle();
}

}  // namespace stf_places
