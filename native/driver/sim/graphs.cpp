#include "graphs.hpp"

#include <algorithm>

namespace stf_places::sim {

namespace {

// Lays nodes on lanes, one after the other. A lane whose last node another lane waits for is spare there: it
// can be taken up by what comes behind, without an order that no edge gives.
class Planner {
 public:
  explicit Planner(const Nodes& nodes) : nodes_(nodes) {}

  Layout plan() {
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) place(at);
    std::vector<bool> followed(nodes_.size(), false);
    for (const auto& node : nodes_) {
      for (const std::uint32_t before : node->after) followed[before] = true;
    }
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) {
      if (followed[at]) continue;
      layout_.steps[at].recorded = true;
      layout_.leaves.push_back(at);
    }
    return std::move(layout_);
  }

 private:
  struct Spare {
    std::uint32_t lane;
    std::uint32_t tail;    // the last node on it then
    std::uint32_t waiter;  // the node that waits for it
  };

  void place(std::uint32_t at) {
    const std::uint32_t lane = lane_for(at);
    layout_.steps.push_back({lane});
    for (const std::uint32_t before : nodes_[at]->after) {
      Step& step = layout_.steps[before];
      if (step.lane == lane) continue;
      step.recorded = true;
      if (tails_[step.lane] == before) spares_[lane].push_back({step.lane, before, at});
    }
    tails_[lane] = at;
  }

  std::uint32_t lane_for(std::uint32_t at) {
    const Node& node = *nodes_[at];
    for (const std::uint32_t before : node.after) {
      const std::uint32_t lane = layout_.steps[before].lane;
      if (tails_[lane] == before && suits(lane, node)) return lane;
    }
    for (const std::uint32_t before : node.after) {
      std::vector<Spare>& spares = spares_[layout_.steps[before].lane];
      std::erase_if(spares, [&](const Spare& one) { return tails_[one.lane] != one.tail; });
      const auto found = std::find_if(spares.begin(), spares.end(), [&](const Spare& one) {
        return one.waiter <= before && suits(one.lane, node);
      });
      if (found != spares.end()) return found->lane;
    }
    return new_lane(node);
  }

  bool suits(std::uint32_t number, const Node& node) const {
    const Lane& lane = layout_.lanes[number];
    return node.context == 0 || (lane.context == node.context && lane.priority == node.priority);
  }

  std::uint32_t new_lane(const Node& node) {
    Lane lane{node.context, node.priority};
    if (node.context == 0) {
      constexpr ContextHandle first_primary = 1;
      lane.context =
          node.after.empty() ? first_primary : layout_.lanes[layout_.steps[node.after[0]].lane].context;
    }
    layout_.lanes.push_back(lane);
    tails_.push_back(0);
    spares_.emplace_back();
    return static_cast<std::uint32_t>(layout_.lanes.size() - 1);
  }

  const Nodes& nodes_;
  Layout layout_;
  std::vector<std::uint32_t> tails_;        // the last node, by lane
  std::vector<std::vector<Spare>> spares_;  // by the lane that waits
};

bool same_places(const Node& a, const Node& b) {
  const bool same_fill = (a.transfer.width == 0) == (b.transfer.width == 0);
  return same_fill && a.transfer.to_at == b.transfer.to_at && a.transfer.from_at == b.transfer.from_at;
}

}  // namespace

Layout lay_out(const Nodes& nodes) { return Planner(nodes).plan(); }

bool same_shape(const Nodes& now, const Nodes& next) {
  return std::equal(now.begin(), now.end(), next.begin(), next.end(), [](const auto& a, const auto& b) {
    return a->kind == b->kind && a->context == b->context && a->priority == b->priority &&
           a->after == b->after && same_places(*a, *b);
  });
}

std::vector<std::uint32_t> ordered(std::vector<std::uint32_t> positions) {
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

}  // namespace stf_places::sim
