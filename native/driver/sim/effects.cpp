#include "effects.hpp"

namespace stf_places::sim {

Operation* Effects::draw() {
  candidates_.clear();
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (legal(lanes_[lane])) candidates_.push_back(lane);
  }
  if (candidates_.empty()) return nullptr;
  const std::size_t lane = candidates_[random_() % candidates_.size()];
  Stream* stream = lanes_[lane];
  Operation* operation = stream->lane.pop();
  if (stream->lane.empty()) {
    lanes_[lane] = lanes_.back();
    lanes_.pop_back();
  }
  return operation;
}

Operation* Effects::take_any() {
  if (!chaos_) return take();
  if (lanes_.empty()) return nullptr;
  Operation* operation = lanes_.back()->lane.pop();
  if (lanes_.back()->lane.empty()) lanes_.pop_back();
  return operation;
}

}  // namespace stf_places::sim
