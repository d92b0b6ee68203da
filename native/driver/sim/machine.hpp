// The simulated machine itself: SimDriver put together from memory, effects, clock, races and faults.
//
// One mutex guards all state and is held for short moments only. Whoever makes effects is the executor: one
// thread at a time, marked by `executor_`, which gives the mutex up around each memcpy and each call of a
// host function, so that other threads can go on submitting meanwhile.
//
// The member functions are spread by subject: machine.cpp (devices, contexts), machine_control.cpp (what only
// a simulation can do, submitting), machine_partitions.cpp (SMs, green contexts), machine_streams.cpp,
// machine_events.cpp, machine_memory.cpp (also copies, fills), machine_pages.cpp (page-mapped memory),
// machine_work.cpp (host functions, work, bodies), machine_graphs.cpp (recording graphs),
// machine_launches.cpp (executables of graphs), machine_loops.cpp (loops: what is put into graphs),
// machine_rounds.cpp (loops: running them), executor.cpp (making effects).
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "effects.hpp"
#include "faults.hpp"
#include "fork_guard.hpp"
#include "graphs.hpp"
#include "memory.hpp"
#include "operation.hpp"
#include "races.hpp"
#include "sim_driver.hpp"
#include "sm_sets.hpp"

namespace stf_places::sim {

class Machine final : public SimDriver {
 public:
  Machine(const MachineSpec& spec, const Options& options);
  ~Machine() override;

  std::string_view name() const override { return "sim"; }
  std::string_view machine() const override { return spec_.name; }
  bool simulated() const override { return true; }
  bool executes() const override { return options_.execute; }
  bool deterministic() const override { return !options_.measure_bodies; }
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
  Status host_work(StreamHandle stream, HostFunction function, HostFunction release, void* argument,
                   const Work& work) override;
  Status begin_body(StreamHandle stream, const Interrupt& interrupt) override;
  Status end_body(StreamHandle stream, const Work& work) override;

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
  Status rest_graph_exec(GraphExecHandle exec) override;

  const MachineSpec& spec() const override { return spec_; }
  double now_us() const override;
  void advance_us(double us) override;
  void order_fault(FaultKind kind, std::uint64_t nth, Code code) override;
  std::vector<std::string> conflicts() const override;
  void record_timeline(bool on) override;
  std::vector<TimelineEntry> timeline() const override;
  std::size_t used_memory(int device) const override;
  std::size_t live_allocations() const override;
  std::size_t live_graphs() const override;
  std::uint64_t operations() const override;
  Status drain() override;
  std::vector<int> sm_ids(ContextHandle context) const override;
  std::vector<LinkTraffic> link_traffic() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Context {
    int device = 0;
    StreamHandle default_stream = 0;  // made when it is first used
    int open_streams = 0;             // the default stream not counted
    bool destroyed = false;
    std::shared_ptr<const SmSet> sms;         // null: a primary context
    std::shared_ptr<const SmMask> partition;  // the same SMs
  };
  struct EventSlot {
    std::uint32_t generation = 0;
    bool live = false;
    Event event;
  };
  struct Unreclaimed {
    Allocation* allocation;  // null: a range
    std::uint64_t sequence;  // last operation that could still touch it
    Address address = 0;     // of a range
    std::size_t nbytes = 0;
  };

  // The bytes that work uses.
  struct Reach {
    std::size_t nbytes = 0;
    std::vector<LinkTraffic> remote;  // in memory of other devices, one entry an access and piece
  };

  // -- Looking up (all with the mutex held) --
  Status find_device(const char* call, int device) const;
  Status find_context(const char* call, ContextHandle context, Context** out);
  // Whether a call works on a stream that records a graph.
  enum class Recording : bool { refused, allowed };
  // The stream, which must be open and on a device that is not lost.
  Status find_stream(const char* call, StreamHandle handle, Stream** out,
                     Recording recording = Recording::refused);
  Status find_open_stream(const char* call, StreamHandle handle, Stream** out,
                          Recording recording = Recording::refused);
  Status find_default_stream(const char* call, StreamHandle* handle);
  Status find_event(const char* call, EventHandle handle, Event** out);
  Stream* stream_at(StreamHandle handle) const;
  Stream* make_stream(ContextHandle context, int priority);
  void close(Stream* stream);
  void reap_streams();

  // -- SMs (machine_partitions.cpp) --
  Status needs_version(const char* call, int version, const char* what) const;
  Status needs_green_contexts(const char* call) const;
  Status find_sms(const char* call, const SmResource& resource, const SmSet** out) const;
  // The same for one that can be split.
  Status find_whole(const char* call, const SmResource& whole, const SmSet** out) const;
  std::vector<int> all_sms(int device) const;
  SmResource resource_of(std::shared_ptr<const SmSet> set) const;
  SmResource resource_of(int device, SmSet::Origin origin, std::vector<int> ids) const;
  void hand_over(const SmSet& whole, SmSplit&& split, std::vector<SmResource>* out, SmResource* left) const;
  Status join_sms(const char* call, int device, std::span<const SmResource> sms, std::vector<int>* out) const;

  // -- Submitting --
  Operation* take(OperationKind kind, Stream* stream) { return pool_.take(kind, stream); }
  // Puts the operation behind all others; `cost_us` is what the call costs the host.
  void submit(Operation* operation, double cost_us);
  // The same for one whose effect has been made already.
  void submit_made(Operation* operation, double cost_us);
  void put_on_clock(Operation* operation, double cost_us);
  // Keeps the number of pending operations bounded, as a real driver's enqueue would by blocking.
  void bound_pending(Lock& lock);
  void strike(FaultKind kind, Operation* operation);
  Status strike_at_call(const char* call, FaultKind kind, int device);
  void lose_device(int device, const Failure& failure);

  // -- Events --
  // Returns the recording with a reference for the caller.
  Record* put_record(Stream* stream, double cost_us);
  void put_wait(Stream* stream, Record* record, double cost_us);

  // -- Graphs (machine_graphs.cpp, machine_launches.cpp) --
  Status find_graph(const char* call, GraphHandle handle, Graph** out) const;
  // The same for one that is neither being recorded nor of no use.
  Status find_recorded_graph(const char* call, GraphHandle handle, Graph** out) const;
  Status find_graph_exec(const char* call, GraphExecHandle handle, GraphExec** out) const;
  // The same for one whose launches are done.
  Status find_idle_exec(const char* call, GraphExecHandle handle, GraphExec** out);
  Status find_capturing(const char* call, StreamHandle handle, Stream** out);
  // The same for the stream that began its capture.
  Status find_origin(const char* call, StreamHandle handle, Stream** out);
  Status find_nodes(const char* call, const Graph& graph, std::span<const NodeHandle> nodes,
                    std::vector<std::uint32_t>* out) const;
  void start_recording(Graph* graph, Stream* stream);
  // Adds a node whose accesses lie in `found`.
  NodeHandle add_node(Graph* graph, Node node, std::span<Allocation* const> found);
  // Makes an operation a node of the graph that its stream records.
  void record(Stream* stream, Node node, std::span<Allocation* const> found);
  // Moves a graph and the bodies in it to `out`.
  void take_graph(GraphHandle handle, std::vector<std::unique_ptr<Graph>>* out);
  // The nodes of a graph as an executable has them.
  Status nodes_of(const char* call, const Graph& graph, Nodes* out) const;
  Status check_lanes(const char* call, const Layout& layout);
  void make_lanes(Layout* layout);
  void close_lanes(const Layout& layout);
  // The same as find_graph_exec, once no launch of it is being submitted.
  Status find_settled_exec(Lock& lock, const char* call, GraphExecHandle handle, GraphExec** out);
  // Adds what the nodes touch to `found`.
  Status check_nodes(const char* call, const Nodes& nodes, const Layout& layout, const std::string& where,
                     std::vector<Allocation*>* found);
  Status check_node(const char* call, const Stream* lane, const Node& node, std::vector<Allocation*>* found);
  void put_launch(Lock& lock, GraphExec* exec, Stream* stream);
  // Submits nodes behind what is on the stream, and makes it wait for them.
  struct Submission {
    Lock& lock;
    GraphExec* exec;
    double node_us;  // what each node costs the host
    double edge_us;
    bool first;  // whether nothing has been let in between since all was checked
    std::span<Allocation* const> found;
  };
  void put_nodes(Submission& submission, const Nodes& nodes, const Layout& layout, Stream* stream);
  void put_node(Submission& submission, Stream* lane, const Node& node);

  // -- Loops (machine_loops.cpp, machine_rounds.cpp) --
  Status find_condition(const char* call, ConditionHandle handle, Condition** out);
  Status check_body(const char* call, const Graph& body, const Node& node) const;
  Status check_setting(const char* call, const Graph& graph, ConditionHandle handle,
                       ContextHandle context) const;
  void put_loop(Submission& submission, const Node& node, const Layout& body, Stream* lane);
  void put_condition(Submission& submission, Stream* lane, const Node& node,
                     std::span<Allocation* const> found);
  bool goes_on(const Node& node, const ConditionState& state) const;
  // Whether an earlier failure keeps an operation of the lane from being run.
  bool failed_on(const Stream* lane, std::uint64_t sequence) const;
  // Lets what is submitted to the lane from now on fail, without a call that does.
  void fail_lane(Stream* lane, const Failure& failure);

  bool launches_done(const GraphExec& exec);

  // -- Making effects (executor.cpp) --
  template <class Goal>
  Status make_effects(Lock& lock, const char* call, const Interrupt& interrupt, Goal reached) {
    while (!reached()) {
      bool waited = false;
      if (Status status = take_turn(lock, call, interrupt, &waited); !status) return status;
      if (waited) continue;
      Batch batch;
      while (!reached() && batch.more() && make_next(lock, batch)) {
      }
      end_turn();
      if (batch.count == 0 && !reached()) break;
      if (Status status = check_interrupt(lock, call, interrupt); !status) return status;
    }
    return {};
  }
  Status make_stream_effects(Lock& lock, const char* call, const Interrupt& interrupt, Stream** stream);
  // How much an executor does between two looks at signals.
  struct Batch {
    int count = 0;
    std::optional<double> started_ms;
    bool late = false;
    bool more() const { return count < 256 && !late; }
  };
  Status refuse_in_callback(const char* call) const;
  Status take_turn(Lock& lock, const char* call, const Interrupt& interrupt, bool* waited);
  void end_turn();
  Status check_interrupt(Lock& lock, const char* call, const Interrupt& interrupt);
  bool make_next(Lock& lock, Batch& batch);
  void make_effect(Lock& lock, Operation* operation, Batch& batch);
  void act(Lock& lock, Operation* operation, bool skip, Batch& batch);
  bool skips(const Operation* operation);
  void fail_operation(Operation* operation);
  void reclaim_released();

  // -- Waiting --
  void wait_until(double us, double cost_us);
  // At least a little, so that a program which polls comes to an end.
  double query_cost_us() const { return std::max(0.01, spec_.costs.query); }
  Status report(const char* call, Stream* stream);
  Status report_record(const char* call, const Record* record);
  Status report_conflicts(const char* call);
  Status first_failure(const char* call);

  // -- Memory and work --
  Status check_access(const char* call, const Stream* stream, const Access& access, Allocation** out);
  Status check_accesses(const char* call, const Stream* stream, const Work& work,
                        std::vector<Allocation*>* found);
  void add_reach(int device, const Access& access, const Allocation* first, Reach* reach) const;
  double remote_us(const Reach& reach, int device) const;
  Status run_measured(StreamHandle stream, HostFunction function, HostFunction release, void* argument,
                      Work work);
  Status check_width(const char* call, const Stream* stream, const Work& work) const;
  Status check_work(const char* call, const Stream* stream, const Work& work,
                    std::vector<Allocation*>* found);
  // The operation of checked work; `found` is what its accesses lie in.
  Operation* make_work(OperationKind kind, Stream* stream, const Work& work,
                       std::span<Allocation* const> found);
  void put_host_function(Stream* stream, HostFunction function, void* argument, double cost_us);
  void time_work(Operation* operation, const Work& work, const Reach& reach);
  void touch(const Actor& actor, Allocation* allocation, Address address, std::size_t nbytes, bool write,
             bool partial = false);
  void time_copy(Operation* operation, int from, int to);
  int link_index(int from, int to) const;
  Status allocate_elsewhere(const char* call, Location where, std::size_t nbytes, Address* out);
  Status free_elsewhere(const char* call, Address address, Location::Kind kind);
  Status make_room(Lock& lock, const char* call, int device, std::size_t nbytes);
  Status check_end(const char* call, const Stream* stream, Address address, std::size_t nbytes, Location at,
                   Allocation** out);
  Status enqueue(const char* call, const Transfer& transfer, StreamHandle stream);
  // Adds what the source (null: none, or a fill) and the target lie in to `found`.
  Status check_transfer(const char* call, const Stream* stream, const Transfer& transfer,
                        std::vector<Allocation*>* found);
  void put_transfer(Stream* stream, const Transfer& transfer, std::span<Allocation* const> ends,
                    double cost_us);
  std::uint64_t& traffic(int from, int to) {
    return traffic_[(from + 1) * (spec_.devices.size() + 1) + to + 1];
  }

  const MachineSpec spec_;
  const Options options_;
  const ForkGuard fork_;
  const std::uint64_t id_;  // tells machines apart in thread-local state

  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;
  std::condition_variable launched_;
  std::thread::id executor_;  // nobody: std::thread::id()

  double now_ = 0;
  std::uint64_t sequence_ = 0;
  OperationPool pool_;
  mutable Clock clock_;
  Effects effects_;
  Races races_;
  Faults faults_;
  Memory memory_;
  std::vector<Context> contexts_;                 // handle - 1
  std::vector<std::unique_ptr<Stream>> streams_;  // handle - first_stream
  std::vector<EventSlot> events_;
  std::vector<std::uint32_t> free_events_;
  std::vector<std::shared_ptr<StreamFailure>> lost_;  // by device, null while it works
  std::vector<bool> peer_access_;                     // device * count + peer
  std::vector<short> link_of_;                        // (from + 1) * (count + 1) + to + 1
  std::vector<std::uint64_t> traffic_;                // bytes, by ends as link_of_
  std::vector<Unreclaimed> unreclaimed_;
  std::map<GraphHandle, std::unique_ptr<Graph>> graphs_;
  std::map<GraphExecHandle, std::unique_ptr<GraphExec>> graph_execs_;
  std::map<ConditionHandle, Condition> conditions_;
  ConditionHandle last_condition_ = 0;
  std::uint32_t last_graph_ = 0;      // the last handle of a graph or executable
  std::vector<Allocation*> touched_;  // by what is being submitted
  Reach reach_;                       // of work that is being submitted
};

}  // namespace stf_places::sim
