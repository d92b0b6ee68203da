#include "core/scope.hpp"

#include <algorithm>

#include "core/coherence.hpp"
#include "core/entry.hpp"
#include "core/tasks.hpp"

namespace stf_places {

std::shared_ptr<Scope> Scope::open(const std::shared_ptr<Context>& outer, Kind kind, std::uint64_t count,
                                   bool logged) {
  {
    Entry entry(*outer);
    outer->require_no_open_task("a scope cannot begin");
    if (kind == Kind::graph) reap(outer->spent_, false, {});
  }
  std::shared_ptr<Scope> made(new Scope(outer, kind, count));
  ++outer->scopes_inside_;
  if (logged || outer->log_) made->inner_->log_ = std::make_unique<GraphLog>();
  return made;
}

Scope::Scope(std::shared_ptr<Context> outer, Kind kind, std::uint64_t count)
    : outer_(std::move(outer)), kind_(kind), count_(count) {
  ContextOptions options;
  options.graph = true;
  options.scope = this;
  inner_ = std::make_shared<Context>(outer_->runtime_, outer_->pool_, options);
}

Scope::~Scope() {
  try {
    if (state_ == State::recording) discard();
    release({});
  } catch (const Error&) {
    // Lost with its device.
  }
}

const std::shared_ptr<Context>& Scope::outermost() const {
  const Scope* scope = this;
  while (scope->outer_->scope_ != nullptr) scope = scope->outer_->scope_;
  return scope->outer_;
}

// ---- Data ------------------------------------------------------------------------------------------------

// Null when nothing does.
Data* Scope::stand_in(Data& data) const {
  Data* found = &data;
  while (found != nullptr && found->context_ != inner_.get()) found = found->inside_;
  return found;
}

// The data, or what stands for it, in the context around this scope.
Data& Scope::neighbour(Data& data, const DataPlace& place) {
  if (data.context_ == outer_.get()) return data;
  if (outer_->scope_ == nullptr || data.context_ == nullptr) refuse_foreign(data);
  return outer_->scope_->bring(data, place);
}

Data& Scope::bring(Data& data, const DataPlace& place) {
  Data* inner = stand_in(data);
  if (inner == nullptr) return *import(neighbour(data, place), place, data.options_.read_only).inner;
  Import* import = inner->import_;
  if (import != nullptr && import->read_only && !inner->token()) add_home(*import, place);
  return *inner;
}

void Data::set_read_only() {
  if (inside_ != nullptr && inside_->import_ != nullptr && writes(inside_->import_->mode)) {
    throw Error(ErrorKind::task_state,
                label() + " was written in the scope that is open: make it read-only before, or outside");
  }
  options_.read_only = true;
}

void Context::push(Data& data, AccessMode mode, const DataPlace& place) {
  Entry entry(*this);
  scope_->push(data, mode, place);
}

void Scope::push(Data& data, AccessMode mode, const DataPlace& asked) {
  require_recording("push()");
  const bool read_only = !writes(mode);
  DataPlace place = asked;
  if (place.kind == DataPlace::Kind::affine) place = DataPlace::on(outer_->runtime_->current_device());
  if (Data* known = stand_in(data)) {
    if (known->import_ == nullptr) return;  // of the scope's own
    if (known->import_->read_only == read_only) return known->import_->note(mode);
    throw Error(ErrorKind::task_state,
                data.label() + " is in this scope already, " +
                    (read_only ? "where tasks may write it: push it for reading before they use it"
                               : "for reading only: push it with the mode that the tasks need"));
  }
  import(neighbour(data, place), place, read_only).note(mode);
}

// The memory of host places can be pageable, which a graph that is launched again cannot read: a device
// stands in for it.
DataPlace Scope::home_for(const Context& outer, const Data& data, const DataPlace& place) {
  if (data.token()) return DataPlace::host();
  if (place.kind != DataPlace::Kind::host) return place;
  for (const auto& instance : data.instances_) {
    if (instance->valid() && instance->place.on_devices()) return instance->place;
  }
  return DataPlace::on(outer.runtime_->current_device());
}

Import& Scope::import(Data& outer, const DataPlace& place, bool read_only) {
  DataOptions options;
  options.name = outer.options_.name;
  options.nbytes = outer.nbytes();
  options.token = outer.token();
  options.read_only = read_only;
  auto made = std::make_unique<Import>();
  made->outer = &outer;
  made->read_only = read_only;
  const DataPlace home = home_for(*outer_, outer, place);
  if (outer.token()) {
    made->homes.push_back(&Coherence(*outer_).instance(outer, home));
  } else {
    add_home(*made, home);
    options.source = made->homes.front()->address;
    options.source_place = home;
  }
  Data* inner = inner_->make(std::move(options), outer.number_);
  inner->poisoned_by_ = outer.poisoned_by_;
  if (!outer.has_value()) inner->instances_.front()->state = InstanceState::invalid;
  inner->import_ = made.get();
  made->inner = inner;
  outer.inside_ = inner;
  imports_.push_back(std::move(made));
  return *imports_.back();
}

// Memory of the data around, which stays where it is from now on; what is only read can have several.
void Scope::add_home(Import& import, const DataPlace& place) {
  if (!import.homes.empty() && (!place.on_devices() || import.inner->find(place) != nullptr)) return;
  Entry entry(*outer_);
  Context& outer = *outer_;
  Instance& home = Coherence(outer).instance(*import.outer, place);
  if (!home.has_memory()) {
    const int device = place.on_devices() ? place.home() : 0;
    outer.memory_.allocate(*import.outer, home, *outer.ordering_stream(device));
  }
  ++home.pins;
  import.homes.push_back(&home);
  if (import.inner == nullptr) return;
  import.inner->add_source(place, home.address).state = InstanceState::shared;
  import.inner->instances_.front()->state = InstanceState::shared;
}

// From here on others may stand for the data around.
void Scope::unlink() noexcept {
  --outer_->scopes_inside_;
  for (const auto& import : imports_) {
    if (import->outer->inside_ == import->inner) import->outer->inside_ = nullptr;
  }
}

void Scope::require_recording(const char* what) const {
  if (state_ == State::recording) return;
  throw Error(ErrorKind::task_state, std::string(what) + ": this scope has ended");
}

void Scope::require_taking(const Task& task) const {
  if (state_ != State::recording) {
    throw Error(ErrorKind::task_state, task.label() + " comes too late: its scope has ended");
  }
  if (!settled_ || reading_) return;
  throw Error(ErrorKind::task_state,
              task.label() +
                  " comes too late: continue_while() ends the body of a loop, so tasks "
                  "stand before it");
}

// ---- Ends ------------------------------------------------------------------------------------------------

// The values go where what is around looks for them.
void Scope::write_back() {
  for (const auto& import : imports_) {
    if (writes(import->mode)) inner_->write_back(*import->inner);
  }
}

// What was recorded so far becomes a piece.
void Scope::cut() {
  Context& inner = *inner_;
  if (!inner.recording_->open()) return;
  Piece piece;
  piece.graph = inner.recording_->finish();
  inner.forget_points();
  const GraphExecs::Size now{inner.statistics_.tasks, inner.statistics_.copies};
  if (plain_) piece.size = {now.tasks - before_.tasks, now.copies - before_.copies};
  before_ = now;
  plain_ = true;
  pieces_.push_back(std::move(piece));
}

void Scope::finish(const Interrupt& interrupt) {
  require_recording("the end of a scope");
  {
    Entry entry(*inner_);
    inner_->require_no_open_task("a scope cannot end");
    inner_->interrupt_ = interrupt;
    if (!spoiled_.empty())
      throw Error(ErrorKind::task_state, "what this scope recorded cannot run: " + spoiled_);
    if (!is_loop()) write_back();
  }
  if (is_loop()) return close_loop(interrupt);
  {
    Entry entry(*inner_);
    cut();
    make_ready();
  }
  Statistics& total = outer_->statistics_;
  total.tasks += inner_->statistics_.tasks;
  total.copies += inner_->statistics_.copies;
  total.bytes_copied += inner_->statistics_.bytes_copied;
  total.allocations += inner_->statistics_.allocations;
  unlink();
  state_ = State::ready;
}

void Scope::discard() noexcept {
  if (state_ != State::recording) return;
  unlink();
  for (const auto& import : imports_) import->mode = AccessMode::none;
  inner_->recording_->discard();
  inner_->forget_points();
  for (Data* data : inner_->data_) {
    for (auto& instance : data->instances_) {
      instance->open_writer = false;
      instance->open_readers = 0;
    }
  }
  state_ = State::ready;  // with nothing to run
  try {
    release_pieces();
    pieces_.clear();
    release({});
  } catch (const Error&) {
    // The destructor tries again.
  }
}

void Scope::release_pieces() {
  Driver& driver = inner_->runtime().driver();
  for (Piece& piece : pieces_) {
    if (piece.loop) piece.loop->release({});
    if (const GraphExecHandle exec = std::exchange(piece.exec, 0)) {
      if (piece.size.tasks != 0)
        inner_->pool_->execs().give(exec, piece.size);
      else
        driver.destroy_graph_exec(exec).ignore();
    }
    if (const GraphHandle graph = std::exchange(piece.graph, 0)) driver.destroy_graph(graph).ignore();
  }
  for (const auto& loop : inline_loops_) loop->release({});
}

void Scope::release(const Interrupt& interrupt) {
  if (state_ == State::released) return;
  if (state_ == State::recording) return discard();
  Driver& driver = inner_->runtime().driver();
  if (last_ != nullptr && !outer_->closed()) driver.synchronize_stream(last_->handle(), interrupt).check();
  last_ = nullptr;
  state_ = State::released;
  release_pieces();
  std::vector<Data*> ours;
  for (const auto& import : imports_) ours.push_back(import->inner);
  {
    Entry entry(*inner_, Entry::Closed::allow);
    if (!inner_->closed()) inner_->release_at_last();
  }
  for (Data* data : ours) delete data;
  const bool open = !outer_->closed();
  for (const auto& import : imports_) {
    if (!open || import->outer->token()) continue;
    for (Instance* home : import->homes) --home->pins;
  }
  imports_.clear();
  for (Data* counter : std::exchange(counters_, {})) Context::drop(outermost(), counter);
}

void Scope::reap(std::vector<std::weak_ptr<Scope>>& spent, bool wait, const Interrupt& interrupt) {
  constexpr std::size_t most = 4;  // that hold memory while they run
  std::size_t left = spent.size();
  std::erase_if(spent, [&](const std::weak_ptr<Scope>& one) {
    const std::shared_ptr<Scope> scope = one.lock();
    if (scope && (wait || left > most || scope->idle())) scope->release(interrupt);
    const bool gone = !scope || scope->state() == State::released;
    if (gone) --left;
    return gone;
  });
}

}  // namespace stf_places
