// The discrete-event clock: when each operation starts and ends.
//
// An operation is ready when the one before it on its stream has ended, the records that it waits for have
// ended, and the host has submitted it. A kernel then takes `sms` free SMs of its device, first come first
// served, higher stream priority first; with `waves` it gives them up between equal parts. On a stream of a
// green context it takes them out of that context's SMs. A kernel that waits reserves all SMs that it could
// run on, so that later ones start before it only on others. A copy takes a copy engine of its stream's
// device and its links, all for its whole duration, first come first served. A kernel in memory of other
// devices takes longer (Machine::time_work) but occupies neither links nor engines, so it slows no copy down.
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

constexpr std::size_t pending_limit = 1 << 14;
constexpr std::size_t pending_node_limit = 1 << 18;

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
  // Whether more operations are pending than a real driver's queues would take. Nodes of graphs are counted
  // apart: one launch takes up little of a queue, however many they are.
  bool crowded() const { return pending_ > pending_limit || pending_nodes_ > pending_node_limit; }
  // Handles events until it is not.
  void relieve();
  // From now on the device's SMs have numbers, and kernels take the lowest free ones. A device without green
  // contexts only counts them, which is faster.
  void tell_sms_apart(int device);

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
    int sm_count = 0;
    int free_sms = 0;  // as long as they are only counted
    bool told_apart = false;
    SmMask all, free, reserved;  // afterwards; reserved: by kernels that wait, while SMs are handed out
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
  void begin_wave(Operation* operation, double time) {
    if (operation->waves_done == 0) operation->start_us = time;
    push(operation, time + operation->duration_us / operation->waves, false);
  }
  static bool take_sms(Device& device, Operation* operation) {
    if (device.told_apart) return take_numbered(device, operation);
    if (operation->sms > device.free_sms) return false;
    device.free_sms -= operation->sms;
    return true;
  }
  static void give_sms(Device& device, const Operation* operation) {
    if (device.told_apart) {
      device.free.add(operation->stream->held);
    } else {
      device.free_sms += operation->sms;
    }
  }
  static bool take_numbered(Device& device, Operation* operation);
  void hand_out_sms(Device& device, double time);
  void hand_out_numbered(Device& device, double time);
  void occupy_links(Operation* operation, double time);
  void complete(Operation* operation, double start, double end);
  std::size_t& pending(const Stream* stream) { return stream->internal ? pending_nodes_ : pending_; }

  OperationPool& pool_;
  std::vector<Device> devices_;
  std::vector<double> links_free_us_;
  std::vector<Happening> heap_;
  std::vector<Stream*> unsettled_;
  std::size_t pending_ = 0;
  std::size_t pending_nodes_ = 0;
  double time_ = 0;
  bool recording_ = false;
  std::vector<std::pair<std::uint64_t, TimelineEntry>> timeline_;  // with sequence numbers
};

}  // namespace stf_places::sim
