#include "fork_guard.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "failures.hpp"

namespace stf_places::sim {

namespace {

// Counts the forks between the first process and this one. It belongs to the process, not to a machine.
std::atomic<std::uint64_t> fork_generation{0};

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { ++fork_generation; }); });
}

}  // namespace

ForkGuard::ForkGuard() {
  watch_forks();
  generation_ = fork_generation.load(std::memory_order_relaxed);
}

bool ForkGuard::forked() const { return fork_generation.load(std::memory_order_relaxed) != generation_; }

Status ForkGuard::check(const char* call) const {
  if (!forked()) return {};
  return fail(
      Code::forked, call,
      "a driver that was used before a fork cannot be used in the child process; start processes with "
      "multiprocessing.get_context('spawn')");
}

}  // namespace stf_places::sim
