// What is put on the simulated machine's streams, and what streams and events remember of it.
//
// An operation has two halves that are dealt with apart: its effect (effects.hpp) and its time (clock.hpp).
// It is given back to the pool when both are done, so that memory does not grow with the number of
// operations. Everything here is guarded by the machine's one mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../driver.hpp"
#include "sm_mask.hpp"
#include "vector_clock.hpp"

namespace stf_places::sim {

struct Allocation;
struct Graph;
struct Stream;

enum class OperationKind : std::uint8_t {
  copy,
  fill,
  host_function,
  work,
  body,
  record,
  wait,
  release,
  allocation,
  // Of nodes of graphs alone:
  empty,  // does nothing
  graph,  // a whole graph
  loop,
  condition  // sets that of a loop
};

// "a copy of 64 bytes", "task 'add'".
std::string text_of(OperationKind kind, std::size_t nbytes, const std::string& symbol);

// A failure that an effect left on a stream. Operations submitted up to the first report of it are not run;
// what is submitted afterwards runs again (except on a lost device).
struct StreamFailure {
  static constexpr std::uint64_t unreported = std::numeric_limits<std::uint64_t>::max();
  Failure failure;
  std::uint64_t reported_at =
      unreported;  // sequence number of the last operation submitted before the report
};

// One recording of an event. Recording again makes a new one, so that waits keep what they captured.
struct Record {
  int references = 0;
  int device = -1;
  StreamHandle stream = 0;
  bool effected = false;
  bool timed = false;
  double end_us = 0;  // meaningful once timed
  std::shared_ptr<StreamFailure> failure;
  VectorClock clock;
  std::vector<Stream*> waiting;  // streams whose next operation waits for this record's time
};

struct Operation {
  OperationKind kind = OperationKind::record;
  bool effect_done = false;
  bool time_done = false;
  bool has_fault = false;
  Code fault = Code::failed;
  std::uint64_t sequence = 0;
  Stream* stream = nullptr;
  Operation* next_effect = nullptr;
  Operation* next_time = nullptr;
  std::string symbol;

  // Effect. `to`, `from` and `nbytes` are those of a copy; a fill uses `to`, `nbytes`, `value` and `width`.
  Address to = 0;
  Address from = 0;
  std::size_t nbytes = 0;
  unsigned char value[16] = {};
  std::size_t width = 0;
  HostFunction function = nullptr;
  HostFunction release = nullptr;
  void* argument = nullptr;
  Record* record = nullptr;          // of a record or wait
  Allocation* allocation = nullptr;  // of a release

  // Time.
  double submit_us = 0;
  double ready_us = 0;
  double start_us = 0;
  double duration_us = 0;
  int sms = 0;
  int waves = 1;
  int waves_done = 0;
  short links[2] = {-1, -1};  // links that a copy occupies, -1: none
  bool engine = false;        // whether a copy engine of the stream's device is needed
};

// First in, first out, without memory of its own.
template <Operation* Operation::* Next>
class OperationQueue {
 public:
  Operation* front() const { return head_; }
  bool empty() const { return head_ == nullptr; }
  void push(Operation* operation) {
    operation->*Next = nullptr;
    if (head_ == nullptr) {
      head_ = operation;
    } else {
      tail_->*Next = operation;
    }
    tail_ = operation;
  }
  Operation* pop() {
    Operation* operation = head_;
    head_ = operation->*Next;
    return operation;
  }

 private:
  Operation* head_ = nullptr;
  Operation* tail_ = nullptr;
};

using EffectQueue = OperationQueue<&Operation::next_effect>;
using TimeQueue = OperationQueue<&Operation::next_time>;

struct Stream {
  StreamHandle handle = 0;
  ContextHandle context = 0;
  int device = 0;
  int priority = 0;
  int sm_count = 0;  // that its kernels can use
  bool is_default = false;
  bool internal = false;        // a lane of a graph's executable
  bool closed = false;          // destroyed by the caller; kept until its work is done
  int launching = 0;            // launches on it that are being submitted
  std::uint64_t submitted = 0;  // sequence number of its last operation

  EffectQueue lane;  // chaos order only
  std::uint64_t effected = 0;
  std::shared_ptr<StreamFailure> failure;
  bool unreported = false;  // whether the next blocking call on this stream returns `failure`

  TimeQueue times;
  std::uint64_t timed = 0;
  double body_began_us = 0;  // CPU time of the thread that entered a body, where bodies are measured
  double end_us = 0;         // of its last timed operation

  unsigned slot = 0;  // its component in vector clocks
  VectorClock clock;
  std::uint64_t host_version = 0;  // of the host's clock when it was last joined

  std::shared_ptr<const SmMask> partition;  // the SMs that its kernels can use; null: any of the device's
  SmMask held;  // by its running wave, once SMs are told apart (Clock::tell_sms_apart)

  Graph* graph = nullptr;            // that it records
  std::vector<std::uint32_t> after;  // the nodes of it that the next one depends on

  bool idle() const { return launching == 0 && effected == submitted && timed == submitted; }
};

struct Event {
  EventHandle handle = 0;
  int device = 0;
  bool timing = false;
  Record* last = nullptr;
};

// Hands out operations and records, and takes them back.
class OperationPool {
 public:
  Operation* take(OperationKind kind, Stream* stream);
  // One half is done; the operation must not be touched afterwards.
  void effect_done(Operation* operation);
  void time_done(Operation* operation);

  Record* take_record();
  void hold(Record* record) { ++record->references; }
  void drop(Record* record);

  // Closed streams that have become idle since the last call.
  std::vector<Stream*>& idle_streams() { return idle_streams_; }

 private:
  void retire(Operation* operation);

  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::deque<Record> records_;
  std::vector<Record*> free_records_;
  std::vector<Stream*> idle_streams_;
};

}  // namespace stf_places::sim
