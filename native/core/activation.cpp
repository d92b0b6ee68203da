#include "core/activation.hpp"

#include <vector>

namespace stf_places {

namespace {
struct Block {
  const void* owner;
  std::shared_ptr<Runtime> runtime;
  ContextHandle before;
};
thread_local std::vector<Block> blocks;
}  // namespace

void activate(const void* owner, const std::shared_ptr<Runtime>& runtime, ContextHandle context) {
  Driver& driver = runtime->driver();
  ContextHandle before = 0;
  driver.current_context(&before).check();
  blocks.reserve(blocks.size() + 1);
  if (before != context) driver.set_current_context(context).check();
  blocks.push_back({owner, runtime, before});
}

void deactivate(const void* owner) {
  if (blocks.empty() || blocks.back().owner != owner) {
    throw Error(
        ErrorKind::task_state,
        "a place is left by the thread that entered it, innermost first: this one is not the innermost "
        "of this thread. Use `with place:`");
  }
  const Block block = std::move(blocks.back());
  blocks.pop_back();
  block.runtime->driver().set_current_context(block.before).check();
}

}  // namespace stf_places
