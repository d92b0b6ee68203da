// What somebody knows to be finished: for each stream (a slot) the number of its last known operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stf_places::sim {

class VectorClock {
 public:
  std::uint64_t at(unsigned slot) const { return slot < seen_.size() ? seen_[slot] : 0; }
  void set(unsigned slot, std::uint64_t epoch) {
    if (slot >= seen_.size()) seen_.resize(slot + 1, 0);
    seen_[slot] = epoch;
  }
  // Returns whether anything new was learnt.
  bool join(const VectorClock& other) {
    if (other.seen_.size() > seen_.size()) seen_.resize(other.seen_.size(), 0);
    bool grew = false;
    for (std::size_t slot = 0; slot < other.seen_.size(); ++slot) {
      if (other.seen_[slot] > seen_[slot]) {
        seen_[slot] = other.seen_[slot];
        grew = true;
      }
    }
    return grew;
  }

 private:
  std::vector<std::uint64_t> seen_;
};

}  // namespace stf_places::sim
