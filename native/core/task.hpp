// A task: what it touches, where it runs, and what it was given when it started.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/activation.hpp"
#include "core/data.hpp"
#include "core/places.hpp"
#include "core/points.hpp"
#include "core/small_vector.hpp"

namespace stf_places {

struct Dependency {
  Data* data = nullptr;
  AccessMode mode = AccessMode::none;
  DataPlace place;                       // affine: the place's own
  Instance* instance = nullptr;          // set while the task is open
  AccessMode merged = AccessMode::none;  // with the other dependencies on the same data
};

using Dependencies = SmallVector<Dependency, 4>;

// Filled by the caller before Context::start; the second half belongs to the core.
class Task {
 public:
  enum class State : std::uint8_t { created, open, ended };

  Dependencies dependencies;
  ExecPlace place;
  DataPlace affine;  // overrides the place's affine data place unless kind is affine
  std::string symbol;
  double cost_us = -1;  // hint; negative: none
  int sms = 0;          // hint for the simulated machine; 0: the whole place
  int waves = 1;        // likewise: rounds between which more urgent work can take the SMs
  int priority = 0;     // higher is more urgent

  State state() const { return state_; }
  // The name in messages: the symbol, or "task 12".
  std::string label() const;
  // Valid while open.
  Address address(std::size_t index) const { return dependencies[index].instance->address; }
  std::size_t stream_count() const { return streams_.size(); }
  StreamHandle stream(std::size_t index) const { return streams_[index]->handle(); }
  // The place after `current` was resolved.
  const ExecPlace& resolved_place() const { return resolved_; }

 private:
  friend class Context;
  friend class Coherence;
  friend class Tasks;
  State state_ = State::created;
  std::uint64_t number_ = 0;
  ExecPlace resolved_;
  SmallVector<Stream*, 2> streams_;     // one a place of the grid; the first is the join stream
  SmallVector<Dependency*, 4> unique_;  // one a data, modes merged
  CurrentContextOfTask current_;
  std::uint64_t range_ = 0;  // profiler range
  int runs_ = 0;             // pieces of host work enqueued
  std::size_t trace_ = ~std::size_t{0};
};

}  // namespace stf_places
