// Long waits: polled, so that Ctrl-C works and no lock of the driver's is held for long.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "../driver.hpp"
#include "api.hpp"

namespace stf_places::cuda {

// When to spin, when to sleep and when to look for signals.
struct WaitPace {
  static constexpr int spins = 64;                               // back to back: about 20 us
  static constexpr int yields = 64;                              // then the core is offered to others
  static constexpr std::chrono::microseconds first_sleep{5};     // then asleep, doubling ...
  static constexpr std::chrono::microseconds longest_sleep{50};  // ... up to this
  static constexpr std::chrono::milliseconds signal_interval{5};
};

// Calls `query` (an entry point bound to a stream or event, giving its raw result) until it is ready, fails,
// or a signal arrives.
template <class Query>
Status wait_until_ready(const Api& api, const char* call, Query query, const Interrupt& interrupt) {
  using Clock = std::chrono::steady_clock;
  auto next_check = Clock::time_point{};  // set by the first sleep: short waits read no clock
  auto sleep = WaitPace::first_sleep;
  for (int round = 0;; ++round) {
    CUresult result = CUDA_SUCCESS;
    if (Status status = query(&result); !status) return status;
    if (result == CUDA_SUCCESS) return {};
    if (result != CUDA_ERROR_NOT_READY) return status_of(api, result, call);
    if (round < WaitPace::spins) continue;
    auto now = Clock::now();
    if (next_check == Clock::time_point{}) next_check = now + WaitPace::signal_interval;
    if (now >= next_check) {
      if (interrupt.pending())
        return Status(Failure{Code::interrupted, 0, call, "", "a signal ended the wait; the work goes on"});
      next_check = Clock::now() + WaitPace::signal_interval;
    }
    if (round < WaitPace::spins + WaitPace::yields) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(sleep);
    if (sleep < WaitPace::longest_sleep) sleep = std::min(sleep * 2, WaitPace::longest_sleep);
  }
}

}  // namespace stf_places::cuda
