// Running loops, round by round.
//
// How often a loop goes round depends on values, so what its condition depends on takes effect while the loop
// is submitted, as for the body of a task. The host's clock does not wait for that: in simulated time the
// loop runs on the device, beside what follows on the host. The mutex is given up meanwhile, hence what is
// looked up anew: what a node touches, before each node that is submitted after that.
#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

// A loop that goes round more often than that is taken for one that never ends. Nobody could interrupt it.
constexpr std::uint64_t most_rounds = 1 << 20;

}  // namespace

bool Machine::failed_on(const Stream* lane, std::uint64_t sequence) const {
  if (lost_[lane->device] != nullptr) return true;
  return lane->failure != nullptr && sequence <= lane->failure->reported_at;
}

void Machine::fail_lane(Stream* lane, const Failure& failure) {
  if (!failed_on(lane, sequence_)) lane->failure = std::make_shared<StreamFailure>(StreamFailure{failure});
}

// What the node sets its condition to, once all before it has taken effect. Without values a loop that counts
// counts, and one that compares goes round once.
bool Machine::goes_on(const Node& node, const ConditionState& state) const {
  if (options_.execute) return holds(node.when);
  if (node.when.counter != 0) return state.rounds < node.when.count;
  return node.when.size == 0 || state.rounds == 0;
}

void Machine::put_condition(Submission& submission, Stream* lane, const Node& node,
                            std::span<Allocation* const> found) {
  submit(make_work(OperationKind::work, lane, node.work(), found), submission.node_us);
  const std::uint64_t sequence = sequence_;
  bool failed = false;
  if (options_.execute) {
    submission.first = false;
    make_effects(submission.lock, "launch_graph", {}, [&] { return lane->effected >= sequence; }).ignore();
    failed = lane->effected < sequence || failed_on(lane, sequence);
  }
  ConditionState& state = submission.exec->conditions[node.condition];
  state.value = !failed && goes_on(node, state);
}

void Machine::put_loop(Submission& submission, const Node& node, const Layout& body, Stream* lane) {
  ConditionState& state = submission.exec->conditions[node.condition];
  Submission rounds = submission;
  while (state.value) {
    if (++state.rounds > most_rounds) {
      fail_lane(lane, failure(Code::failed, "launch_graph",
                              "a loop went round " + std::to_string(most_rounds) +
                                  " times without an end, which is as often as it can here",
                              lane->device));
      break;
    }
    put_nodes(rounds, node.inner, body, lane);
    // The device goes round by itself: more than once costs the host nothing.
    rounds.node_us = rounds.edge_us = 0;
    rounds.first = false;
    bound_pending(submission.lock);
  }
  state.rounds = 0;
  submission.first = false;
}

}  // namespace stf_places::sim
