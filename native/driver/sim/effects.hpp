// The order in which effects are made.
//
// Program order is the order of submission over all streams: always legal, and nothing has to be looked up.
// Chaos order draws, with a seeded generator, among the first operations of all streams that do not wait for
// a record whose effect is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "operation.hpp"

namespace stf_places::sim {

class Effects {
 public:
  Effects(bool chaos, std::uint64_t seed) : chaos_(chaos), random_(seed) {}

  void submit(Operation* operation) {
    ++pending_;
    if (!chaos_) {
      program_.push(operation);
      return;
    }
    Stream* stream = operation->stream;
    if (stream->lane.empty()) lanes_.push_back(stream);
    stream->lane.push(operation);
  }

  // Takes out the operation whose effect is to be made next; null when there is none.
  Operation* take() {
    if (chaos_) return draw();
    return program_.empty() ? nullptr : program_.pop();
  }

  // Takes out any operation at all, to give back what it holds.
  Operation* take_any();

  // The effect of a taken operation has been made.
  void made() { --pending_; }

  // Operations whose effect has not been made, one that is being made included.
  std::size_t pending() const { return pending_; }
  // Whether every operation up to `sequence` has its effect.
  bool made_up_to(std::uint64_t sequence) const {
    return pending_ == 0 || (!chaos_ && !running_ && program_.front()->sequence > sequence);
  }
  void set_running(bool running) { running_ = running; }

 private:
  static bool legal(const Stream* stream) {
    const Operation* next = stream->lane.front();
    return next->kind != OperationKind::wait || next->record->effected;
  }
  Operation* draw();

  bool chaos_;
  bool running_ = false;
  std::mt19937_64 random_;
  EffectQueue program_;
  std::vector<Stream*> lanes_;  // those with operations, in an order that only the program decides
  std::vector<std::size_t> candidates_;
  std::size_t pending_ = 0;
};

}  // namespace stf_places::sim
