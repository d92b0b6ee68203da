// The discrete-event clock: when each operation starts and ends.
//
// An operation is ready when the one before it on its stream has ended, the records that it waits for have
// ended, and the host has submitted it. A kernel then takes `sms` free SMs of its device, first come first
// served, higher stream priority first; with `waves` it gives them up between equal parts. A copy takes a
// copy engine of its stream's device and its links, all for its whole duration, first come first served.
// Records, waits and frees take no time; a host function occupies its stream only.
//
// Events are handled in the order (time, ends before starts, sequence number), and never past the moment up
// to which the host has submitted everything, so the timeline depends neither on when it is computed nor on
// anything outside the program.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "machine_spec.hpp"
#include "operation.hpp"
#include "sim_driver.hpp"

namespace stf_places::sim {

class Clock {
 public:
  Clock(const MachineSpec& spec, OperationPool& pool);

  // Puts a submitted operation at the end of its stream.
  void submit(Operation* operation);
  // Handles everything that happens up to `us`.
  void advance(double us);
  void finish(const Stream* stream, std::uint64_t sequence);
  void finish(const Record* record);
  void finish_all();
  // Handles events until at most `count` operations are pending.
  void bound(std::size_t count);

  std::size_t pending() const { return pending_; }
  double time_us() const { return time_; }  // of the last handled event
  void record_timeline(bool on) { recording_ = on; }
  std::vector<TimelineEntry> timeline() const;

 private:
  struct Happening {
    double time;
    std::uint64_t sequence;
    Operation* operation;
    bool start;
    // Order of a heap with the earliest on top.
    bool operator<(const Happening& other) const {
      return std::tie(time, start, sequence) > std::tie(other.time, other.start, other.sequence);
    }
  };
  struct Waiting {
    int priority;
    double ready;
    std::uint64_t sequence;
    Operation* operation;
    bool operator<(const Waiting& other) const {
      return std::tie(priority, ready, sequence) < std::tie(other.priority, other.ready, other.sequence);
    }
  };
  struct Device {
    int free_sms = 0;
    std::set<Waiting> waiting;
    std::vector<double> engines_free_us;
  };

  bool step(double limit);
  void settle(Stream* stream);
  void settle_one(Stream* stream);
  void push(Operation* operation, double time, bool start);
  void ready(Operation* operation, double time);
  void ended(Operation* operation, double time);
  void occupy_sms(Operation* operation, double time);
  void hand_out_sms(Device& device, double time);
  void occupy_links(Operation* operation, double time);
  void complete(Operation* operation, double start, double end);

  OperationPool& pool_;
  std::vector<Device> devices_;
  std::vector<double> links_free_us_;
  std::vector<Happening> heap_;
  std::vector<Stream*> unsettled_;
  std::size_t pending_ = 0;
  double time_ = 0;
  bool recording_ = false;
  std::vector<std::pair<std::uint64_t, TimelineEntry>> timeline_;  // with sequence numbers
};

}  // namespace stf_places::sim
