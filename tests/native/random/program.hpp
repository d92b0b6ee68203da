// A random task program as plain data: what is done, in program order, and on which machine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/context.hpp"
#include "driver/sim/machine_spec.hpp"

namespace random_programs {

using Word = std::uint32_t;
using stf_places::AccessMode;
using stf_places::DataPlace;
using stf_places::ErrorKind;
using stf_places::ExecPlace;

struct DataSpec {
  enum class Kind { source, read_only, empty, token };
  Kind kind = Kind::source;
  int context = 0;
  std::size_t words = 0;  // 0 for tokens, and for a few others
  DataPlace source_place = DataPlace::host();
  bool has_source() const { return kind == Kind::source || kind == Kind::read_only; }
};

struct Use {
  int data = 0;
  AccessMode mode = AccessMode::read;
  DataPlace place;
};

struct Step {
  enum class Kind { create, task, callback, fill, read_back, synchronize, drop, fence, set_current };
  Kind kind = Kind::task;
  int context = 0;
  int data = 0;           // of create, fill, read_back, synchronize and drop
  std::vector<Use> uses;  // of task and callback
  ExecPlace exec;         // of task and fill; set_current: the device
  DataPlace where;        // of fill
  bool enqueued = false;  // the body goes through run_in
  bool fails = false;     // the body raises after partial writes
  bool refused = false;   // the step is an error of kind `error` and changes nothing
  ErrorKind error = ErrorKind::value;
  int priority = 0;
  Word constant = 0;
  std::size_t width = 4;     // of fill
  std::vector<Step> nested;  // done while the task's body is open
};

struct Program {
  std::uint64_t seed = 0;
  stf_places::sim::MachineSpec machine;
  std::vector<DataSpec> data;
  std::vector<Step> steps;
  int contexts = 1;
  std::vector<bool> caller_stream;  // by context
  std::vector<bool> abandoned;      // by context: destroyed without finalize()
  bool trace = false;
  bool sync_each_task = false;
  bool check_streams = false;
  bool drop_first = false;  // at the end: data before contexts are finalized, or after
};

// One entry a data: the index of its first use, and its modes merged.
inline std::vector<std::pair<std::size_t, AccessMode>> merged(const std::vector<Use>& uses) {
  std::vector<std::pair<std::size_t, AccessMode>> result;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    bool found = false;
    for (auto& [first, mode] : result) {
      if (uses[first].data != uses[i].data) continue;
      mode = static_cast<AccessMode>(static_cast<int>(mode) | static_cast<int>(uses[i].mode));
      found = true;
    }
    if (!found) result.emplace_back(i, uses[i].mode);
  }
  return result;
}

std::string text_of(const Program& program);

}  // namespace random_programs
