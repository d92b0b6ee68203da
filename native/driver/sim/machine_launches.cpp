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

bool Machine::launches_done(const GraphExec& exec) {
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
  exec->nodes = graph->nodes;
  exec->layout = lay_out(exec->nodes);
  for (const Lane& lane : exec->layout.lanes) {
    Context* context = nullptr;
    if (Status status = find_context(call, lane.context, &context); !status) return status;
    if (Status status = find_device(call, context->device); !status) return status;
  }
  reap_streams();
  for (Lane& lane : exec->layout.lanes) {
    lane.stream = make_stream(lane.context, lane.priority);
    lane.stream->internal = true;
  }
  now_ += spec_.costs.graph_instantiate_node * static_cast<double>(exec->nodes.size());
  *out = ++last_graph_;
  graph_execs_.emplace(*out, std::move(exec));
  return {};
}

Status Machine::update_graph_exec(GraphExecHandle exec_handle, GraphHandle graph_handle, bool* fits) {
  constexpr const char* call = "update_graph_exec";
  if (Status status = fork_.check(call); !status) return status;
  std::vector<Nodes> gone;  // lets go of host code once the mutex is free again
  const Lock lock(mutex_);
  GraphExec* exec = nullptr;
  Graph* graph = nullptr;
  if (Status status = find_graph_exec(call, exec_handle, &exec); !status) return status;
  if (Status status = find_recorded_graph(call, graph_handle, &graph); !status) return status;
  *fits = same_shape(exec->nodes, graph->nodes);
  if (!*fits) return {};
  exec->kept.push_back(std::move(exec->nodes));
  exec->nodes = graph->nodes;
  exec->rests = false;
  if (launches_done(*exec)) gone.swap(exec->kept);
  now_ += spec_.costs.graph_node * static_cast<double>(exec->nodes.size());
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
  for (const Lane& lane : exec->layout.lanes) close(lane.stream);
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
  Nodes bare;
  for (const auto& node : exec->nodes) {
    auto copy = std::make_shared<Node>();
    copy->kind = node->kind;
    copy->context = node->context;
    copy->priority = node->priority;
    copy->after = node->after;
    copy->transfer = node->transfer;
    bare.push_back(std::move(copy));
  }
  gone.push_back(std::exchange(exec->nodes, std::move(bare)));
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
  } else if (node.kind == OperationKind::work) {
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

// Fills `touched_`, node after node.
Status Machine::check_launch(const char* call, const GraphExec& exec) {
  touched_.clear();
  for (const Lane& lane : exec.layout.lanes) {
    Context* context = nullptr;
    if (Status status = find_context(call, lane.context, &context); !status) return status;
    if (Status status = find_device(call, context->device); !status) return status;
  }
  for (std::size_t at = 0; at < exec.nodes.size(); ++at) {
    const Node& node = *exec.nodes[at];
    const Lane& lane = exec.layout.lanes[exec.layout.steps[at].lane];
    if (Status status = check_node(call, lane.stream, node, &touched_); !status) {
      Failure named = status.failure();
      named.detail = text_of(node.kind, node.transfer.nbytes, node.symbol) + ", node " + std::to_string(at) +
                     " of the graph: " + named.detail;
      return Status(std::move(named));
    }
  }
  return {};
}

void Machine::put_node(Stream* lane, const Node& node, std::span<Allocation* const> found) {
  const double cost_us = spec_.costs.graph_launch_node;
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
    default:
      now_ += cost_us;
  }
}

void Machine::put_launch(GraphExec* exec, Stream* stream) {
  const Layout& layout = exec->layout;
  std::vector<Record*> records(exec->nodes.size(), nullptr);
  now_ += spec_.costs.graph_launch;
  if (exec->last != nullptr) {
    put_wait(stream, exec->last, 0);
    pool_.drop(exec->last);
  }
  Record* begin = put_record(stream, 0);
  std::span<Allocation* const> found = touched_;
  for (std::size_t at = 0; at < exec->nodes.size(); ++at) {
    const Node& node = *exec->nodes[at];
    const Step& step = layout.steps[at];
    Stream* lane = layout.lanes[step.lane].stream;
    if (node.after.empty()) put_wait(lane, begin, 0);
    for (const std::uint32_t before : node.after) {
      if (layout.steps[before].lane != step.lane)
        put_wait(lane, records[before], spec_.costs.graph_launch_edge);
    }
    put_node(lane, node, found.first(node.allocations.size()));
    found = found.subspan(node.allocations.size());
    if (step.recorded) records[at] = put_record(lane, 0);
  }
  for (const std::uint32_t leaf : layout.leaves) put_wait(stream, records[leaf], 0);
  exec->last = put_record(stream, 0);
  pool_.drop(begin);
  for (Record* record : records) {
    if (record != nullptr) pool_.drop(record);
  }
}

Status Machine::launch_graph(GraphExecHandle handle, StreamHandle stream_handle) {
  constexpr const char* call = "launch_graph";
  if (Status status = fork_.check(call); !status) return status;
  Lock lock(mutex_);
  GraphExec* exec = nullptr;
  Stream* stream = nullptr;
  if (Status status = find_graph_exec(call, handle, &exec); !status) return status;
  if (Status status = find_stream(call, stream_handle, &stream); !status) return status;
  if (exec->rests) {
    return fail(Code::invalid_value, call,
                "executable graph " + std::to_string(handle) + " rests; update_graph_exec comes first");
  }
  if (Status status = check_launch(call, *exec); !status) return status;
  put_launch(exec, stream);
  bound_pending(lock);
  return {};
}

}  // namespace stf_places::sim
