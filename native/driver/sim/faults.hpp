// Failures that a test orders in advance.
//
// What counts as an operation of a kind: `allocation` each allocate_* and map_pages call; `copy` each copy
// and fill; `launch` each host_work and end_body, and each time that a loop's condition is set; `event` each
// create_event, record_event and wait_event; `host_function` each host_function; `green_context` each
// create_green_context. Only calls with valid arguments count.
#pragma once

#include <cstdint>
#include <vector>

#include "sim_driver.hpp"

namespace stf_places::sim {

class Faults {
 public:
  void order(FaultKind kind, std::uint64_t nth, Code code) { ordered_.push_back({kind, nth, code}); }
  // Counts one operation of that kind; returns true and the code if it is to fail.
  bool strikes(FaultKind kind, Code* code) {
    if (ordered_.empty()) return false;
    bool struck = false;
    for (auto fault = ordered_.begin(); fault != ordered_.end();) {
      if (fault->kind != kind || --fault->remaining > 0) {
        ++fault;
        continue;
      }
      *code = fault->code;
      struck = true;
      fault = ordered_.erase(fault);
    }
    return struck;
  }

 private:
  struct Ordered {
    FaultKind kind;
    std::uint64_t remaining;
    Code code;
  };
  std::vector<Ordered> ordered_;
};

}  // namespace stf_places::sim
