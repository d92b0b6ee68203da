#include "core/activation.hpp"

#include <vector>

namespace stf_places {

namespace {
struct Block {
  const void* owner;
  std::shared_ptr<Runtime> runtime;
  ContextHandle before;
  std::uint64_t mark_before;
};
thread_local std::vector<Block> blocks;
// Names the block or task that last changed this thread's context, 0 before the first.
thread_local std::uint64_t current_mark = 0;
thread_local std::uint64_t last_mark = 0;
}  // namespace

void activate(const void* owner, const std::shared_ptr<Runtime>& runtime, ContextHandle context) {
  Driver& driver = runtime->driver();
  ContextHandle before = 0;
  driver.current_context(&before).check();
  blocks.reserve(blocks.size() + 1);
  if (before != context) driver.set_current_context(context).check();
  blocks.push_back({owner, runtime, before, current_mark});
  current_mark = ++last_mark;
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
  current_mark = block.mark_before;
  block.runtime->driver().set_current_context(block.before).check();
}

void CurrentContextOfTask::begin(Driver& driver, ContextHandle current, ContextHandle wanted) {
  before_ = current;
  mark_before_ = mark_ = current_mark;
  if (wanted != 0 && wanted != current) {
    driver.set_current_context(wanted).check();
    current_mark = mark_ = ++last_mark;
  }
  open_ = true;
}

Status CurrentContextOfTask::end(Driver& driver) {
  if (!open_) return {};
  open_ = false;
  if (current_mark != mark_) return {};
  current_mark = mark_before_;
  ContextHandle current = 0;
  if (Status status = driver.current_context(&current); !status) return status;
  return current == before_ ? Status() : driver.set_current_context(before_);
}

}  // namespace stf_places
