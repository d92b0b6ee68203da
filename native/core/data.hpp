// Logical data: one value, any number of instances.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/places.hpp"
#include "core/points.hpp"

namespace stf_places {

class Context;
struct Import;

enum class AccessMode : std::uint8_t { none = 0, read = 1, write = 2, rw = 3 };
inline bool reads(AccessMode mode) { return (static_cast<int>(mode) & 1) != 0; }
inline bool writes(AccessMode mode) { return (static_cast<int>(mode) & 2) != 0; }

enum class InstanceState : std::uint8_t {
  invalid,   // memory without the value
  shared,    // one of several valid copies
  modified,  // the only valid copy
};

// The value's bytes on one data place, with the points that the next user of the memory has to wait for.
struct Instance {
  DataPlace place;
  Address address = 0;
  InstanceState state = InstanceState::invalid;
  bool is_source = false;         // the caller's own memory: never freed by us
  PointRef writer;                // last write of this memory; none: complete
  std::vector<PointRef> readers;  // reads since then, one a stream at most
  int open_readers = 0;           // tasks whose body is open
  bool open_writer = false;
  int pins = 0;  // must not be evicted
  std::uint64_t last_use = 0;

  bool valid() const { return state != InstanceState::invalid; }
  bool has_memory() const { return address != 0; }
  void add_reader(const PointRef& point);
};

struct DataOptions {
  std::string name;
  std::size_t nbytes = 0;  // 0 for tokens
  bool token = false;
  bool read_only = false;  // the source forbids writes
  bool no_export = false;  // stays in the scope that made it
  Address source = 0;      // the caller's memory, 0 for empty data
  DataPlace source_place;  // host, device or managed
};

class Data {
 public:
  const DataOptions& options() const { return options_; }
  const std::string& name() const { return options_.name; }
  void set_name(std::string name) { options_.name = std::move(name); }
  // Throws Error(task_state) where an open scope has written it.
  void set_read_only();
  std::size_t nbytes() const { return options_.nbytes; }
  bool token() const { return options_.token; }
  bool has_source() const { return options_.source != 0; }
  const std::string& poisoned_by() const { return poisoned_by_; }
  Context* context() const { return context_; }

  // The name in messages: the given one, or "#7".
  std::string label() const;
  Instance* find(const DataPlace& place) const;
  bool has_value() const;
  // Throws Error(poisoned), naming the task that failed while writing the value.
  void require_whole() const;

 private:
  friend class Context;
  friend class Memory;
  friend class Coherence;
  friend class Tasks;
  friend class Scope;
  Data(Context* context, DataOptions options, std::uint64_t number)
      : context_(context), options_(std::move(options)), number_(number) {}

  // An instance in memory of somebody else's, with the value.
  Instance& add_source(const DataPlace& place, Address address);

  Context* context_;  // null once the context is closed
  DataOptions options_;
  std::uint64_t number_;
  std::size_t slot_ = 0;  // position in the context's list
  std::vector<std::unique_ptr<Instance>> instances_;
  std::string poisoned_by_;
  bool writing_back_ = false;  // in a graph that was launched
  Import* import_ = nullptr;   // how it came into a scope, of data that stand for others there
  Data* inside_ = nullptr;     // what stands for it in the scope that is open inside its context
};

}  // namespace stf_places
