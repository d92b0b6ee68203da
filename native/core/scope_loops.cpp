// Loops: when they go round again, and how they become a part of the scope around them.
#include <algorithm>

#include "core/coherence.hpp"
#include "core/entry.hpp"
#include "core/scope.hpp"
#include "core/tasks.hpp"

namespace stf_places {

namespace {
constexpr int loops_in_graphs = 12040;  // the first version of CUDA that has them
}  // namespace

// ---- Who drives it ---------------------------------------------------------------------------------------

// What keeps the device from running the body.
std::string Scope::find_obstacle() const {
  const Recording& recording = *inner_->recording_;
  int version = 0;
  inner_->runtime().driver().version(&version).check();
  if (version < loops_in_graphs)
    return "the driver is of CUDA " + version_text(version) + ", and loops in graphs come with 12.4";
  if (recording.obstacle() != nullptr) return recording.obstacle();
  for (const Piece& piece : pieces_) {
    if (piece.loop && !piece.loop->obstacle_.empty())
      return "the host drives a loop in it: " + piece.loop->obstacle_;
  }
  // A loop in it has put its own context there (close_loop).
  const std::vector<ContextHandle>& contexts = recording.contexts();
  if (contexts.empty()) return "its body has no work";
  if (contexts.size() > 1)
    return "its body has work on " + std::to_string(contexts.size()) +
           " places, and a device runs loops of one";
  return "";
}

const std::string& Scope::settle_body(const Interrupt& interrupt) {
  if (settled_) return obstacle_;
  require_recording("the end of a loop's body");
  Entry entry(*inner_);
  inner_->require_no_open_task("the body of a loop cannot end");
  inner_->interrupt_ = interrupt;
  write_back();
  obstacle_ = find_obstacle();
  settled_ = true;
  return obstacle_;
}

// ---- Conditions ------------------------------------------------------------------------------------------

namespace {
void name_term(LoopCondition& when, std::vector<ConditionTerm>& terms, bool any) {
  when.size = static_cast<std::uint32_t>(terms.size());
  when.any = any;
  for (std::size_t i = 0; i < terms.size(); ++i) when.terms[i] = terms[i].term;
}
}  // namespace

// Whether the value lies on the device, where the loop finds it after each round.
bool Scope::read_on_device(ConditionTerm& term, int device) {
  Data& data = bring(*term.data, DataPlace::on(device));
  data.require_whole();
  for (const auto& instance : data.instances_) {
    if (!instance->valid() || !instance->place.lies_on(device)) continue;
    if (data.import_ != nullptr) data.import_->note(AccessMode::read);
    term.term.value = instance->address;
    return true;
  }
  return false;
}

void Scope::read_on_host(std::vector<ConditionTerm>& terms, const Interrupt& interrupt) {
  Task task;
  task.symbol = "condition";
  task.place = ExecPlace::host();
  for (const ConditionTerm& term : terms)
    task.dependencies.push_back({term.data, AccessMode::read, DataPlace::host()});
  Tasks tasks(*inner_);
  tasks.open(task, Body::operation, interrupt);
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i].term.value = task.address(i);
  tasks.close(task, Body::operation, false, interrupt);
}

void Scope::continue_while(const std::vector<ConditionTerm>& asked, bool any, Address kernel,
                           const Interrupt& interrupt) {
  if (asked_) {
    throw Error(ErrorKind::task_state,
                "the loop has its condition already: call continue_while() once, at the end of the body");
  }
  settle_body(interrupt);
  Entry entry(*inner_);
  std::vector<ConditionTerm> terms = asked;
  reading_ = true;
  try {
    const int device = inner_->launch_device();
    const auto lies_here = [&](ConditionTerm& term) { return read_on_device(term, device); };
    if (obstacle_.empty() && !std::all_of(terms.begin(), terms.end(), lies_here))
      obstacle_ = "a value of its condition is not on the loop's device";
    if (!obstacle_.empty()) read_on_host(terms, interrupt);
  } catch (...) {
    reading_ = false;
    throw;
  }
  reading_ = false;
  name_term(when_, terms, any);
  kernel_ = kernel;
  asked_ = true;
}

ConditionHandle Scope::condition(const Interrupt& interrupt) {
  if (condition_ != 0) return condition_;
  if (outer_->scope_ == nullptr || outer_->scope_->kind_ != Kind::graph) {
    throw Error(ErrorKind::not_supported,
                "a loop within a loop has no handle for kernels of your own: use continue_while()");
  }
  require_recording("cond_handle");
  Entry entry(*outer_);
  Context& outer = *outer_;
  outer.interrupt_ = interrupt;
  // The handle is of the graph around, which is opened by its first operation.
  const int device = outer.runtime_->current_device();
  const ExecPlace place =
      inner_->first_place_.kind == ExecPlace::Kind::current ? ExecPlace::on(device) : inner_->first_place_;
  if (!outer.recording_->open()) outer.next_stream(outer.streams_of(place, 0, false))->before_operation();
  const ContextHandle context =
      place.kind == ExecPlace::Kind::context ? place.context : outer.runtime_->primary(place.device);
  outer.runtime_->driver().create_condition(outer.recording_->graph(), context, &condition_).check();
  return condition_;
}

// ---- Becoming a part of what is around -------------------------------------------------------------------

// Rounds are counted on the device.
void Scope::make_counter(int device) {
  const std::shared_ptr<Context>& root = outermost();
  const std::uint64_t zero = 0;
  DataOptions options;
  options.name = "rounds";
  options.nbytes = sizeof zero;
  Data* made = root->create(std::move(options));
  Scope* top = this;
  while (top->is_loop()) top = top->outer_->scope_;
  top->counters_.push_back(made);
  root->fill(*made, ExecPlace::on(device), DataPlace::on(device), &zero, sizeof zero);
  Entry entry(*inner_);
  Data& counter = bring(*made, DataPlace::on(device));
  counter.import_->note(AccessMode::rw);
  when_.counter = counter.instances_.front()->address;
  when_.count = count_;
}

void Scope::close_loop(const Interrupt& interrupt) {
  settle_body(interrupt);
  const bool empty = pieces_.empty() && !inner_->recording_->open();
  if (kind_ == Kind::repeat && (count_ == 0 || empty)) return discard();
  if (kind_ == Kind::repeat && obstacle_.empty()) make_counter(inner_->launch_device());
  if (kind_ == Kind::while_loop && !asked_ && condition_ == 0) {
    throw Error(ErrorKind::task_state,
                "a while loop needs its condition: call continue_while() at the end of its body");
  }
  if (condition_ != 0 && !asked_ && !obstacle_.empty()) {
    throw Error(
        ErrorKind::not_supported,
        "cond_handle is set by a kernel on the device, and the host has to drive this loop: " + obstacle_);
  }
  {
    Entry entry(*inner_);
    cut();
  }
  Entry entry(*outer_);
  Context& outer = *outer_;
  Scope& around = *outer.scope_;
  const bool is_node = obstacle_.empty() && !around.is_loop();
  Task task;
  task.symbol = "loop";
  task.place =
      inner_->first_place_.kind == ExecPlace::Kind::current ? ExecPlace::on(0) : inner_->first_place_;
  fill_task(task);
  Tasks tasks(outer);
  tasks.open(task, Body::scope, interrupt);
  try {
    if (is_node) {
      Stream& stream = *task.streams_.front();
      const NodeHandle node =
          put_loop(outer.recording_->graph(), outer.recording_->after(stream.handle()), false);
      outer.recording_->set(stream.handle(), {&node, 1});
      if (outer.log_) outer.log_->entries.push_back({node, "loop", "", to_string(task.place), this});
    }
  } catch (const Error& error) {
    around.spoiled_ = error.what();  // part of a loop may be in its graph
    tasks.close(task, Body::scope, true, {});
    throw;
  }
  tasks.close(task, Body::scope, false, interrupt);
  mark_poisoned();
  unlink();
  state_ = State::ready;
  if (is_node) {
    around.inline_loops_.push_back(shared_from_this());
    around.plain_ = false;
    return;
  }
  around.cut();
  around.pieces_.push_back({.loop = shared_from_this()});
}

// How many rounds go into one of a loop that counts: a short body is cheaper than the loop's own work around
// it.
std::uint64_t Scope::rounds_in_one() const {
  constexpr std::uint64_t most_nodes = 32;
  constexpr std::uint64_t most_rounds = 16;
  if (kind_ != Kind::repeat || pieces_.size() != 1 || pieces_.front().loop) return 1;
  const std::uint64_t nodes = inner_->statistics_.tasks + inner_->statistics_.copies;
  std::uint64_t rounds = std::min(most_rounds, most_nodes / std::max<std::uint64_t>(nodes, 1));
  while (rounds * rounds > count_) --rounds;  // few rounds do not repay the nodes
  return std::max<std::uint64_t>(rounds, 1);
}

// What was recorded, once, behind `before`, which then is its last node.
void Scope::put_round(GraphHandle graph, std::vector<NodeHandle>& before) {
  Driver& driver = inner_->runtime().driver();
  for (const Piece& piece : pieces_) {
    NodeHandle node = 0;
    if (piece.loop)
      node = piece.loop->put_loop(graph, before, true);
    else
      driver.add_graph_node(graph, before, piece.graph, &node).check();
    before.assign(1, node);
  }
}

// As a node of a graph, behind others. A condition is true anew at each launch, so a loop within a loop sets
// it before it begins.
NodeHandle Scope::put_loop(GraphHandle graph, std::span<const NodeHandle> after, bool in_loop) {
  Driver& driver = inner_->runtime().driver();
  const ContextHandle context = inner_->recording_->contexts().front();
  ConditionHandle condition = condition_;
  if (condition == 0) driver.create_condition(graph, context, &condition).check();
  std::vector<NodeHandle> before(after.begin(), after.end());
  if (in_loop) {
    NodeHandle begin = 0;
    driver.add_condition_node(graph, before, condition, LoopCondition{}, kernel_, context, &begin).check();
    before.assign(1, begin);
  }
  const std::uint64_t in_one = rounds_in_one();
  for (std::uint64_t rest = count_ % in_one; rest > 0; --rest) put_round(graph, before);
  if (when_.counter != 0) when_.count = count_ / in_one;
  GraphHandle body = 0;
  NodeHandle loop = 0;
  driver.add_loop_node(graph, before, condition, context, &body, &loop).check();
  before.clear();
  for (std::uint64_t round = 0; round < in_one; ++round) put_round(body, before);
  if (condition_ == 0 || asked_) {
    NodeHandle node = 0;
    driver.add_condition_node(body, before, condition, when_, kernel_, context, &node).check();
  }
  return loop;
}

}  // namespace stf_places
