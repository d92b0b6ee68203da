// The description of a simulated machine, as checked and handed over by stf_places/machines (a JSON file
// there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stf_places::sim {

struct DeviceSpec {
  std::string name;
  int sm_count = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int min_partition = 0;   // SMs
  int alignment = 0;       // SMs
  int aligned_sms = 0;     // SMs in whole groups of `alignment`, the lowest ids; 0: all such groups
  int resplit_loss = 0;    // SMs that each group loses when a context's SMs are split without a rest
  std::size_t memory = 0;  // bytes
  double bandwidth = 0;    // GB/s, read and write each at this rate
  int copy_engines = 1;
  std::size_t page = std::size_t{2} << 20;  // bytes; what mapped memory is a multiple of
};

struct LinkSpec {
  int from = -1;  // -1: host
  int to = -1;
  bool peer = false;
  double bandwidth = 0;  // GB/s
  double latency_us = 0;
};

// Microseconds that a call keeps the calling thread; what nobody measured is marked `estimated` in the file.
struct CallCosts {
  double event_record = 0;
  double event_wait = 0;
  double kernel_launch = 0;   // submit
  double kernel_latency = 0;  // start to end of an empty kernel
  double copy_submit = 0;
  double host_function = 0;
  double allocate = 0;
  double synchronize = 0;
  double query = 0;
  double green_context = 0;  // create one
  double page_map = 0;       // a piece of page-mapped memory, mapped or unmapped
  double page_access = 0;    // grant_access: each page
  double piece_access = 0;   // and on top of it each piece
  double graph_node = 0;     // record a node, or take it over into an executable
  double graph_instantiate_node = 0;
  double graph_launch = 0;
  double graph_launch_node = 0;  // and on top of it each node
  double graph_launch_edge = 0;  // and each edge off a straight line: from one lane to another
  double graph_round = 0;        // start to end of setting a loop's condition; costs the thread nothing
};

struct MachineSpec {
  std::string name;
  int driver_version = 13000;
  std::vector<DeviceSpec> devices;
  std::vector<LinkSpec> links;  // directed; missing pairs are not peers and go through the host
  CallCosts costs;
};

struct Options {
  bool execute = true;  // false: no bytes, no bodies
  bool chaos = false;   // draw the next operation at random from all that could legally run
  std::uint64_t seed = 0;
  bool check_conflicts = true;  // vector clocks over streams and events
  bool measure_bodies = false;  // bodies without a cost take their CPU time: not deterministic
};

}  // namespace stf_places::sim
