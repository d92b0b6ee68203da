// A deterministic machine in this process: the Driver that needs no GPU.
//
// Bytes really move and host work really runs, but time is virtual. Two things are kept apart:
//
// Effects. An operation's effect (memcpy, fill, host function, host work) is made when somebody needs it: a
// wait, a query, the entry of a task body. In program order that is the order of submission, which is always
// legal; in chaos order the next operation is drawn at random (seeded) from all that could legally run, so
// that a missing dependency shows as a different result.
//
// Times. Each operation is submitted at the host's virtual time. A discrete-event clock gives it a start and
// an end from stream order, events, free SMs (first come, higher priority first), copy engines and links;
// equal times are settled by sequence number, so two runs give the same timeline. A wait moves the host's
// time to the end of what was waited for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../driver.hpp"
#include "machine_spec.hpp"

namespace stf_places::sim {

// One finished operation, for tests and pictures. Times in microseconds since the machine was made.
struct TimelineEntry {
  std::string kind;  // "kernel", "copy", "fill", "host", "body"
  std::string symbol;
  int device = -1;
  std::uint64_t stream = 0;
  double start_us = 0;
  double end_us = 0;
  std::size_t nbytes = 0;
  int sms = 0;
};

// Bytes that operations sent from one end of a link to the other.
struct LinkTraffic {
  int from = -1;  // -1: host
  int to = -1;
  std::uint64_t nbytes = 0;
};

enum class FaultKind : int { allocation, copy, launch, event, host_function, green_context };

class SimDriver : public Driver {
 public:
  // ---- What only a simulated machine can do (the stf_places.machines face uses these) ----
  virtual const MachineSpec& spec() const = 0;
  virtual double now_us() const = 0;       // the host's virtual time
  virtual void advance_us(double us) = 0;  // the host computes for that long
  // The nth (from 1, counted from now) operation of that kind fails with `code`; reported at the call for
  // allocations, events and green contexts, at the next wait on its stream for the others. device_lost is
  // sticky.
  virtual void order_fault(FaultKind kind, std::uint64_t nth, Code code) = 0;
  virtual std::vector<std::string> conflicts() const = 0;  // reports found so far, oldest first
  virtual void record_timeline(bool on) = 0;
  virtual std::vector<TimelineEntry> timeline() const = 0;  // finished operations in order of start
  virtual std::size_t used_memory(int device) const = 0;    // bytes
  virtual std::size_t live_allocations() const = 0;         // all kinds and reserved ranges, whole machine
  virtual std::size_t live_graphs() const = 0;              // graphs (bodies not counted) and executables
  virtual std::uint64_t operations() const = 0;             // submitted so far
  virtual Status drain() = 0;                               // run everything that is pending
  // The SMs that kernels on this context's streams can run on, ascending; empty when there is no such
  // context.
  virtual std::vector<int> sm_ids(ContextHandle context) const = 0;
  // What copies and work submitted so far send over links, by ends; pairs without any are left out. A copy
  // counts on each link that it takes, work for its accesses to memory of other devices.
  virtual std::vector<LinkTraffic> link_traffic() const = 0;
};

Status make_sim_driver(const MachineSpec& spec, const Options& options, std::shared_ptr<SimDriver>* out);

}  // namespace stf_places::sim
