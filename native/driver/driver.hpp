// The seam between the core and a machine.
//
// `Driver` has two implementations: CudaDriver (cuda/), which loads libcuda at run time, and SimDriver
// (sim/), a deterministic machine inside this process. The core holds a reference that it was handed; there
// is no global. No type of cuda.h stands in this header, so that nothing above it depends on a CUDA version.
//
// Rules for every operation
// - It returns a Status and leaves its outputs untouched when it fails.
// - It is called without the Python GIL and without a lock that a host function could take, because enqueues
//   can block too. (`current_context` is the one exception: it reads thread-local state and never blocks.)
// - It leaves the calling thread's current context as it found it, except `set_current_context`.
// - Handles are plain 64-bit numbers. 0 is never a live handle, except that StreamHandle 0 means the legacy
//   default stream of the current context.
// - After fork() in a process that used the driver, every operation of the child fails with Code::forked.
// - Implementations are safe to call from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "status.hpp"

namespace stf_places {

using ContextHandle = std::uint64_t;
using StreamHandle = std::uint64_t;
using EventHandle = std::uint64_t;
using GraphHandle = std::uint64_t;
using NodeHandle = std::uint64_t;       // of one graph
using GraphExecHandle = std::uint64_t;  // an instantiated graph
using ConditionHandle = std::uint64_t;  // of a loop in a graph
using Address = std::uint64_t;
using HostFunction = void (*)(void*);

// Where bytes lie. `device` is -1 unless kind is device (for managed it is the preferred device, or -1).
struct Location {
  enum class Kind : std::uint8_t { host, device, managed };
  Kind kind = Kind::host;
  int device = -1;
  bool operator==(const Location&) const = default;
};

struct DeviceProperties {
  std::string name;
  int sm_count = 0;
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t total_memory = 0;  // bytes
  double memory_bandwidth = 0;   // GB/s; 0 when unknown
  int copy_engines = 0;
  bool memory_pools = false;  // stream-ordered allocation
  bool managed_memory = false;
  std::string uuid;  // "" when unknown
};

// A directed link between two devices, or between the host (-1) and a device.
struct Link {
  bool peer = false;     // direct access possible
  double bandwidth = 0;  // GB/s; 0 when unknown
  double latency_us = 0;
};

// A range that an operation reads or writes; the simulated machine checks bounds, lifetime and order with it.
struct Access {
  Address address = 0;
  std::size_t nbytes = 0;
  bool write = false;
  // Bytes of the range that are really used, where the others lie between them: a box of columns, say.
  // 0: all of them.
  std::size_t used = 0;
};

// What is known about work that runs on the SMs. CUDA ignores it; the simulated machine takes its clock from
// it.
struct Work {
  std::string_view symbol;  // task name, for reports
  double cost_us = -1;      // duration on `sms` SMs; negative: latency + bytes over bandwidth
  int sms = 0;              // width; 0: the whole place
  int waves = 1;            // points at which work of higher priority can take the SMs, plus one
  std::span<const Access> accesses;
  // Work with the same number, unless it is 0, belongs together and may run side by side: two of its accesses
  // of which one uses only a part of its range do not conflict.
  std::uint64_t whole = 0;
};

// A set of SMs as the driver hands it out: of a device, of a context, or a group of a split. A value: copies
// stand for the same SMs, and neither having nor splitting one creates anything on the device.
struct SmResource {
  int device = -1;
  int sm_count = 0;
  int min_partition = 0;               // SMs; of devices and contexts, 0 for groups of a split
  int alignment = 0;                   // SMs; likewise
  std::shared_ptr<const void> opaque;  // the driver's own description
};

// A group that `split_sms_unequally` is asked for. 0: no wish.
struct SmGroup {
  int sm_count = 0;
  int coscheduled = 0;  // SMs that are to share a cluster's hardware
};

// How a context of its own SMs takes part in the device's hardware work queues.
struct WorkQueues {
  int concurrency_limit = 0;  // expected number of streams at work at once; 0: the driver's own
  bool balanced = false;      // queues of its own where possible, else shared with all contexts
};

// A kernel of the machine's own kind. `function` is a CUfunction or CUkernel.
struct KernelLaunch {
  Address function = 0;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** parameters = nullptr;
};

// When a loop in a graph goes round again, asked after each round: while all of its terms hold, or any one of
// them; or, with a counter, until `count` rounds are over.
struct LoopCondition {
  enum class Type : std::uint8_t { float32, float64, int32, int64 };
  enum class Compare : std::uint8_t { less, less_equal, greater, greater_equal };
  // `threshold` is compared in the type of the value: `real` for floating-point values, `whole` for integers.
  struct Term {
    Address value = 0;  // of one element, in memory that the device reaches
    Type type = Type::float32;
    Compare compare = Compare::less;
    bool negate = false;
    double real = 0;
    std::int64_t whole = 0;
  };
  static constexpr std::size_t most_terms = 8;
  Term terms[most_terms];
  std::uint32_t size = 0;
  bool any = false;
  // A number of 64 bits in device memory, 0 before the loop; it is 0 again behind it.
  Address counter = 0;
  std::uint64_t count = 0;  // at least 1 where there is a counter
};

// Whether the terms hold, for values that the CPU reaches. NaN compares as in IEEE 754: false, also negated
// comparisons are the negation of that.
bool holds(const LoopCondition& condition);
// What is wrong with a condition; "" if nothing is.
std::string wrong_with(const LoopCondition& condition);

// Lets a long wait notice signals. `check` is called every few milliseconds without any lock held and returns
// true to give up; the wait then fails with Code::interrupted.
struct Interrupt {
  bool (*check)(void*) = nullptr;
  void* argument = nullptr;
  bool pending() const { return check != nullptr && check(argument); }
};

class Driver {
 public:
  virtual ~Driver() = default;

  // ---- What it is --------------------------------------------------------------------------------------
  virtual std::string_view name() const = 0;     // "cuda" or "sim"
  virtual std::string_view machine() const = 0;  // "cuda", or the simulated machine's name ("h200x2")
  virtual bool simulated() const = 0;
  virtual bool executes() const { return true; }        // false: a simulated machine that moves no bytes
  virtual bool deterministic() const { return false; }  // true: two runs give the same times
  virtual Status version(int* out) = 0;                 // 13000 for CUDA 13.0

  // ---- Devices -----------------------------------------------------------------------------------------
  virtual Status device_count(int* out) = 0;
  virtual Status device_properties(int device, DeviceProperties* out) = 0;
  virtual Status memory_info(int device, std::size_t* free, std::size_t* total) = 0;
  // from/to: device ordinals, -1 for the host. Asked of the driver at each call: it can change outside.
  virtual Status link(int from, int to, Link* out) = 0;
  // Lets kernels and copies of `device` reach memory of `peer` (its pool and plain allocations). Idempotent.
  virtual Status enable_peer_access(int device, int peer) = 0;

  // ---- Contexts ----------------------------------------------------------------------------------------
  // The primary context of a device, retained for as long as this driver lives.
  virtual Status primary_context(int device, ContextHandle* out) = 0;
  virtual Status current_context(ContextHandle* out) = 0;  // 0 when none is current
  virtual Status set_current_context(ContextHandle context) = 0;
  virtual Status context_device(ContextHandle context, int* out) = 0;

  // ---- SMs ---------------------------------------------------------------------------------------------
  // not_supported, naming CUDA 12.5, where the driver has no green contexts that suffice.
  virtual Status device_sms(int device, SmResource* out) = 0;
  virtual Status context_sms(ContextHandle context, SmResource* out) = 0;  // a primary context: the device's
  // Equal groups of at least `sm_count` SMs, `groups` of them or as many as fit (0: that many), and what is
  // left (sm_count 0: nothing). Counts are granted as the driver rounds them; read sm_count. `fine` ignores
  // co-scheduling, for counts in steps of 2 without thread-block clusters. Groups and what is left cannot be
  // split again: invalid_value, as for counts that do not fit.
  virtual Status split_sms(const SmResource& whole, int sm_count, int groups, bool fine,
                           std::vector<SmResource>* out, SmResource* left) = 0;
  // Groups of given sizes in one split. not_supported before CUDA 13.1.
  virtual Status split_sms_unequally(const SmResource& whole, std::span<const SmGroup> groups,
                                     std::vector<SmResource>* out, SmResource* left) = 0;
  // A green context: what runs on its streams stays on these SMs, which are groups (and what is left) of one
  // split. Its streams, and events on them, are made with create_stream and create_event like any context's.
  // `queues` may be null; otherwise not_supported before CUDA 13.1. Current contexts are not touched.
  virtual Status create_green_context(int device, std::span<const SmResource> sms, const WorkQueues* queues,
                                      ContextHandle* out) = 0;
  // Its streams have been destroyed before, and it is current nowhere.
  virtual Status destroy_green_context(ContextHandle context) = 0;

  // ---- Streams -----------------------------------------------------------------------------------------
  // Of a context; non-blocking towards the legacy default stream. Priority 0 is the default, negative numbers
  // are more urgent (clamped to what the device has).
  virtual Status create_stream(ContextHandle context, int priority, StreamHandle* out) = 0;
  virtual Status destroy_stream(StreamHandle stream) = 0;  // work already enqueued still completes
  virtual Status query_stream(StreamHandle stream) = 0;    // not_ready while work is pending
  virtual Status synchronize_stream(StreamHandle stream, const Interrupt& interrupt) = 0;
  virtual Status stream_context(StreamHandle stream, ContextHandle* out) = 0;
  virtual Status stream_capturing(StreamHandle stream, bool* out) = 0;
  // The legacy default streams of `context`: not_ready while work is pending there.
  virtual Status query_default_streams(ContextHandle context) = 0;

  // ---- Events ------------------------------------------------------------------------------------------
  virtual Status create_event(ContextHandle context, bool timing, EventHandle* out) = 0;
  virtual Status destroy_event(EventHandle event) = 0;
  virtual Status record_event(EventHandle event, StreamHandle stream) = 0;
  virtual Status wait_event(StreamHandle stream, EventHandle event) = 0;
  virtual Status query_event(EventHandle event) = 0;
  virtual Status synchronize_event(EventHandle event, const Interrupt& interrupt) = 0;
  // Microseconds from one completed timing event to another of the same device.
  virtual Status elapsed_us(EventHandle from, EventHandle to, double* out) = 0;

  // ---- Memory ------------------------------------------------------------------------------------------
  // Stream-ordered memory from a pool of our own: usable by what follows on `stream`, given back after what
  // precedes on `stream`. `stream` belongs to `device` for allocation; a free may come from another device.
  virtual Status allocate_device(int device, std::size_t nbytes, StreamHandle stream, Address* out) = 0;
  virtual Status free_device(int device, Address address, StreamHandle stream) = 0;
  // Gives unused memory of the pool back to the system. Waits for the device's work.
  virtual Status trim_device(int device) = 0;
  virtual Status allocate_host(std::size_t nbytes, Address* out) = 0;  // pinned, reachable by all devices
  virtual Status free_host(Address address) = 0;                       // the caller has waited for its users
  virtual Status allocate_managed(std::size_t nbytes, int device, Address* out) = 0;
  virtual Status free_managed(Address address) = 0;

  // Page-mapped memory: one range of addresses whose pages lie on several devices. Addresses, offsets and
  // sizes are multiples of the page granularity of all devices concerned. None of this is in stream order:
  // the caller has waited for all users of what it unmaps. Copies and fills name the device of the pages, and
  // stay within neighbouring pages of one device.
  virtual Status page_granularity(int device, std::size_t* out) = 0;      // bytes
  virtual Status reserve_pages(std::size_t nbytes, Address* out) = 0;     // addresses without memory
  virtual Status release_pages(Address address, std::size_t nbytes) = 0;  // a whole range, nothing mapped
  // One piece of a device's memory, within one range; nobody reaches it before grant_access.
  virtual Status map_pages(Address address, std::size_t nbytes, int device) = 0;
  virtual Status unmap_pages(Address address, std::size_t nbytes) = 0;  // whole pieces, all of them mapped
  // Lets kernels and copies of `devices` read and write whole pieces, all of them mapped. not_supported,
  // naming the pair, where a device cannot reach the pages of another.
  virtual Status grant_access(Address address, std::size_t nbytes, std::span<const int> devices) = 0;

  // Bytes between any two locations, in stream order. Host memory may be pageable; then CUDA reads it when
  // the copy is enqueued, so whoever writes it must be done by then. The same holds between two host
  // locations.
  virtual Status copy(Address to, Location to_at, Address from, Location from_at, std::size_t nbytes,
                      StreamHandle stream) = 0;
  // `count` elements of `width` bytes (1, 2, 4, 8 or 16), each set to the bytes at `value`.
  virtual Status fill(Address to, Location at, const void* value, std::size_t width, std::size_t count,
                      StreamHandle stream) = 0;

  // ---- Work --------------------------------------------------------------------------------------------
  // `function(argument)` on a thread of the driver's, in stream order. On the simulated machine: on the
  // thread of a later call. After a context error it is not called.
  virtual Status host_function(StreamHandle stream, HostFunction function, void* argument) = 0;
  virtual Status launch(const KernelLaunch& kernel, StreamHandle stream, const Work& work) = 0;

  // ---- Graphs ------------------------------------------------------------------------------------------
  // Work comes into a graph by a capture that stays open while the graph is recorded. Streams take part in
  // it; what is then enqueued on one of them (copies, fills, kernels, host functions, host work) becomes a
  // node instead of running. A node depends on what was set before; after it, the stream's next node depends
  // on that node alone, unless set otherwise. So independent work on one stream has no edge. Streams that
  // take part are neither waited for nor queried, no event is recorded on them, and memory is allocated and
  // freed elsewhere. not_supported, naming CUDA 12.3, where the driver cannot capture into a graph.
  virtual Status create_graph(GraphHandle* out) = 0;
  virtual Status destroy_graph(GraphHandle graph) = 0;  // its executables stay usable
  // `origin` opens the capture, others join it. The next node on each depends on nothing.
  virtual Status begin_capture(GraphHandle graph, StreamHandle origin) = 0;
  virtual Status join_capture(StreamHandle origin, StreamHandle stream) = 0;
  // What the next node on a stream depends on.
  virtual Status set_capture_dependencies(StreamHandle stream, std::span<const NodeHandle> nodes) = 0;
  virtual Status capture_dependencies(StreamHandle stream, std::vector<NodeHandle>* out) = 0;
  // A node that does nothing, for one name of what many nodes have done.
  virtual Status add_empty_node(GraphHandle graph, std::span<const NodeHandle> after, NodeHandle* out) = 0;
  // Ends the capture for all its streams, also when it fails; the graph is then of no use.
  virtual Status end_capture(StreamHandle origin, std::span<const StreamHandle> joined) = 0;
  // A whole graph as one node, by value: the other one stays its owner's. It has no loops in it.
  virtual Status add_graph_node(GraphHandle graph, std::span<const NodeHandle> after, GraphHandle child,
                                NodeHandle* out) = 0;
  // What a loop of `graph` asks before each round; true at each launch until something sets it. For a loop in
  // the body of another one that is no more often: a condition that holds always, set before the inner loop,
  // lets it go round again. `context` is that of the loop's body. not_supported, naming CUDA 12.4, where the
  // driver has no loops in graphs.
  virtual Status create_condition(GraphHandle graph, ContextHandle context, ConditionHandle* out) = 0;
  // A node that runs its body as long as the condition is true, asked before each round. The body belongs to
  // the graph; nodes are added to it as to any other, all of one context: graphs of kernels, fills and copies
  // within the device, further loops, and one node that sets the condition. No capture goes into it.
  virtual Status add_loop_node(GraphHandle graph, std::span<const NodeHandle> after,
                               ConditionHandle condition, ContextHandle context, GraphHandle* body,
                               NodeHandle* out) = 0;
  // Sets the condition, in the loop's body or before the loop. `kernel` is the CUkernel that does it on CUDA
  // (its only parameter: `condition`, then the LoopCondition, see cuda/loops.cpp); a simulated machine needs
  // none.
  virtual Status add_condition_node(GraphHandle graph, std::span<const NodeHandle> after,
                                    ConditionHandle condition, const LoopCondition& when, Address kernel,
                                    ContextHandle context, NodeHandle* out) = 0;
  // For reports and checks: nodes in the order in which they were added, edges from one to a later one.
  virtual Status graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes,
                             std::vector<std::pair<NodeHandle, NodeHandle>>* edges) = 0;
  // Nodes keep the context of the stream that they were recorded on, whatever stream launches them.
  virtual Status instantiate_graph(GraphHandle graph, GraphExecHandle* out) = 0;
  // Makes an executable do what a graph with the same nodes and edges does. `*fits`: false where the driver
  // cannot (the executable is then as before, and the graph needs one of its own).
  virtual Status update_graph_exec(GraphExecHandle exec, GraphHandle graph, bool* fits) = 0;
  // All nodes behind what precedes on the stream, and before what follows. Launches of one executable run one
  // after the other.
  virtual Status launch_graph(GraphExecHandle exec, StreamHandle stream) = 0;
  virtual Status destroy_graph_exec(GraphExecHandle exec) = 0;  // the caller has waited for its launches
  // Of an executable whose launches the caller has waited for, and that is launched again only after an
  // update: lets go of what its host work holds. Nothing on CUDA, which has no host work.
  virtual Status rest_graph_exec(GraphExecHandle exec);

  // Host code that stands for device work, run in stream order: simulated machine only. `function` may be
  // null (only the clock moves). It is run exactly once, or never when the machine does not execute or the
  // work before it failed; `release(argument)` is called in every case, once. In a graph: run at each launch,
  // released once the graph and its executables are gone.
  virtual Status host_work(StreamHandle stream, HostFunction function, HostFunction release, void* argument,
                           const Work& work);
  // Brackets a task body that uses the CPU directly on the data. begin_body drains everything that later work
  // on `stream` would have to wait for; end_body puts the body's duration and accesses on the clock. Both do
  // nothing on CUDA.
  virtual Status begin_body(StreamHandle stream, const Interrupt& interrupt);
  virtual Status end_body(StreamHandle stream, const Work& work);
};

// "12.5" for 12050.
std::string version_text(int version);

// Loads libcuda and initialises it. Fails with not_supported where no driver is installed.
Status make_cuda_driver(std::shared_ptr<Driver>* out);

}  // namespace stf_places
