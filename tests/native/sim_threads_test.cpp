// Several threads on one machine, and fork.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "sim_machine.hpp"

using namespace stf_places;
using namespace stf_places::sim;
using namespace stf_places::sim::testing;

namespace {

struct Gate {
  std::atomic<bool> entered{false};
  std::atomic<bool> open{false};
  static void pass(void* argument) {
    auto* gate = static_cast<Gate*>(argument);
    gate->entered = true;
    while (!gate->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

}  // namespace

TEST(a_slow_host_function_holds_up_nobody_who_submits) {
  const Bench machine;
  const StreamHandle slow = machine.stream();
  const StreamHandle other = machine.stream();
  Gate gate;
  CHECK_OK(machine->host_function(slow, Gate::pass, &gate));
  std::thread waiter([&] { CHECK_OK(machine.wait(slow)); });
  while (!gate.entered) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) CHECK_OK(machine.busy(other, 1, 1));
  CHECK_EQUAL(machine->operations(), std::uint64_t{1001});
  const Interrupt interrupt{[](void* looks) { return ++*static_cast<std::atomic<int>*>(looks) > 2; },
                            nullptr};
  std::atomic<int> looks{0};
  Interrupt patience = interrupt;
  patience.argument = &looks;
  CHECK_FAILS(machine->synchronize_stream(slow, patience), Code::interrupted, "");
  gate.open = true;
  waiter.join();
  CHECK_OK(machine.wait(other));
}

TEST(threads_submit_and_wait_at_once) {
  for (const bool chaos : {false, true}) {
    const Bench machine(tiny(), Options{.chaos = chaos, .seed = 3});
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const StreamHandle stream = machine.stream(t % 2);
        const Address block = machine.memory(100000, stream, t % 2);
        std::vector<char> buffer(100000);
        for (int i = 0; i < 200; ++i) {
          const char value = static_cast<char>(i);
          CHECK_OK(machine->fill(block, on(t % 2), &value, 1, 100000, stream));
          CHECK_OK(machine->copy(address_of(buffer.data()), host, block, on(t % 2), 100000, stream));
          CHECK_OK(machine->host_function(
              stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls));
          const StreamHandle brief = machine.stream(t % 2);
          machine.order(stream, brief, t % 2);
          CHECK_OK(machine->destroy_stream(brief));
          if (i % 10 == 0) {
            CHECK_OK(machine.wait(stream));
            CHECK_EQUAL(int{buffer[99999]}, int{value});
          }
        }
        CHECK_OK(machine->free_device(t % 2, block, stream));
        CHECK_OK(machine.wait(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_EQUAL(calls.load(), 800);
    CHECK_EQUAL(machine->conflicts().size(), std::size_t{0});
    CHECK_EQUAL(machine->live_allocations(), std::size_t{0});
    CHECK_OK(machine->drain());
  }
}

TEST(the_current_context_belongs_to_the_thread_and_the_machine) {
  const Bench one;
  const Bench two;
  CHECK_OK(one->set_current_context(2));
  ContextHandle seen = 9;
  std::thread([&] { CHECK_OK(one->current_context(&seen)); }).join();
  CHECK_EQUAL(seen, ContextHandle{0});
  CHECK_OK(two->current_context(&seen));
  CHECK_EQUAL(seen, ContextHandle{0});
  CHECK_OK(one->current_context(&seen));
  CHECK_EQUAL(seen, ContextHandle{2});
}

TEST(a_forked_child_is_told_to_spawn) {
  const Bench machine;
  const StreamHandle stream = machine.stream();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int before = check::failures();
    CHECK_FAILS(machine.wait(stream), Code::forked, "spawn");
    CHECK_FAILS(machine.busy(stream, 1, 1), Code::forked, "spawn");
    ContextHandle context = 0;
    CHECK_FAILS(machine->current_context(&context), Code::forked, "multiprocessing");
    std::fflush(nullptr);
    _exit(check::failures() == before ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQUAL(status, 0);
  CHECK_OK(machine.wait(stream));
}

int main() { return check::run_all(); }
