// Graphs: recorded by one capture that stays open, instantiated, updated and launched.
//
// One capture for all of a recording, because each begin and each end walks the whole graph. Streams join it
// by an event, once; from then on what their next node depends on is set by hand. Relaxed mode, because the
// recording thread allocates and asks events between the nodes, and since any thread may end the capture.
//
// Copies with pageable host memory become nodes like others: the driver reads or writes it at each launch,
// not when the copy is recorded (the example of a captured copy in NVIDIA's programming guide ends in a
// variable on the stack).
#include <algorithm>

#include "cuda_driver.hpp"

namespace stf_places::cuda {

// The handles as the pointers that they are, where they lie: this is done for each operation of a graph. Only
// the driver reads them as such, and it changes none.
std::span<CUgraphNode> node_pointers(std::span<const NodeHandle> nodes) {
  static_assert(sizeof(CUgraphNode) == sizeof(NodeHandle) && alignof(CUgraphNode) == alignof(NodeHandle));
  auto first = reinterpret_cast<const CUgraphNode*>(nodes.data());
  return {const_cast<CUgraphNode*>(first), nodes.size()};
}

namespace {

Status list_nodes(const Api& api, CUgraph graph, std::vector<CUgraphNode>* out) {
  std::size_t count = 0;
  if (Status status = api.GraphGetNodes(graph, nullptr, &count); !status) return status;
  out->resize(count);
  return count == 0 ? Status() : api.GraphGetNodes(graph, out->data(), &count);
}

struct Edges {
  std::vector<CUgraphNode> from, to;
};

// With the edges' data, which is thrown away: kernels with programmatic launch have such edges, and without
// room for their data the call fails (hence the signature of 12.3, not an older one).
Status list_edges(const Api& api, CUgraph graph, Edges* out) {
  std::size_t count = 0;
  if (Status status = api.GraphGetEdges(graph, nullptr, nullptr, nullptr, &count); !status) return status;
  out->from.resize(count);
  out->to.resize(count);
  if (count == 0) return {};
  std::vector<CUgraphEdgeData> data(count);
  return api.GraphGetEdges(graph, out->from.data(), out->to.data(), data.data(), &count);
}

struct CaptureState {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  std::span<const CUgraphNode> next;  // valid until the next call on the stream
};

// Asks for the edges' data too, for the reason given above.
Status capture_state(const Api& api, CUstream stream, CaptureState* out) {
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* data = nullptr;
  std::size_t count = 0;
  Status status = api.StreamGetCaptureInfo(stream, &out->status, nullptr, &out->graph, &nodes, &data, &count);
  if (!status) return status;
  if (out->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) out->next = {nodes, count};
  if (out->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    return status_of(api, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.StreamGetCaptureInfo.name());
  return {};
}

constexpr const char* not_captured =
    "the stream takes part in no capture; begin one on it, or let it join one";

bool is_default(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

}  // namespace

Status CudaDriver::create_graph(GraphHandle* out) {
  // Said here, before anything is made for a graph that cannot be recorded.
  if (Status status = api_.StreamBeginCaptureToGraph.available(); !status) return status;
  CUgraph graph = nullptr;
  if (Status status = in_some_context([&] { return api_.GraphCreate(&graph, 0); }); !status) return status;
  *out = to_handle(graph);
  return {};
}

Status CudaDriver::destroy_graph(GraphHandle graph) {
  if (Status status = api_.GraphDestroy.available(); !status) return status;
  auto own = from_handle<CUgraph>(graph);
  if (Status status = captures_.check_closed(own, api_.GraphDestroy.name()); !status) return status;
  if (Status status = bodies_.check_free(own, api_.GraphDestroy.name()); !status) return status;
  bodies_.forget(own);
  if (captures_.take_lost(own)) return {};
  return in_some_context([&] { return api_.GraphDestroy(own); });
}

Status CudaDriver::begin_capture(GraphHandle graph, StreamHandle origin) {
  const char* call = api_.StreamBeginCaptureToGraph.name();
  auto own = from_handle<CUgraph>(graph);
  auto stream = from_handle<CUstream>(origin);
  if (is_default(stream)) return refused(call, "a default stream cannot be captured; make a stream for it");
  if (Status status = captures_.check_free(stream, call); !status) return status;
  if (Status status = captures_.check_closed(own, call); !status) return status;
  if (Status status = bodies_.check_free(own, call); !status) return status;
  Status status = on_stream(api_, greens_, stream, [&] {
    return api_.StreamBeginCaptureToGraph(stream, own, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
  });
  if (status.ok()) captures_.begin(own, stream);
  return status;
}

// Waiting copies what the event stands for into the stream, so the event is not needed after that. It is of
// the origin's device, as events are; the stream may be of another.
Status CudaDriver::join_capture(StreamHandle origin, StreamHandle stream) {
  const char* call = api_.StreamWaitEvent.name();
  auto from = from_handle<CUstream>(origin);
  auto to = from_handle<CUstream>(stream);
  if (captures_.graph_of(from) == nullptr)
    return refused(call, "streams join the capture of the stream that began it, and this one began none");
  if (is_default(to)) return refused(call, "a default stream cannot be captured; make a stream for it");
  if (Status status = captures_.check_free(to, call); !status) return status;
  ContextHandle context = 0;
  EventHandle event = 0;
  if (Status status = stream_context(origin, &context); !status) return status;
  if (Status status = create_event(context, /*timing=*/false, &event); !status) return status;
  auto mark = from_handle<CUevent>(event);
  Status status = on_stream(api_, greens_, from, [&] { return api_.EventRecord(mark, from); });
  if (status.ok())
    status =
        on_stream(api_, greens_, to, [&] { return api_.StreamWaitEvent(to, mark, CU_EVENT_WAIT_DEFAULT); });
  destroy_event(event).ignore();
  if (!status) return explained(std::move(status), "joining a stream to a capture");
  captures_.join(from, to);
  return set_capture_dependencies(stream, {});
}

Status CudaDriver::set_next(CUstream stream, std::span<CUgraphNode> nodes) {
  Status status = on_stream(api_, greens_, stream, [&] {
    return api_.StreamUpdateCaptureDependencies(stream, nodes.data(), nodes.size(),
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  });
  if (status.ok()) return status;
  if (status.failure().raw == CUDA_ERROR_ILLEGAL_STATE) return explained(std::move(status), not_captured);
  if (nodes.empty()) return status;
  return explained(std::move(status), "setting " + std::to_string(nodes.size()) +
                                          " dependencies; they are nodes of the graph that is captured into");
}

Status CudaDriver::set_capture_dependencies(StreamHandle stream, std::span<const NodeHandle> nodes) {
  return set_next(from_handle<CUstream>(stream), node_pointers(nodes));
}

Status CudaDriver::capture_dependencies(StreamHandle stream, std::vector<NodeHandle>* out) {
  CaptureState state;
  auto own = from_handle<CUstream>(stream);
  if (Status status = on_stream(api_, greens_, own, [&] { return capture_state(api_, own, &state); });
      !status)
    return status;
  if (state.status == CU_STREAM_CAPTURE_STATUS_NONE)
    return refused(api_.StreamGetCaptureInfo.name(), not_captured);
  out->resize(state.next.size());
  std::transform(state.next.begin(), state.next.end(), out->begin(), to_handle);
  return {};
}

Status CudaDriver::add_empty_node(GraphHandle graph, std::span<const NodeHandle> after, NodeHandle* out) {
  const std::span<CUgraphNode> pointers = node_pointers(after);
  auto own = from_handle<CUgraph>(graph);
  CUgraphNode node = nullptr;
  Status status =
      in_some_context([&] { return api_.GraphAddEmptyNode(&node, own, pointers.data(), pointers.size()); });
  if (!status)
    return explained(std::move(status), "an empty node after " + std::to_string(after.size()) +
                                            " nodes, which have to be of the same graph");
  *out = to_handle(node);
  return {};
}

// A capture ends well when no stream is left at a node, the origin included. (Joining the leaves of the graph
// to the origin would do too, but listing the edges for that is quadratic: 10 to 25 us a task at 100,000.)
// Streams that a body drew in are not known here: one that was waited for is no obstacle, another one is an
// error of the body, CUDA_ERROR_STREAM_CAPTURE_UNJOINED.
Status CudaDriver::let_go_of_streams(StreamHandle origin, std::span<const StreamHandle> joined) {
  for (StreamHandle stream : joined)
    if (Status status = set_capture_dependencies(stream, {}); !status) return status;
  return set_capture_dependencies(origin, {});
}

Status CudaDriver::end_capture(StreamHandle origin, std::span<const StreamHandle> joined) {
  auto stream = from_handle<CUstream>(origin);
  const CUgraph graph = captures_.graph_of(stream);
  if (graph == nullptr) return refused(api_.StreamEndCapture.name(), "this stream began no capture");
  Status before = let_go_of_streams(origin, joined);
  CUgraph ended = nullptr;
  Status status = on_stream(api_, greens_, stream, [&] { return api_.StreamEndCapture(stream, &ended); });
  captures_.end(stream);
  // The driver gives back no graph then and destroys the one it was given (cuda-python issues 2834 and 2918;
  // in XLA, destroying it again was an invalid value).
  if (!status) {
    bodies_.forget(graph);
    captures_.lose(graph);
  }
  // What went wrong first says more than that the capture is void.
  return before.ok() ? std::move(status) : std::move(before);
}

Status CudaDriver::graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes,
                               std::vector<std::pair<NodeHandle, NodeHandle>>* edges) {
  auto own = from_handle<CUgraph>(graph);
  std::vector<CUgraphNode> found;
  Edges between;
  if (Status status = in_some_context([&] { return list_nodes(api_, own, &found); }); !status) return status;
  if (Status status = in_some_context([&] { return list_edges(api_, own, &between); }); !status)
    return status;
  nodes->clear();
  edges->clear();
  for (CUgraphNode node : found) nodes->push_back(to_handle(node));
  for (std::size_t i = 0; i < between.from.size(); ++i)
    edges->emplace_back(to_handle(between.from[i]), to_handle(between.to[i]));
  return {};
}

// Kernels keep the priority of the stream that they were recorded on, as all nodes keep its context; without
// the flag they would take that of the stream that launches them.
Status CudaDriver::instantiate_graph(GraphHandle graph, GraphExecHandle* out) {
  auto own = from_handle<CUgraph>(graph);
  const auto& call = api_.GraphInstantiateWithFlags;
  if (Status status = captures_.check_closed(own, call.name()); !status) return status;
  if (Status status = bodies_.check_free(own, call.name()); !status) return status;
  CUgraphExec exec = nullptr;
  Status status =
      in_some_context([&] { return call(&exec, own, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY); });
  if (!status) return status;
  *out = to_handle(exec);
  return {};
}

Status CudaDriver::update_graph_exec(GraphExecHandle exec, GraphHandle graph, bool* fits) {
  auto own = from_handle<CUgraph>(graph);
  const auto& call = api_.GraphExecUpdate;
  if (Status status = captures_.check_closed(own, call.name()); !status) return status;
  if (Status status = bodies_.check_free(own, call.name()); !status) return status;
  // What sets a condition holds the handle of its own graph, and whether an update maps it to that of the
  // executable is said nowhere. If it does not, the loop never ends.
  if (bodies_.any_of(own)) {
    *fits = false;
    return call.available();
  }
  bool refusal = false;
  Status status = in_some_context([&] {
    CUresult result = CUDA_SUCCESS;
    CUgraphExecUpdateResultInfo info{};
    if (Status made = call.raw(&result, from_handle<CUgraphExec>(exec), own, &info); !made) return made;
    refusal = result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ||
              (result == CUDA_SUCCESS && info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
    return refusal ? Status() : status_of(api_, result, call.name());
  });
  if (status.ok()) *fits = !refusal;
  return status;
}

// In a capture it would become a node with a copy of the executable in it, which no rule here is made for.
Status CudaDriver::launch_graph(GraphExecHandle exec, StreamHandle stream) {
  auto handle = from_handle<CUstream>(stream);
  if (Status status = captures_.check_free(handle, api_.GraphLaunch.name()); !status) return status;
  return on_stream(api_, greens_, handle,
                   [&] { return api_.GraphLaunch(from_handle<CUgraphExec>(exec), handle); });
}

Status CudaDriver::destroy_graph_exec(GraphExecHandle exec) {
  return in_some_context([&] { return api_.GraphExecDestroy(from_handle<CUgraphExec>(exec)); });
}

}  // namespace stf_places::cuda
