// `with place:`: the contexts that a thread has made current, innermost last.
#pragma once

#include <memory>

#include "core/runtime.hpp"

namespace stf_places {

// Makes the context current on this thread and remembers what was. `owner` tells the nested blocks apart.
void activate(const void* owner, const std::shared_ptr<Runtime>& runtime, ContextHandle context);
// Restores what was current before the innermost block, on the machine of that block. Throws
// Error(task_state) when the innermost block is not of `owner`.
void deactivate(const void* owner);

}  // namespace stf_places
