// A sequential task flow: logical data, tasks, and the order between them.
//
// Threads. A Context belongs to one thread at a time: entering it from two threads at once, or while a task
// of another thread is open, throws Error(task_state). Every public member is called without the Python GIL,
// because each of them can enqueue. `drop` alone may be called from any thread at any moment.
//
// Failures. Members throw Error. After a throw nothing is half-made: data keep their values, a task that
// could not start is `ended` and has left no access behind, and the context can still be finalized. After
// device_lost only finalize() is useful: it releases everything and reports what was not written back.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/data.hpp"
#include "core/graph_log.hpp"
#include "core/memory.hpp"
#include "core/places.hpp"
#include "core/points.hpp"
#include "core/recording.hpp"
#include "core/runtime.hpp"
#include "core/streams.hpp"
#include "core/task.hpp"
#include "core/trace.hpp"

namespace stf_places {

class Scope;

struct ContextOptions {
  bool has_stream = false;  // work is ordered after, and finally before, a stream of the caller's
  StreamHandle stream = 0;
  bool trace = false;
  bool graph = false;      // operations become nodes of a graph, launched when somebody waits, and at the end
  Scope* scope = nullptr;  // that the graph is recorded for, which then launches it
};

// Work and traffic by place, for reports.
struct PlaceStatistics {
  std::string place;
  std::uint64_t tasks = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
};

class Context {
 public:
  Context(std::shared_ptr<Runtime> runtime, std::shared_ptr<StreamPool> pool, ContextOptions options);
  ~Context();  // releases what is left, without waiting for write-backs; finalize() first
  Context(const Context&) = delete;

  Runtime& runtime() const { return *runtime_; }
  bool closed() const { return closed_; }
  // Whether operations become nodes of a graph.
  bool recording() const { return recording_ != nullptr; }

  // ---- Data --------------------------------------------------------------------------------------------
  // The caller owns the result and gives it back with `drop` (never deletes it).
  Data* create(DataOptions options);
  // Ends the use of a data: freed in stream order, or written back if it has a source. Never throws. Returns
  // true when work may still use the caller's source memory: `release(argument)` is then called once it is
  // over, on whatever thread. False: it is not called, and the source is free now.
  static bool drop(const std::shared_ptr<Context>& context, Data* data, HostFunction release = nullptr,
                   void* argument = nullptr) noexcept;
  // Copies the value to host memory and waits for it.
  void read_back(Data& data, void* out, const Interrupt& interrupt);
  // Waits until everything that writes the data is complete, without copying.
  void synchronize(Data& data, const Interrupt& interrupt);
  // Fills the value with `count` elements of `width` bytes on `place`, as a task of its own.
  void fill(Data& data, const ExecPlace& exec, const DataPlace& where, const void* value, std::size_t width);

  // Takes data of a context around into the scope of this one, before any task does.
  void push(Data& data, AccessMode mode, const DataPlace& place);

  // ---- Tasks -------------------------------------------------------------------------------------------
  // Makes the task's data available and opens it. For a host place the call returns when they are complete.
  void start(Task& task, const Interrupt& interrupt);
  // Closes it. `failed`: the body raised; what it was to write is poisoned.
  void end(Task& task, bool failed, const Interrupt& interrupt);
  // A host task whose body is a host function, in two steps so that the caller can look at the instances
  // (task.address) in between: `open_callback` opens it without waiting, `enqueue_callback` puts the function
  // behind the task's dependencies and closes it, also when it throws. It takes `argument` in any case:
  // either `function` is enqueued, or `release` is called. To give up in between: `end(task, failed)`.
  void open_callback(Task& task, const Interrupt& interrupt);
  void enqueue_callback(Task& task, HostFunction function, HostFunction release, void* argument,
                        const Interrupt& interrupt);
  // Host code that stands for device work in an open task (simulated machine), on the place of that number of
  // its grid. Takes `argument` in any case.
  void run_in(Task& task, std::size_t place, HostFunction function, HostFunction release, void* argument);
  // A kernel of the machine's own kind in an open task, likewise: not_supported on a simulated machine.
  void launch_in(Task& task, std::size_t place, const KernelLaunch& kernel);

  // ---- The whole ---------------------------------------------------------------------------------------
  StreamHandle fence();
  // Writes values back, waits (unless the context has a caller's stream), releases. Can be called again after
  // an interrupt. `open` tasks are an error.
  void finalize(const Interrupt& interrupt);
  // Calls `function(argument)` on the caller's stream behind everything (contexts on a caller's stream).
  void after_all(HostFunction function, void* argument);

  Statistics statistics() const { return statistics_; }
  std::vector<PlaceStatistics> place_statistics() const;
  const std::vector<TraceRecord>& trace_records() const { return trace_->records(); }
  bool tracing() const { return trace_ != nullptr; }

 private:
  friend class Coherence;
  friend class Memory;
  friend class Tasks;
  friend class Entry;
  friend class Scope;
  struct PlaceStreams {
    ExecPlace place;
    int priority = 0;
    bool transfer = false;
    std::vector<Stream*> streams;  // made when first used
    unsigned turn = 0;
  };
  struct Traffic {
    DataPlace place;
    std::uint64_t in = 0;
    std::uint64_t out = 0;
  };
  struct PlaceKey {
    ExecPlace::Kind kind;
    int device;
    ContextHandle context;
    int priority;
    bool transfer;
    bool operator==(const PlaceKey&) const = default;
  };
  struct PlaceHash {
    std::size_t operator()(const PlaceKey& key) const noexcept;
  };

  void open_entry_event();
  void fill_on_host(Task& task, const void* value, std::size_t width);
  PlaceStreams& streams_of(const ExecPlace& place, int priority, bool transfer);
  Stream* free_stream(PlaceStreams& group);  // null: tasks whose body is open have all
  Stream* next_stream(PlaceStreams& group);
  Stream* transfer_stream(int device);
  // A stream whose operations are not recorded: for memory that is allocated and freed in stream order, and
  // for launches of what was recorded. Of a context without graphs: a transfer stream.
  Stream* ordering_stream(int device);
  // Launches what was recorded and waits for it, in a context with graphs; throws while a task is open.
  void flush(const Interrupt& interrupt);
  // The same without the wait. Nothing has points of the graph then.
  void launch_recorded();
  int launch_device() const { return std::max(first_place_.device, 0); }
  void launch(GraphHandle graph);
  void wait_for_launch(const Interrupt& interrupt);
  GraphExecHandle executable(GraphHandle graph);
  void forget_points();
  void give_executable();
  void discard_recorded() noexcept;
  void release_recording();
  void count_copy(const DataPlace& from, const DataPlace& to, std::size_t nbytes);
  Stream* open_stream(PlaceStreams& group, int index);
  EventPool& events_of(ContextHandle context);
  // A data that its owner gave up, and what to call when its source memory is free.
  struct Dropped {
    Data* data = nullptr;
    HostFunction release = nullptr;
    void* argument = nullptr;
    void finish() const {
      if (release != nullptr) release(argument);
    }
  };
  // Returns whether the source of `asked` is still in use; of all others `release` is called when it is not.
  bool drain_dropped(const Data* asked = nullptr);
  bool destroy(const Dropped& dropped);
  bool release_source(const Data& data, const Dropped& dropped);
  Data* make(DataOptions options, std::uint64_t number);
  void detach(Data* data);
  void write_back(Data& data);
  void drain(const Interrupt& interrupt);
  void release_everything();
  void release_at_last();
  void release_unordered();
  void join_caller();
  void forget_everything() noexcept;
  [[noreturn]] void lose(const Error& error);
  void require_no_open_task(const char* what) const;
  void require_value(const Data& data) const;

  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<StreamPool> pool_;
  ContextOptions options_;
  Scope* scope_;
  int scopes_inside_ = 0;                    // being recorded
  std::vector<std::weak_ptr<Scope>> spent_;  // scopes whose last launch nobody has waited for
  Statistics statistics_;
  // Order matters for destruction: streams hold points and events.
  std::unordered_map<ContextHandle, std::unique_ptr<EventPool>> events_;
  PointPool points_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unordered_map<PlaceKey, std::unique_ptr<PlaceStreams>, PlaceHash> places_;
  PlaceStreams* last_place_ = nullptr;
  PlaceKey last_key_{};
  std::vector<Traffic> traffic_;
  std::uint64_t host_tasks_ = 0;
  Memory memory_;
  std::vector<Data*> data_;
  std::vector<Dropped> orphans_;  // their write-back failed: still in data_, owned here
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<GraphLog> log_;  // of what is recorded, where somebody may ask for a picture of it
  std::shared_ptr<StreamPool>
      recorded_pool_;                      // streams of the recording, which nobody else may use meanwhile
  std::vector<Stream*> ordering_streams_;  // by device
  PointRef launched_;                      // the last launch
  bool launch_pending_ = false;            // nobody has waited for it
  ExecPlace first_place_;                  // of the recorded work
  GraphHandle unlaunched_ = 0;             // recorded, and its launch failed
  GraphExecHandle exec_ = 0;
  GraphExecs::Size exec_size_{};
  GraphExecs::Size recorded_before_{};  // by earlier graphs
  EventHandle entry_event_ = 0;
  std::uint64_t data_number_ = 0;
  std::uint64_t task_number_ = 0;
  std::uint64_t tick_ = 0;  // for least-recently-used
  Interrupt interrupt_;     // of the latest call that gave one, for waits deep inside
  int open_tasks_ = 0;
  bool closed_ = false;

  std::atomic<bool> busy_{false};
  std::thread::id owner_;  // of the open tasks
  std::mutex dropped_mutex_;
  std::vector<Dropped> dropped_;
  std::atomic<bool> has_dropped_{false};
};

}  // namespace stf_places
