// Graphs within graphs, and loops: what is put into graphs, and what bodies may hold.
//
// A loop is a node, a graph for its body and a condition, tied together by the condition's number. The body
// is taken into an executable when that is made.
#include <algorithm>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

constexpr int cuda_12_4 = 12040;
constexpr const char* body_rule =
    "the body of a loop holds work, fills and copies within its own device, graphs of these and further "
    "loops, all of the loop's own context";

bool on_device(const Location& at, int device) {
  return at.kind == Location::Kind::device && at.device == device;
}

bool sets(const Node& node, ConditionHandle condition) {
  return node.kind == OperationKind::condition && node.condition == condition;
}

std::string describe(const Node& node) {
  if (node.kind == OperationKind::loop) return "a loop";
  return text_of(node.kind, node.transfer.nbytes, node.symbol);
}

std::size_t bytes_of(LoopCondition::Type type) {
  return type == LoopCondition::Type::float32 || type == LoopCondition::Type::int32 ? 4 : 8;
}

// What it costs and touches to set a condition.
Work work_of(const LoopCondition& when, double cost_us, std::vector<Access>* accesses) {
  for (std::uint32_t at = 0; at < when.size; ++at)
    accesses->push_back({when.terms[at].value, bytes_of(when.terms[at].type)});
  if (when.counter != 0) accesses->push_back({when.counter, 8, true});
  Work work;
  work.symbol = "loop condition";
  work.cost_us = cost_us;
  work.sms = 1;
  work.accesses = *accesses;
  return work;
}

}  // namespace

Status Machine::find_condition(const char* call, ConditionHandle handle, Condition** out) {
  const auto found = conditions_.find(handle);
  if (found == conditions_.end()) {
    return fail(Code::invalid_value, call,
                "condition " + std::to_string(handle) + " does not exist (any more)");
  }
  *out = &found->second;
  return {};
}

// ---- What bodies hold ----

Status Machine::check_body(const char* call, const Graph& body, const Node& node) const {
  const int device = contexts_[body.context - 1].device;
  bool fits = node.kind != OperationKind::host_function;
  if (node.kind == OperationKind::copy)
    fits = on_device(node.transfer.from_at, device) && on_device(node.transfer.to_at, device);
  if (node.kind == OperationKind::fill) fits = on_device(node.transfer.to_at, device);
  if (!fits)
    return fail(Code::invalid_value, call, std::string(body_rule) + ": got " + describe(node), device);
  if (node.context != 0 && node.context != body.context) {
    return fail(Code::invalid_value, call,
                std::string(body_rule) + " (" + std::to_string(body.context) + "): got " + describe(node) +
                    " of context " + std::to_string(node.context),
                device);
  }
  for (const auto& inner : node.inner) {
    if (Status status = check_body(call, body, *inner); !status) return status;
  }
  return {};
}

// Bodies are looked at here and not when nodes are added to them, where nothing is known about their loop's
// own end yet.
Status Machine::nodes_of(const char* call, const Graph& graph, Nodes* out) const {
  Nodes nodes = flattened(graph.nodes);
  for (auto& node : nodes) {
    if (node->kind != OperationKind::loop) continue;
    const Graph& body = *graphs_.at(conditions_.at(node->condition).body);
    const auto ends = [&](const auto& one) { return sets(*one, node->condition); };
    if (std::none_of(body.nodes.begin(), body.nodes.end(), ends)) {
      return fail(Code::invalid_value, call,
                  "the loop whose body is graph " + std::to_string(body.handle) +
                      " would never end: no node of the body sets its condition");
    }
    auto copy = std::make_shared<Node>(*node);
    if (Status status = nodes_of(call, body, &copy->inner); !status) return status;
    node = std::move(copy);
  }
  *out = std::move(nodes);
  return {};
}

// ---- Nodes ----

Status Machine::add_graph_node(GraphHandle handle, std::span<const NodeHandle> after, GraphHandle child,
                               NodeHandle* out) {
  constexpr const char* call = "add_graph_node";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  Graph* within = nullptr;
  Node node;
  node.kind = OperationKind::graph;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (Status status = find_recorded_graph(call, child, &within); !status) return status;
  if (Status status = find_nodes(call, *graph, after, &node.after); !status) return status;
  const auto is_condition = [](const auto& one) { return one->kind == OperationKind::condition; };
  if (!within->bodies.empty() || std::any_of(within->nodes.begin(), within->nodes.end(), is_condition)) {
    return fail(
        Code::invalid_value, call,
        "a graph with loops in it cannot be a node; add its nodes to graph " + std::to_string(handle));
  }
  node.inner = within->nodes;
  if (graph->owner != 0) {
    if (Status status = check_body(call, *graph, node); !status) return status;
  }
  *out = add_node(graph, std::move(node), {});
  return {};
}

Status Machine::create_condition(GraphHandle handle, ContextHandle context_handle, ConditionHandle* out) {
  constexpr const char* call = "create_condition";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  Context* context = nullptr;
  if (Status status = needs_version(call, cuda_12_4, "loops in graphs"); !status) return status;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (Status status = find_context(call, context_handle, &context); !status) return status;
  *out = ++last_condition_;
  conditions_.emplace(*out, Condition{handle, context_handle});
  return {};
}

Status Machine::add_loop_node(GraphHandle handle, std::span<const NodeHandle> after,
                              ConditionHandle condition_handle, ContextHandle context, GraphHandle* body,
                              NodeHandle* out) {
  constexpr const char* call = "add_loop_node";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  Condition* condition = nullptr;
  Node node;
  node.kind = OperationKind::loop;
  node.context = context;
  node.condition = condition_handle;
  if (Status status = needs_version(call, cuda_12_4, "loops in graphs"); !status) return status;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (Status status = find_condition(call, condition_handle, &condition); !status) return status;
  if (Status status = find_nodes(call, *graph, after, &node.after); !status) return status;
  const std::string named = "condition " + std::to_string(condition_handle);
  if (condition->graph != handle) {
    return fail(Code::invalid_value, call,
                named + " is of graph " + std::to_string(condition->graph) + ": got a loop in graph " +
                    std::to_string(handle));
  }
  if (condition->body != 0) return fail(Code::invalid_value, call, named + " is another loop's already");
  if (condition->context != context) {
    return fail(Code::invalid_value, call,
                named + " is of context " + std::to_string(condition->context) +
                    ", as its loop has to be: got " + std::to_string(context));
  }
  if (graph->owner != 0) {
    if (Status status = check_body(call, *graph, node); !status) return status;
  }
  auto made = std::make_unique<Graph>();
  made->handle = ++last_graph_;
  made->owner = handle;
  made->condition = condition_handle;
  made->context = context;
  condition->body = made->handle;
  graph->bodies.push_back(made->handle);
  *body = made->handle;
  *out = add_node(graph, std::move(node), {});
  graphs_.emplace(*body, std::move(made));
  return {};
}

Status Machine::add_condition_node(GraphHandle handle, std::span<const NodeHandle> after,
                                   ConditionHandle condition_handle, const LoopCondition& when, Address,
                                   ContextHandle context_handle, NodeHandle* out) {
  constexpr const char* call = "add_condition_node";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  Condition* condition = nullptr;
  Context* context = nullptr;
  Node node;
  if (std::string wrong = wrong_with(when); !wrong.empty())
    return fail(Code::invalid_value, call, std::move(wrong));
  if (Status status = needs_version(call, cuda_12_4, "loops in graphs"); !status) return status;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (Status status = find_condition(call, condition_handle, &condition); !status) return status;
  if (Status status = find_context(call, context_handle, &context); !status) return status;
  if (Status status = find_nodes(call, *graph, after, &node.after); !status) return status;
  if (Status status = check_setting(call, *graph, condition_handle, context_handle); !status) return status;
  const Work work = work_of(when, spec_.costs.graph_round, &node.accesses);
  Stream place;  // as a stream of that context would be
  place.device = context->device;
  place.sm_count = 1;
  touched_.clear();
  if (Status status = check_work(call, &place, work, &touched_); !status) return status;
  node.kind = OperationKind::condition;
  node.context = context_handle;
  node.condition = condition_handle;
  node.when = when;
  node.symbol = work.symbol;
  node.cost_us = work.cost_us;
  node.sms = work.sms;
  *out = add_node(graph, std::move(node), touched_);
  return {};
}

// A condition is set in the body of its loop, once, or in the graph that the loop is in, before it.
Status Machine::check_setting(const char* call, const Graph& graph, ConditionHandle handle,
                              ContextHandle context) const {
  const Condition& condition = conditions_.at(handle);
  const std::string named = "condition " + std::to_string(handle);
  if (condition.context != context) {
    return fail(Code::invalid_value, call,
                named + " is of context " + std::to_string(condition.context) +
                    ", as what sets it has to be: got " + std::to_string(context));
  }
  if (graph.condition != handle && graph.handle != condition.graph) {
    return fail(Code::invalid_value, call,
                named + " is of graph " + std::to_string(condition.graph) +
                    ": it is set there or in the body of its loop, got graph " +
                    std::to_string(graph.handle));
  }
  const auto same = [&](const auto& one) { return sets(*one, handle); };
  if (graph.condition == handle && std::any_of(graph.nodes.begin(), graph.nodes.end(), same))
    return fail(Code::invalid_value, call, named + " is set by another node of the body already");
  return {};
}

}  // namespace stf_places::sim
