// Tells whether this process was forked after a machine was made.
#pragma once

#include <cstdint>

#include "../driver.hpp"

namespace stf_places::sim {

class ForkGuard {
 public:
  ForkGuard();
  bool forked() const;
  // Code::forked in a child process, ok otherwise.
  Status check(const char* call) const;

 private:
  std::uint64_t generation_;
};

}  // namespace stf_places::sim
