// What a thread has made current: by `with place:`, innermost last, and for its open tasks.
#pragma once

#include <cstdint>
#include <memory>

#include "core/runtime.hpp"

namespace stf_places {

// Makes the context current on this thread and remembers what was. `owner` tells the nested blocks apart.
void activate(const void* owner, const std::shared_ptr<Runtime>& runtime, ContextHandle context);
// Restores what was current before the innermost block, on the machine of that block. Throws
// Error(task_state) when the innermost block is not of `owner`.
void deactivate(const void* owner);

// The current context of a thread between a task's start and end, whose ends may come in any order and beside
// blocks that begin or end in between.
class CurrentContextOfTask {
 public:
  // Makes `wanted` current (0: leaves what is).
  void begin(Driver& driver, ContextHandle current, ContextHandle wanted);
  // Makes current again what was before, also when the body left something else current; nothing when another
  // task or block of this thread has changed it since and is to restore it.
  Status end(Driver& driver);

 private:
  ContextHandle before_ = 0;
  std::uint64_t mark_before_ = 0;
  std::uint64_t mark_ = 0;
  bool open_ = false;
};

}  // namespace stf_places
