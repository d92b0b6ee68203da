// Lets a random program run in scopes: graphs, loops and graphs that are launched again, opened and closed at
// random around its steps.
#pragma once

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/scope.hpp"
#include "random/program.hpp"
#include "random/reference.hpp"

namespace random_programs {

class Scopes {
 public:
  Scopes(std::uint64_t seed, Reference& reference) : random_(seed), reference_(reference) {}

  // Where the next step is recorded: the context itself where no scope is open.
  std::shared_ptr<stf_places::Context> enter(const std::shared_ptr<stf_places::Context>& root) {
    if (!levels_.empty() && root != root_) close_all();
    root_ = root;
    while (!levels_.empty() && chance(0.15)) close();
    if (levels_.empty()) {
      if (chance(0.3)) launch_again();
      if (chance(0.6)) open(stf_places::Scope::Kind::graph, 1);
    }
    if (!levels_.empty() && levels_.size() < 4 && chance(0.2))
      open(stf_places::Scope::Kind::repeat, 1 + random_() % 3);
    return innermost();
  }
  // The step was recorded, and the reference has run it once.
  void note(const Step& step) {
    if (!levels_.empty()) levels_.back().body.push_back(step);
  }
  void close_all() {
    while (!levels_.empty()) close();
  }
  // Before data go.
  void forget() {
    close_all();
    for (const Level& one : kept_) one.scope->release({});
    kept_.clear();
    for (const auto& one : left_) one->release({});
    left_.clear();
    loops_.clear();
    root_.reset();
  }
  bool recording() const { return !levels_.empty(); }

 private:
  struct Level {
    std::shared_ptr<stf_places::Scope> scope;
    std::uint64_t rounds = 1;
    std::vector<Step> body;  // with all rounds of the loops in it
  };

  bool chance(double share) { return std::uniform_real_distribution<>()(random_) < share; }
  std::shared_ptr<stf_places::Context> innermost() const {
    return levels_.empty() ? root_ : levels_.back().scope->context();
  }

  void open(stf_places::Scope::Kind kind, std::uint64_t rounds) {
    levels_.push_back({stf_places::Scope::open(innermost(), kind, rounds, chance(0.2)), rounds, {}});
  }

  void run_reference(const Level& level) {
    for (const Step& step : level.body) reference_.run(step);
  }

  void close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    level.scope->finish({});
    for (std::uint64_t round = 1; round < level.rounds; ++round) run_reference(level);
    if (!levels_.empty()) {
      std::vector<Step>& around = levels_.back().body;
      for (std::uint64_t round = 0; round < level.rounds; ++round)
        around.insert(around.end(), level.body.begin(), level.body.end());
      loops_.push_back(level.scope);
      return;
    }
    level.scope->run({});
    if (chance(0.5)) {
      kept_.push_back(std::move(level));
      if (chance(0.5)) launch_again();
      return;
    }
    level.scope->leave_behind();
    left_.push_back(level.scope);
  }

  void launch_again() {
    if (kept_.empty()) return;
    const Level& level = kept_[random_() % kept_.size()];
    level.scope->run({});
    run_reference(level);
  }

  std::mt19937_64 random_;
  Reference& reference_;
  std::shared_ptr<stf_places::Context> root_;
  std::vector<Level> levels_;
  std::vector<Level> kept_;
  std::vector<std::shared_ptr<stf_places::Scope>> left_;
  std::vector<std::shared_ptr<stf_places::Scope>> loops_;
};

}  // namespace random_programs
