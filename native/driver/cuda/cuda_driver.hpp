// The Driver of real GPUs, through libcuda loaded at run time.
//
// One class, its members defined by resource family: cuda_driver.cpp (devices and contexts), sms.cpp (sets of
// SMs), green_contexts.cpp (contexts of some SMs), streams.cpp (streams and events), memory.cpp (allocation),
// pages.cpp (memory mapped into reserved addresses), transfers.cpp (copies and fills), work.cpp (host
// functions, kernels), graphs.cpp (captures and graphs) and loops.cpp (graphs within graphs, loops).
#pragma once

#include "../driver.hpp"
#include "api.hpp"
#include "captures.hpp"
#include "contexts.hpp"
#include "devices.hpp"
#include "green_contexts.hpp"
#include "loops.hpp"
#include "page_table.hpp"

namespace stf_places::cuda {

class CudaDriver final : public Driver {
 public:
  // Opens libcuda, initialises it and finds the devices.
  Status open();

  std::string_view name() const override { return "cuda"; }
  std::string_view machine() const override { return "cuda"; }
  bool simulated() const override { return false; }
  Status version(int* out) override;

  Status device_count(int* out) override;
  Status device_properties(int device, DeviceProperties* out) override;
  Status memory_info(int device, std::size_t* free, std::size_t* total) override;
  Status link(int from, int to, Link* out) override;
  Status enable_peer_access(int device, int peer) override;

  Status primary_context(int device, ContextHandle* out) override;
  Status current_context(ContextHandle* out) override;
  Status set_current_context(ContextHandle context) override;
  Status context_device(ContextHandle context, int* out) override;

  Status device_sms(int device, SmResource* out) override;
  Status context_sms(ContextHandle context, SmResource* out) override;
  Status split_sms(const SmResource& whole, int sm_count, int groups, bool fine, std::vector<SmResource>* out,
                   SmResource* left) override;
  Status split_sms_unequally(const SmResource& whole, std::span<const SmGroup> groups,
                             std::vector<SmResource>* out, SmResource* left) override;
  Status create_green_context(int device, std::span<const SmResource> sms, const WorkQueues* queues,
                              ContextHandle* out) override;
  Status destroy_green_context(ContextHandle context) override;

  Status create_stream(ContextHandle context, int priority, StreamHandle* out) override;
  Status destroy_stream(StreamHandle stream) override;
  Status query_stream(StreamHandle stream) override;
  Status synchronize_stream(StreamHandle stream, const Interrupt& interrupt) override;
  Status stream_context(StreamHandle stream, ContextHandle* out) override;
  Status stream_capturing(StreamHandle stream, bool* out) override;
  Status query_default_streams(ContextHandle context) override;

  Status create_event(ContextHandle context, bool timing, EventHandle* out) override;
  Status destroy_event(EventHandle event) override;
  Status record_event(EventHandle event, StreamHandle stream) override;
  Status wait_event(StreamHandle stream, EventHandle event) override;
  Status query_event(EventHandle event) override;
  Status synchronize_event(EventHandle event, const Interrupt& interrupt) override;
  Status elapsed_us(EventHandle from, EventHandle to, double* out) override;

  Status allocate_device(int device, std::size_t nbytes, StreamHandle stream, Address* out) override;
  Status free_device(int device, Address address, StreamHandle stream) override;
  Status trim_device(int device) override;
  Status allocate_host(std::size_t nbytes, Address* out) override;
  Status free_host(Address address) override;
  Status allocate_managed(std::size_t nbytes, int device, Address* out) override;
  Status free_managed(Address address) override;

  Status page_granularity(int device, std::size_t* out) override;
  Status reserve_pages(std::size_t nbytes, Address* out) override;
  Status release_pages(Address address, std::size_t nbytes) override;
  Status map_pages(Address address, std::size_t nbytes, int device) override;
  Status unmap_pages(Address address, std::size_t nbytes) override;
  Status grant_access(Address address, std::size_t nbytes, std::span<const int> devices) override;

  Status copy(Address to, Location to_at, Address from, Location from_at, std::size_t nbytes,
              StreamHandle stream) override;
  Status fill(Address to, Location at, const void* value, std::size_t width, std::size_t count,
              StreamHandle stream) override;

  Status host_function(StreamHandle stream, HostFunction function, void* argument) override;
  Status launch(const KernelLaunch& kernel, StreamHandle stream, const Work& work) override;

  Status create_graph(GraphHandle* out) override;
  Status destroy_graph(GraphHandle graph) override;
  Status begin_capture(GraphHandle graph, StreamHandle origin) override;
  Status join_capture(StreamHandle origin, StreamHandle stream) override;
  Status set_capture_dependencies(StreamHandle stream, std::span<const NodeHandle> nodes) override;
  Status capture_dependencies(StreamHandle stream, std::vector<NodeHandle>* out) override;
  Status add_empty_node(GraphHandle graph, std::span<const NodeHandle> after, NodeHandle* out) override;
  Status end_capture(StreamHandle origin, std::span<const StreamHandle> joined) override;
  Status add_graph_node(GraphHandle graph, std::span<const NodeHandle> after, GraphHandle child,
                        NodeHandle* out) override;
  Status create_condition(GraphHandle graph, ContextHandle context, ConditionHandle* out) override;
  Status add_loop_node(GraphHandle graph, std::span<const NodeHandle> after, ConditionHandle condition,
                       ContextHandle context, GraphHandle* body, NodeHandle* out) override;
  Status add_condition_node(GraphHandle graph, std::span<const NodeHandle> after, ConditionHandle condition,
                            const LoopCondition& when, Address kernel, ContextHandle context,
                            NodeHandle* out) override;
  Status graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes,
                     std::vector<std::pair<NodeHandle, NodeHandle>>* edges) override;
  Status instantiate_graph(GraphHandle graph, GraphExecHandle* out) override;
  Status update_graph_exec(GraphExecHandle exec, GraphHandle graph, bool* fits) override;
  Status launch_graph(GraphExecHandle exec, StreamHandle stream) override;
  Status destroy_graph_exec(GraphExecHandle exec) override;

 private:
  Status divisible_set(int device, const CUdevResource& description, SmResource* out);
  Status work_queues(int device, const WorkQueues& queues, CUdevResource* out);
  Status out_of_memory(Status status, int device, std::size_t nbytes);
  Status coarsest_granularity(std::size_t* out);
  Status map_memory(Address address, std::size_t nbytes, int device);
  Status check_grant(int device, int owner);
  bool copies_directly(Address to, int to_device, Address from, int from_device) const;
  Status copy_between_peers(Address to, int to_device, Address from, int from_device, std::size_t nbytes,
                            StreamHandle stream);
  Status fill_device(Address to, const void* value, std::size_t width, std::size_t count,
                     StreamHandle stream);
  Status fill_narrow(Address to, const unsigned char* value, std::size_t width, std::size_t count,
                     StreamHandle stream);
  Status fill_wide(Address to, const unsigned char* value, std::size_t width, std::size_t count,
                   StreamHandle stream);
  Status fill_host(Address to, const void* value, std::size_t width, std::size_t count, StreamHandle stream);
  // Graphs belong to no context, but some calls insist on one: then, and only then, one is made current.
  template <class Operation>
  Status in_some_context(Operation operation) {
    Status status = operation();
    if (status.ok() || status.failure().raw != CUDA_ERROR_INVALID_CONTEXT) return status;
    CUcontext context = nullptr;
    if (!devices_.any_context(&context).ok()) return status;
    ContextScope scope(api_, context);
    if (!scope.status().ok()) return status;
    return operation();
  }
  Status set_next(CUstream stream, std::span<CUgraphNode> nodes);
  Status let_go_of_streams(StreamHandle origin, std::span<const StreamHandle> joined);
  Status needs_loops(const char* call);

  Api api_;
  Devices devices_{api_};
  GreenContexts greens_;
  PageTable pages_;
  Captures captures_;
  LoopBodies bodies_;
};

// Nodes of the seam as the driver's own.
std::span<CUgraphNode> node_pointers(std::span<const NodeHandle> nodes);

// A handle of the seam as the driver's own pointer type, and back.
template <class Pointer>
Pointer from_handle(std::uint64_t handle) noexcept {
  return reinterpret_cast<Pointer>(static_cast<std::uintptr_t>(handle));
}
inline std::uint64_t to_handle(const void* pointer) noexcept {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
}

}  // namespace stf_places::cuda
