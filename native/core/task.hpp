// A task: what it touches, where it runs, and what it was given when it started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

// What a place of a grid task uses of one of its dependencies, for the simulated machine.
struct PartAccess {
  std::size_t dependency = 0;
  std::size_t offset = 0;  // bytes
  std::size_t nbytes = 0;
  std::size_t used = 0;  // of these; 0: all
  bool write = false;
};

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
  // Valid while open. What is replicated has an address for each device: `at` counts the places of a grid.
  Address address(std::size_t index) const { return dependencies[index].instance->address; }
  Address address(std::size_t index, std::size_t at) const;
  std::size_t stream_count() const { return streams_.size(); }
  // Says what one place of the grid touches, instead of all that the task's dependencies have. While open.
  void set_parts(std::size_t at, std::vector<PartAccess> parts);
  StreamHandle stream(std::size_t index) const { return streams_[index]->handle(); }
  // The place that has a stream.
  const ExecPlace& place_at(std::size_t index) const {
    return resolved_.kind == ExecPlace::Kind::grid ? (*resolved_.places)[index] : resolved_;
  }
  // The place after `current` was resolved.
  const ExecPlace& resolved_place() const { return resolved_; }

 private:
  friend class Context;
  friend class Coherence;
  friend class Tasks;
  friend class Scope;
  State state_ = State::created;
  std::uint64_t number_ = 0;
  ExecPlace resolved_;
  SmallVector<Stream*, 2> streams_;     // one a place of the grid; the first is the join stream
  SmallVector<Dependency*, 4> unique_;  // one a data and place, modes merged
  // Of replicated dependencies on the second and further devices of a grid, by number of the dependency.
  std::vector<std::pair<std::size_t, std::unique_ptr<Dependency>>> replicas_;
  std::vector<std::vector<PartAccess>> parts_;  // by place, as far as told
  std::uint64_t whole_ = 0;                     // number of a task with several streams
  CurrentContextOfTask current_;
  std::uint64_t range_ = 0;             // profiler range
  SmallVector<int, 2> runs_;            // pieces of host work enqueued, by stream
  SmallVector<std::size_t, 2> traces_;  // records of a trace, by stream
};

}  // namespace stf_places
