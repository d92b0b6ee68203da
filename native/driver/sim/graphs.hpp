// What a graph holds: descriptions of operations and the edges between them; and how an executable lays them
// on streams.
//
// A launch makes an operation of each node again. Nodes are laid on lanes, which are streams inside the
// machine: a node takes the lane of a dependency that is the last one there, or a lane that is behind a
// dependency already, and a new one otherwise. Records and waits stand for the edges between lanes. So edges
// and nothing else order the nodes, and effects, clock, faults and race detection treat them as what they do
// on streams. The body of a loop has lanes of its own; its first nodes wait for what the loop waits for, and
// the loop's lane for its last ones, round after round.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "operation.hpp"

namespace stf_places::sim {

// A copy, or a fill: then `width` is not 0 and `from` is not used.
struct Transfer {
  Address to = 0;
  Location to_at;
  Address from = 0;
  Location from_at;
  std::size_t nbytes = 0;
  unsigned char value[16] = {};
  std::size_t width = 0;
};

// Host code of a node. It is released once no graph and no executable holds the node any more, without the
// machine's mutex: it may take the interpreter's lock.
struct NodeCode {
  HostFunction function = nullptr;
  HostFunction release = nullptr;
  void* argument = nullptr;

  NodeCode(HostFunction to_run, HostFunction to_release, void* with)
      : function(to_run), release(to_release), argument(with) {}
  NodeCode(const NodeCode&) = delete;
  NodeCode& operator=(const NodeCode&) = delete;
  ~NodeCode() {
    if (release != nullptr) release(argument);
  }
};

struct Node;
using Nodes = std::vector<std::shared_ptr<const Node>>;

struct Node {
  OperationKind kind = OperationKind::empty;
  ContextHandle context = 0;  // of the stream that it was recorded on; 0: an empty node or a graph
  int priority = 0;
  std::vector<std::uint32_t> after;  // positions of earlier nodes, ascending
  Transfer transfer;
  std::shared_ptr<NodeCode> code;
  // Of host work.
  std::string symbol;
  double cost_us = -1;
  int sms = 0;
  int waves = 1;
  std::vector<Access> accesses;
  std::uint64_t whole = 0;
  // Of graphs, and of loops in an executable.
  Nodes inner;
  ConditionHandle condition = 0;  // of loops, and of what sets one
  LoopCondition when;
  // What its ends or accesses lay in when it was recorded, by number; 0: nothing of the machine's.
  std::vector<std::uint64_t> allocations;

  Work work() const { return {symbol, cost_us, sms, waves, accesses, whole}; }
};

struct Graph {
  GraphHandle handle = 0;
  Nodes nodes;
  std::vector<GraphHandle> bodies;      // of its loops
  GraphHandle owner = 0;                // of a body: the graph that the loop is in
  ConditionHandle condition = 0;        // of a body: that of its loop
  ContextHandle context = 0;            // of a body: that of its loop
  std::vector<StreamHandle> recording;  // streams that take part in its capture, the origin first
  bool failed = false;                  // a capture into it did
};

constexpr NodeHandle node_handle(const Graph& graph, std::size_t position) {
  return (graph.handle << 32) | (position + 1);
}

// The condition of a loop.
struct Condition {
  GraphHandle graph = 0;  // that the loop is in
  ContextHandle context = 0;
  GraphHandle body = 0;  // of its loop, once there is one
};

// What a condition is while its graph is launched.
struct ConditionState {
  bool value = true;
  std::uint64_t rounds = 0;  // of its loop, the one that runs included; 0: it does not run
};

// Which lane a node is on, and whether others wait for it.
struct Step {
  std::uint32_t lane = 0;
  bool recorded = false;
};

struct Lane {
  ContextHandle context = 0;
  int priority = 0;
  Stream* stream = nullptr;
};

struct Layout {
  std::vector<Step> steps;  // by node
  std::vector<Lane> lanes;
  std::vector<std::uint32_t> leaves;
  std::vector<Layout> bodies;  // of the loops, one after the other
};

struct GraphExec {
  Nodes nodes;
  Layout layout;
  bool rests = false;       // its host code is gone
  Record* last = nullptr;   // the end of the last launch
  std::vector<Nodes> kept;  // of before updates, while launches may still use them
  bool launching = false;   // a launch is being submitted; others wait for that
  std::map<ConditionHandle, ConditionState> conditions;
};

Layout lay_out(const Nodes& nodes);

// Whether an executable of `now` can do what `next` does.
bool same_shape(const Nodes& now, const Nodes& next);

// All nodes, those of bodies and of graphs within included.
std::size_t count_all(const Nodes& nodes);

// Copies of the nodes without what they touch and call.
Nodes stripped(const Nodes& nodes);

// Puts graphs that are nodes in their place: what is behind one comes behind all of its last nodes.
Nodes flattened(const Nodes& nodes);

// Sorted and each once.
std::vector<std::uint32_t> ordered(std::vector<std::uint32_t> positions);

}  // namespace stf_places::sim
