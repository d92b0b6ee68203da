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
    for (const auto& node : nodes_) {
      if (node->kind == OperationKind::loop) layout_.bodies.push_back(lay_out(node->inner));
    }
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

// Puts nodes behind one another into one list, with edges by the positions there.
class Flattening {
 public:
  // Adds nodes, the first ones behind `before`, and returns their last ones.
  std::vector<std::uint32_t> add(const Nodes& nodes, const std::vector<std::uint32_t>& before) {
    std::vector<std::vector<std::uint32_t>> ends;  // by node, what stands for it
    std::vector<bool> followed(nodes.size(), false);
    for (const auto& node : nodes) {
      std::vector<std::uint32_t> after = node->after.empty() ? before : std::vector<std::uint32_t>();
      for (const std::uint32_t one : node->after) {
        after.insert(after.end(), ends[one].begin(), ends[one].end());
        followed[one] = true;
      }
      ends.push_back(put(*node, ordered(std::move(after))));
    }
    std::vector<std::uint32_t> last;
    for (std::size_t at = 0; at < nodes.size(); ++at) {
      if (!followed[at]) last.insert(last.end(), ends[at].begin(), ends[at].end());
    }
    return ordered(std::move(last));
  }

  Nodes take() && { return std::move(flat_); }

 private:
  std::vector<std::uint32_t> put(const Node& node, std::vector<std::uint32_t> after) {
    if (node.kind == OperationKind::graph) {
      // One node before the graph and one behind it, so that edges do not multiply.
      const std::vector<std::uint32_t> begin = after.size() > 1 ? put(Node{}, after) : after;
      std::vector<std::uint32_t> last = node.inner.empty() ? begin : add(node.inner, begin);
      return last.size() == 1 ? last : put(Node{}, std::move(last));
    }
    auto copy = std::make_shared<Node>(node);
    copy->after = std::move(after);
    flat_.push_back(std::move(copy));
    return {static_cast<std::uint32_t>(flat_.size() - 1)};
  }

  Nodes flat_;
};

}  // namespace

Layout lay_out(const Nodes& nodes) { return Planner(nodes).plan(); }

bool same_shape(const Nodes& now, const Nodes& next) {
  return std::equal(now.begin(), now.end(), next.begin(), next.end(), [](const auto& a, const auto& b) {
    return a->kind == b->kind && a->context == b->context && a->priority == b->priority &&
           a->after == b->after && same_places(*a, *b) && same_shape(a->inner, b->inner);
  });
}

std::size_t count_all(const Nodes& nodes) {
  std::size_t count = nodes.size();
  for (const auto& node : nodes) count += count_all(node->inner);
  return count;
}

Nodes stripped(const Nodes& nodes) {
  Nodes bare;
  for (const auto& node : nodes) {
    auto copy = std::make_shared<Node>();
    copy->kind = node->kind;
    copy->context = node->context;
    copy->priority = node->priority;
    copy->after = node->after;
    copy->transfer = node->transfer;
    copy->inner = stripped(node->inner);
    copy->condition = node->condition;
    bare.push_back(std::move(copy));
  }
  return bare;
}

Nodes flattened(const Nodes& nodes) {
  const auto is_graph = [](const auto& node) { return node->kind == OperationKind::graph; };
  if (std::none_of(nodes.begin(), nodes.end(), is_graph)) return nodes;
  Flattening flattening;
  flattening.add(nodes, {});
  return std::move(flattening).take();
}

std::vector<std::uint32_t> ordered(std::vector<std::uint32_t> positions) {
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

}  // namespace stf_places::sim
