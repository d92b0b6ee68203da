// Helpers for Cython, which has no string views and no spans.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/driver.hpp"
#include "driver/sim/sim_driver.hpp"

namespace stf_places {

// A Work that owns what the other only points to.
struct OwnedWork {
  std::string symbol;
  double cost_us = -1;
  int sms = 0;
  int waves = 1;
  std::vector<Access> accesses;

  Work view() const { return Work{symbol, cost_us, sms, waves, accesses}; }
};

inline std::string driver_name(const Driver& driver) { return std::string(driver.name()); }
inline std::string driver_machine(const Driver& driver) { return std::string(driver.machine()); }
// Null unless the driver is a simulated machine.
inline std::shared_ptr<sim::SimDriver> as_sim(const std::shared_ptr<Driver>& driver) {
  return std::dynamic_pointer_cast<sim::SimDriver>(driver);
}

}  // namespace stf_places
