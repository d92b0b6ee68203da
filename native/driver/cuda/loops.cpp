// Graphs within graphs, and loops: while-nodes whose condition a kernel sets on the device.
#include "loops.hpp"

#include <cstddef>

#include "cuda_driver.hpp"

namespace stf_places::cuda {

// The kernel takes a LoopCondition by value: its own description of it (stf_places/flow/condition_kernels.py)
// asserts the same numbers.
static_assert(sizeof(LoopCondition::Term) == 32 && offsetof(LoopCondition::Term, value) == 0 &&
              offsetof(LoopCondition::Term, type) == 8 && offsetof(LoopCondition::Term, compare) == 9 &&
              offsetof(LoopCondition::Term, negate) == 10 && offsetof(LoopCondition::Term, real) == 16 &&
              offsetof(LoopCondition::Term, whole) == 24);
static_assert(sizeof(LoopCondition) == 280 && LoopCondition::most_terms == 8 &&
              offsetof(LoopCondition, terms) == 0 && offsetof(LoopCondition, size) == 256 &&
              offsetof(LoopCondition, any) == 260 && offsetof(LoopCondition, counter) == 264 &&
              offsetof(LoopCondition, count) == 272);

namespace {

constexpr int cuda_12_4 = 12040;

constexpr const char* body_rule =
    "the body of a loop holds kernels, fills, copies within the device, further loops and graphs of these, "
    "all of the loop's own context";

std::string behind(std::span<const NodeHandle> after) {
  return "after " + std::to_string(after.size()) + " nodes, which have to be of the same graph";
}

}  // namespace

// ---- Whose bodies are whose ----

void LoopBodies::add(CUgraph owner, CUgraph body) {
  std::scoped_lock lock(mutex_);
  owners_[body] = owner;
  size_.store(owners_.size(), std::memory_order_release);
}

void LoopBodies::forget(CUgraph owner) {
  if (size_.load(std::memory_order_acquire) == 0) return;
  std::scoped_lock lock(mutex_);
  std::vector<CUgraph> gone{owner};
  for (std::size_t at = 0; at < gone.size(); ++at) {
    std::erase_if(owners_, [&](const auto& one) {
      if (one.second != gone[at]) return false;
      gone.push_back(one.first);
      return true;
    });
  }
  size_.store(owners_.size(), std::memory_order_release);
}

bool LoopBodies::any_of(CUgraph owner) const {
  if (size_.load(std::memory_order_acquire) == 0) return false;
  std::scoped_lock lock(mutex_);
  for (const auto& [body, of] : owners_)
    if (of == owner) return true;
  return false;
}

Status LoopBodies::find(CUgraph graph, const char* call) const {
  {
    std::scoped_lock lock(mutex_);
    if (!owners_.contains(graph)) return {};
  }
  return refused(
      call,
      "this graph is the body of a loop and belongs to the loop's graph: nodes can be added to it, "
      "and it is instantiated and destroyed with that graph");
}

// ---- Nodes ----

Status CudaDriver::add_graph_node(GraphHandle graph, std::span<const NodeHandle> after, GraphHandle child,
                                  NodeHandle* out) {
  const auto& call = api_.GraphAddChildGraphNode;
  const std::span<CUgraphNode> pointers = node_pointers(after);
  auto own = from_handle<CUgraph>(graph);
  auto inner = from_handle<CUgraph>(child);
  if (Status status = captures_.check_closed(inner, call.name()); !status) return status;
  if (Status status = bodies_.check_free(inner, call.name()); !status) return status;
  if (bodies_.any_of(inner))
    return refused(call.name(), "a graph with loops in it cannot be a node; add its nodes to this graph");
  CUgraphNode node = nullptr;
  Status status = in_some_context([&] { return call(&node, own, pointers.data(), pointers.size(), inner); });
  if (!status) return explained(std::move(status), "a graph as a node " + behind(after) + "; " + body_rule);
  *out = to_handle(node);
  return {};
}

// Loops came with 12.3 as kernels alone; bodies with copies, fills and loops are of 12.4.
Status CudaDriver::needs_loops(const char* call) {
  int found = 0;
  if (Status status = version(&found); !status) return status;
  if (found >= cuda_12_4) return {};
  return Status(
      Failure{Code::not_supported, 0, call, "",
              "loops in graphs come with CUDA 12.4; this driver is of CUDA " + version_text(found)});
}

Status CudaDriver::create_condition(GraphHandle graph, ContextHandle context, ConditionHandle* out) {
  const auto& call = api_.GraphConditionalHandleCreate;
  if (Status status = needs_loops(call.name()); !status) return status;
  CUgraphConditionalHandle made = 0;
  Status status = in_some_context([&] {
    return call(&made, from_handle<CUgraph>(graph), from_handle<CUcontext>(context), /*defaultLaunchValue=*/1,
                CU_GRAPH_COND_ASSIGN_DEFAULT);
  });
  if (!status) return explained(std::move(status), "the condition of a loop");
  *out = made;
  return {};
}

Status CudaDriver::add_loop_node(GraphHandle graph, std::span<const NodeHandle> after,
                                 ConditionHandle condition, ContextHandle context, GraphHandle* body,
                                 NodeHandle* out) {
  const auto& call = api_.GraphAddNode;
  if (Status status = needs_loops(call.name()); !status) return status;
  const std::span<CUgraphNode> pointers = node_pointers(after);
  auto own = from_handle<CUgraph>(graph);
  CUgraphNodeParams given{};
  given.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  given.conditional.handle = condition;
  given.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  given.conditional.size = 1;
  given.conditional.ctx = from_handle<CUcontext>(context);
  CUgraphNode node = nullptr;
  Status status = in_some_context(
      [&] { return call(&node, own, pointers.data(), /*dependencyData=*/nullptr, pointers.size(), &given); });
  if (!status) {
    return explained(std::move(status), "a loop " + behind(after) +
                                            "; its condition is one of this graph and of the same context, "
                                            "and no other loop's");
  }
  CUgraph made = given.conditional.phGraph_out[0];
  bodies_.add(own, made);
  *body = to_handle(made);
  *out = to_handle(node);
  return {};
}

Status CudaDriver::add_condition_node(GraphHandle graph, std::span<const NodeHandle> after,
                                      ConditionHandle condition, const LoopCondition& when, Address kernel,
                                      ContextHandle context, NodeHandle* out) {
  const auto& call = api_.GraphAddKernelNode;
  if (std::string wrong = wrong_with(when); !wrong.empty()) return refused(call.name(), std::move(wrong));
  if (kernel == 0) return refused(call.name(), "the kernel that sets conditions is needed: got null");
  if (Status status = needs_loops(call.name()); !status) return status;
  const std::span<CUgraphNode> pointers = node_pointers(after);
  CUgraphConditionalHandle handle = condition;
  LoopCondition value = when;
  void* parameters[] = {&handle, &value};
  CUDA_KERNEL_NODE_PARAMS_v2 given{};
  given.gridDimX = given.gridDimY = given.gridDimZ = 1;
  given.blockDimX = given.blockDimY = given.blockDimZ = 1;
  given.kernelParams = parameters;
  given.kern = from_handle<CUkernel>(kernel);
  given.ctx = from_handle<CUcontext>(context);
  CUgraphNode node = nullptr;
  Status status = in_some_context(
      [&] { return call(&node, from_handle<CUgraph>(graph), pointers.data(), pointers.size(), &given); });
  if (!status) return explained(std::move(status), "the kernel that sets a condition " + behind(after));
  *out = to_handle(node);
  return {};
}

}  // namespace stf_places::cuda
