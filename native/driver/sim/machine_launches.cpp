// Executables of graphs: laying nodes on lanes, and submitting them.
#include <utility>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

Status Machine::find_graph_exec(const char* call, GraphExecHandle handle, GraphExec** out) const {
  const auto found = graph_execs_.find(handle);
  if (found == graph_execs_.end()) {
    return fail(Code::invalid_value, call,
                "executable graph " + std::to_string(handle) + " does not exist (any more)");
  }
  *out = found->second.get();
  return {};
}

// A launch with loops gives the mutex up in between.
Status Machine::find_settled_exec(Lock& lock, const char* call, GraphExecHandle handle, GraphExec** out) {
  Status status = find_graph_exec(call, handle, out);
  while (status.ok() && (*out)->launching) {
    if (Status refused = refuse_in_callback(call); !refused) return refused;
    launched_.wait(lock);
    status = find_graph_exec(call, handle, out);
  }
  return status;
}

bool Machine::launches_done(const GraphExec& exec) {
  if (exec.launching) return false;
  clock_.advance(now_);
  const Record* last = exec.last;
  return last == nullptr || (last->effected && last->timed && last->end_us <= now_);
}

Status Machine::instantiate_graph(GraphHandle handle, GraphExecHandle* out) {
  constexpr const char* call = "instantiate_graph";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  if (Status status = find_recorded_graph(call, handle, &graph); !status) return status;
  auto exec = std::make_unique<GraphExec>();
  if (Status status = nodes_of(call, *graph, &exec->nodes); !status) return status;
  exec->layout = lay_out(exec->nodes);
  if (Status status = check_lanes(call, exec->layout); !status) return status;
  reap_streams();
  make_lanes(&exec->layout);
  now_ += spec_.costs.graph_instantiate_node * static_cast<double>(count_all(exec->nodes));
  *out = ++last_graph_;
  graph_execs_.emplace(*out, std::move(exec));
  return {};
}

Status Machine::check_lanes(const char* call, const Layout& layout) {
  for (const Lane& lane : layout.lanes) {
    Context* context = nullptr;
    if (Status status = find_context(call, lane.context, &context); !status) return status;
    if (Status status = find_device(call, context->device); !status) return status;
  }
  for (const Layout& body : layout.bodies) {
    if (Status status = check_lanes(call, body); !status) return status;
  }
  return {};
}

void Machine::make_lanes(Layout* layout) {
  for (Lane& lane : layout->lanes) {
    lane.stream = make_stream(lane.context, lane.priority);
    lane.stream->internal = true;
  }
  for (Layout& body : layout->bodies) make_lanes(&body);
}

void Machine::close_lanes(const Layout& layout) {
  for (const Lane& lane : layout.lanes) close(lane.stream);
  for (const Layout& body : layout.bodies) close_lanes(body);
}

Status Machine::update_graph_exec(GraphExecHandle exec_handle, GraphHandle graph_handle, bool* fits) {
  constexpr const char* call = "update_graph_exec";
  if (Status status = fork_.check(call); !status) return status;
  std::vector<Nodes> gone;  // lets go of host code once the mutex is free again
  Lock lock(mutex_);
  GraphExec* exec = nullptr;
  Graph* graph = nullptr;
  Nodes nodes;
  if (Status status = find_settled_exec(lock, call, exec_handle, &exec); !status) return status;
  if (Status status = find_recorded_graph(call, graph_handle, &graph); !status) return status;
  if (Status status = nodes_of(call, *graph, &nodes); !status) return status;
  *fits = same_shape(exec->nodes, nodes);
  if (!*fits) return {};
  exec->kept.push_back(std::exchange(exec->nodes, std::move(nodes)));
  exec->rests = false;
  if (launches_done(*exec)) gone.swap(exec->kept);
  now_ += spec_.costs.graph_node * static_cast<double>(count_all(exec->nodes));
  return {};
}

Status Machine::find_idle_exec(const char* call, GraphExecHandle handle, GraphExec** out) {
  if (Status status = find_graph_exec(call, handle, out); !status) return status;
  if (launches_done(**out)) return {};
  return fail(
      Code::invalid_value, call,
      "executable graph " + std::to_string(handle) + " is at work; the host waits for its launches first");
}

Status Machine::destroy_graph_exec(GraphExecHandle handle) {
  constexpr const char* call = "destroy_graph_exec";
  if (Status status = fork_.check(call); !status) return status;
  std::unique_ptr<GraphExec> gone;  // lets go of host code once the mutex is free again
  const Lock lock(mutex_);
  GraphExec* exec = nullptr;
  if (Status status = find_idle_exec(call, handle, &exec); !status) return status;
  close_lanes(exec->layout);
  if (exec->last != nullptr) pool_.drop(exec->last);
  gone = std::move(graph_execs_.at(handle));
  graph_execs_.erase(handle);
  reap_streams();
  return {};
}

Status Machine::rest_graph_exec(GraphExecHandle handle) {
  constexpr const char* call = "rest_graph_exec";
  if (Status status = fork_.check(call); !status) return status;
  std::vector<Nodes> gone;  // lets go of host code once the mutex is free again
  const Lock lock(mutex_);
  GraphExec* exec = nullptr;
  if (Status status = find_idle_exec(call, handle, &exec); !status) return status;
  gone.swap(exec->kept);
  gone.push_back(std::exchange(exec->nodes, stripped(exec->nodes)));
  exec->rests = true;
  return {};
}

// ---- Launching ----

// Adds what the node touches to `found`, as check_transfer and check_work do.
Status Machine::check_node(const char* call, const Stream* lane, const Node& node,
                           std::vector<Allocation*>* found) {
  const std::size_t before = found->size();
  if (node.kind == OperationKind::copy || node.kind == OperationKind::fill) {
    if (Status status = check_transfer(call, lane, node.transfer, found); !status) return status;
  } else if (node.kind == OperationKind::work || node.kind == OperationKind::condition) {
    if (Status status = check_work(call, lane, node.work(), found); !status) return status;
  }
  for (std::size_t i = 0; i < node.allocations.size(); ++i) {
    const Allocation* now = (*found)[before + i];
    const std::uint64_t recorded = node.allocations[i];
    if (recorded == 0 || (now != nullptr && now->id == recorded)) continue;
    return fail(Code::invalid_value, call,
                "use after free: it was recorded with allocation #" + std::to_string(recorded) +
                    ", which was freed since" +
                    (now == nullptr ? std::string() : "; " + now->name() + " has its addresses now"),
                lane->device);
  }
  return {};
}

Status Machine::check_nodes(const char* call, const Nodes& nodes, const Layout& layout,
                            const std::string& where, std::vector<Allocation*>* found) {
  std::size_t bodies = 0;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    const Node& node = *nodes[at];
    if (node.kind == OperationKind::loop) {
      const std::string body = "the body of node " + std::to_string(at) + " of " + where;
      Status status = check_nodes(call, node.inner, layout.bodies[bodies++], body, found);
      if (!status) return status;
      continue;
    }
    const Lane& lane = layout.lanes[layout.steps[at].lane];
    if (Status status = check_node(call, lane.stream, node, found); !status) {
      Failure named = status.failure();
      named.detail = text_of(node.kind, node.transfer.nbytes, node.symbol) + ", node " + std::to_string(at) +
                     " of " + where + ": " + named.detail;
      return Status(std::move(named));
    }
  }
  return {};
}

// Once other threads have been let in, what the node touches is looked up again.
void Machine::put_node(Submission& submission, Stream* lane, const Node& node) {
  const double cost_us = submission.node_us;
  std::span<Allocation* const> found;
  std::vector<Allocation*> anew;
  if (submission.first) {
    found = submission.found.first(node.allocations.size());
    submission.found = submission.found.subspan(node.allocations.size());
  } else if (Status status = check_node("launch_graph", lane, node, &anew); status.ok()) {
    found = anew;
  } else {
    fail_lane(lane, status.failure());
    return;
  }
  switch (node.kind) {
    case OperationKind::copy:
    case OperationKind::fill:
      put_transfer(lane, node.transfer, found, cost_us);
      return;
    case OperationKind::host_function:
      put_host_function(lane, node.code->function, node.code->argument, cost_us);
      return;
    case OperationKind::work: {
      Operation* operation = make_work(OperationKind::work, lane, node.work(), found);
      operation->function = node.code->function;
      operation->argument = node.code->argument;
      submit(operation, cost_us);
      return;
    }
    case OperationKind::condition:
      put_condition(submission, lane, node, found);
      return;
    default:
      now_ += cost_us;
  }
}

void Machine::put_nodes(Submission& submission, const Nodes& nodes, const Layout& layout, Stream* stream) {
  std::vector<Record*> records(nodes.size(), nullptr);
  Record* begin = put_record(stream, 0);
  std::size_t bodies = 0;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    const Node& node = *nodes[at];
    const Step& step = layout.steps[at];
    Stream* lane = layout.lanes[step.lane].stream;
    if (node.after.empty()) put_wait(lane, begin, 0);
    for (const std::uint32_t before : node.after) {
      if (layout.steps[before].lane != step.lane) put_wait(lane, records[before], submission.edge_us);
    }
    put_node(submission, lane, node);
    if (node.kind == OperationKind::loop) put_loop(submission, node, layout.bodies[bodies++], lane);
    if (step.recorded) records[at] = put_record(lane, 0);
  }
  for (const std::uint32_t leaf : layout.leaves) put_wait(stream, records[leaf], 0);
  pool_.drop(begin);
  for (Record* record : records) {
    if (record != nullptr) pool_.drop(record);
  }
}

// Stream and executable stay where they are while other threads are let in.
void Machine::put_launch(Lock& lock, GraphExec* exec, Stream* stream) {
  now_ += spec_.costs.graph_launch;
  if (exec->last != nullptr) {
    put_wait(stream, exec->last, 0);
    pool_.drop(std::exchange(exec->last, nullptr));
  }
  exec->launching = true;
  ++stream->launching;
  exec->conditions.clear();
  Submission submission{lock, exec,    spec_.costs.graph_launch_node, spec_.costs.graph_launch_edge,
                        true, touched_};
  put_nodes(submission, exec->nodes, exec->layout, stream);
  exec->last = put_record(stream, 0);
  --stream->launching;
  exec->launching = false;
  launched_.notify_all();
}

Status Machine::launch_graph(GraphExecHandle handle, StreamHandle stream_handle) {
  constexpr const char* call = "launch_graph";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  GraphExec* exec = nullptr;
  Stream* stream = nullptr;
  if (Status status = find_settled_exec(lock, call, handle, &exec); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (exec->rests) {
    return fail(Code::invalid_value, call,
                "executable graph " + std::to_string(handle) + " rests; update_graph_exec comes first");
  }
  if (!exec->layout.bodies.empty()) {
    if (Status status = refuse_in_callback(call); !status) return status;
  }
  if (Status status = check_lanes(call, exec->layout); !status) return status;
  touched_.clear();
  if (Status status = check_nodes(call, exec->nodes, exec->layout, "the graph", &touched_); !status)
    return status;
  put_launch(lock, exec, stream);
  bound_pending(lock);
  return {};
}

}  // namespace stf_places::sim
