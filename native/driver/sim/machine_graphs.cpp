// Graphs: what is recorded into them, and by which streams.
#include <algorithm>
#include <utility>

#include "failures.hpp"
#include "machine.hpp"

namespace stf_places::sim {

namespace {

constexpr int cuda_12_3 = 12030;

}  // namespace

// ---- Looking up ----

Status Machine::find_graph(const char* call, GraphHandle handle, Graph** out) const {
  const auto found = graphs_.find(handle);
  if (found == graphs_.end())
    return fail(Code::invalid_value, call, "graph " + std::to_string(handle) + " does not exist (any more)");
  *out = found->second.get();
  return {};
}

Status Machine::find_recorded_graph(const char* call, GraphHandle handle, Graph** out) const {
  Graph* graph = nullptr;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (!graph->recording.empty()) {
    return fail(Code::invalid_value, call,
                "graph " + std::to_string(handle) + " is being recorded by stream " +
                    std::to_string(graph->recording.front()) + "; end_capture comes first");
  }
  if (graph->failed) {
    return fail(Code::invalid_value, call,
                "the capture into graph " + std::to_string(handle) + " failed, so it is of no use");
  }
  if (graph->owner != 0) {
    return fail(Code::invalid_value, call,
                "graph " + std::to_string(handle) + " is the body of a loop in graph " +
                    std::to_string(graph->owner) +
                    ": nodes can be added to it, and it is instantiated and destroyed with that graph");
  }
  *out = graph;
  return {};
}

Status Machine::find_capturing(const char* call, StreamHandle handle, Stream** out) {
  Stream* stream = nullptr;
  if (Status status = find_open_stream(call, handle, &stream, Recording::allowed); !status) return status;
  if (stream->graph == nullptr) {
    return fail(Code::invalid_value, call,
                "stream " + std::to_string(stream->handle) +
                    " records no graph; begin_capture and join_capture let it take part in one",
                stream->device);
  }
  *out = stream;
  return {};
}

Status Machine::find_origin(const char* call, StreamHandle handle, Stream** out) {
  Stream* stream = nullptr;
  if (Status status = find_capturing(call, handle, &stream); !status) return status;
  const StreamHandle origin = stream->graph->recording.front();
  if (stream->handle != origin) {
    return fail(Code::invalid_value, call,
                "stream " + std::to_string(handle) + " began no capture; it joined that of stream " +
                    std::to_string(origin),
                stream->device);
  }
  *out = stream;
  return {};
}

Status Machine::find_nodes(const char* call, const Graph& graph, std::span<const NodeHandle> nodes,
                           std::vector<std::uint32_t>* out) const {
  std::vector<std::uint32_t> found;
  for (const NodeHandle node : nodes) {
    const std::uint64_t position = (node & 0xffffffff) - 1;
    if (node >> 32 != graph.handle || position >= graph.nodes.size()) {
      return fail(Code::invalid_value, call,
                  "node " + std::to_string(node) + " is not one of the " +
                      std::to_string(graph.nodes.size()) + " nodes of graph " + std::to_string(graph.handle));
    }
    found.push_back(static_cast<std::uint32_t>(position));
  }
  *out = ordered(std::move(found));
  return {};
}

// ---- Graphs ----

Status Machine::create_graph(GraphHandle* out) {
  constexpr const char* call = "create_graph";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  if (Status status = needs_version(call, cuda_12_3, "what recording into graphs needs"); !status)
    return status;
  auto graph = std::make_unique<Graph>();
  graph->handle = ++last_graph_;
  *out = graph->handle;
  graphs_.emplace(graph->handle, std::move(graph));
  return {};
}

Status Machine::destroy_graph(GraphHandle handle) {
  constexpr const char* call = "destroy_graph";
  if (Status status = fork_.check(call); !status) return status;
  std::vector<std::unique_ptr<Graph>> gone;  // lets go of host code once the mutex is free again
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (!graph->recording.empty() || graph->owner != 0) return find_recorded_graph(call, handle, &graph);
  take_graph(handle, &gone);
  return {};
}

void Machine::take_graph(GraphHandle handle, std::vector<std::unique_ptr<Graph>>* out) {
  const auto found = graphs_.find(handle);
  for (const GraphHandle body : found->second->bodies) take_graph(body, out);
  out->push_back(std::move(found->second));
  graphs_.erase(found);
  std::erase_if(conditions_, [&](const auto& one) { return one.second.graph == handle; });
}

Status Machine::graph_nodes(GraphHandle handle, std::vector<NodeHandle>* nodes,
                            std::vector<std::pair<NodeHandle, NodeHandle>>* edges) {
  constexpr const char* call = "graph_nodes";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  nodes->clear();
  edges->clear();
  for (std::size_t at = 0; at < graph->nodes.size(); ++at) {
    nodes->push_back(node_handle(*graph, at));
    for (const std::uint32_t before : graph->nodes[at]->after)
      edges->emplace_back(node_handle(*graph, before), node_handle(*graph, at));
  }
  return {};
}

// ---- Recording ----

void Machine::start_recording(Graph* graph, Stream* stream) {
  graph->recording.push_back(stream->handle);
  stream->graph = graph;
  stream->after.clear();
}

Status Machine::begin_capture(GraphHandle handle, StreamHandle origin) {
  constexpr const char* call = "begin_capture";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  Stream* stream = nullptr;
  if (Status status = find_recorded_graph(call, handle, &graph); !status) return status;
  if (Status status = find_stream(call, origin, &stream); !status) return status;
  if (stream->is_default)
    return fail(Code::invalid_value, call, "a default stream records no graph", stream->device);
  start_recording(graph, stream);
  return {};
}

Status Machine::join_capture(StreamHandle origin, StreamHandle handle) {
  constexpr const char* call = "join_capture";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* from = nullptr;
  Stream* stream = nullptr;
  if (Status status = find_origin(call, origin, &from); !status) return status;
  if (Status status = find_stream(call, handle, &stream); !status) return status;
  if (stream->is_default)
    return fail(Code::invalid_value, call, "a default stream records no graph", stream->device);
  start_recording(from->graph, stream);
  return {};
}

Status Machine::set_capture_dependencies(StreamHandle handle, std::span<const NodeHandle> nodes) {
  constexpr const char* call = "set_capture_dependencies";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_capturing(call, handle, &stream); !status) return status;
  return find_nodes(call, *stream->graph, nodes, &stream->after);
}

Status Machine::capture_dependencies(StreamHandle handle, std::vector<NodeHandle>* out) {
  constexpr const char* call = "capture_dependencies";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_capturing(call, handle, &stream); !status) return status;
  out->clear();
  for (const std::uint32_t position : stream->after) out->push_back(node_handle(*stream->graph, position));
  return {};
}

Status Machine::add_empty_node(GraphHandle handle, std::span<const NodeHandle> after, NodeHandle* out) {
  constexpr const char* call = "add_empty_node";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Graph* graph = nullptr;
  Node node;
  if (Status status = find_graph(call, handle, &graph); !status) return status;
  if (Status status = find_nodes(call, *graph, after, &node.after); !status) return status;
  *out = add_node(graph, std::move(node), {});
  return {};
}

NodeHandle Machine::add_node(Graph* graph, Node node, std::span<Allocation* const> found) {
  for (const Allocation* allocation : found)
    node.allocations.push_back(allocation == nullptr ? 0 : allocation->id);
  graph->nodes.push_back(std::make_shared<const Node>(std::move(node)));
  now_ += spec_.costs.graph_node;
  return node_handle(*graph, graph->nodes.size() - 1);
}

void Machine::record(Stream* stream, Node node, std::span<Allocation* const> found) {
  Graph* graph = stream->graph;
  node.context = stream->context;
  node.priority = stream->priority;
  node.after = std::move(stream->after);
  stream->after.assign(1, static_cast<std::uint32_t>(graph->nodes.size()));
  add_node(graph, std::move(node), found);
}

Status Machine::end_capture(StreamHandle origin, std::span<const StreamHandle> joined) {
  constexpr const char* call = "end_capture";
  if (Status status = fork_.check(call); !status) return status;
  const Lock lock(mutex_);
  Stream* stream = nullptr;
  if (Status status = find_origin(call, origin, &stream); !status) return status;
  Graph* graph = stream->graph;
  std::vector<StreamHandle> named(joined.begin(), joined.end());
  named.push_back(origin);
  std::vector<StreamHandle> recording = std::exchange(graph->recording, {});
  for (const StreamHandle one : recording) {
    stream_at(one)->graph = nullptr;
    stream_at(one)->after.clear();
  }
  std::sort(named.begin(), named.end());
  std::sort(recording.begin(), recording.end());
  if (named == recording) return {};
  graph->failed = true;
  return fail(Code::invalid_value, call,
              "the end of a capture names each stream that joined it once: got " +
                  std::to_string(joined.size()) + " joined streams where " +
                  std::to_string(recording.size() - 1) + " took part; the graph is of no use now");
}

}  // namespace stf_places::sim
