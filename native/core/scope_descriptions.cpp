// What a scope recorded, as nodes, edges and groups for a picture.
#include <algorithm>
#include <unordered_map>

#include "core/scope.hpp"

namespace stf_places {

GraphDescription Scope::describe() const {
  if (!inner_->log_) {
    throw Error(
        ErrorKind::not_supported,
        "this graph was recorded without a description: record it with push(), launchable_graph_scope() or "
        "task_graph()");
  }
  if (state_ != State::ready) throw Error(ErrorKind::task_state, "a graph is described once it is recorded");
  GraphDescription out;
  describe(out, -1);
  return out;
}

void Scope::describe(GraphDescription& out, int parent) const {
  std::string label;
  if (kind_ == Kind::repeat) label = std::to_string(count_) + " times";
  if (is_loop())
    label += std::string(label.empty() ? "" : ", ") + (obstacle_.empty() ? "on the device" : "by the host");
  const char* kind = kind_ == Kind::graph ? "graph" : kind_ == Kind::repeat ? "repeat" : "while";
  int part = 0;
  for (const Piece& piece : pieces_) {
    const int group = static_cast<int>(out.groups.size());
    out.groups.push_back({parent, part++, kind, label});
    if (piece.loop)
      piece.loop->describe(out, group);
    else
      describe_piece(piece, out, group);
  }
}

void Scope::describe_piece(const Piece& piece, GraphDescription& out, int group) const {
  std::vector<NodeHandle> nodes;
  std::vector<std::pair<NodeHandle, NodeHandle>> edges;
  inner_->runtime().driver().graph_nodes(piece.graph, &nodes, &edges).check();
  std::unordered_map<NodeHandle, const GraphLog::Entry*> known;
  for (const GraphLog::Entry& entry : inner_->log_->entries) known.emplace(entry.node, &entry);
  // An operation of several nodes is known by its last.
  std::unordered_map<NodeHandle, std::size_t> order;
  for (NodeHandle node : nodes) order.emplace(node, order.size());
  std::sort(edges.begin(), edges.end(), [&](const auto& a, const auto& b) {
    return std::pair(order[a.second], order[a.first]) < std::pair(order[b.second], order[b.first]);
  });
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    if (known.count(edge->first) == 0 && known.count(edge->second) != 0)
      known[edge->first] = known[edge->second];
  }
  for (NodeHandle node : nodes) {
    GraphDescription::Node made;
    made.id = node;
    made.group = group;
    made.kind = "empty";
    if (const auto found = known.find(node); found != known.end()) {
      const GraphLog::Entry& entry = *found->second;
      made.kind = entry.kind;
      made.label = entry.label;
      made.place = entry.place;
      if (entry.loop != nullptr && entry.node == node) {
        made.body = static_cast<int>(out.groups.size());
        entry.loop->describe(out, group);
      }
    }
    out.nodes.push_back(std::move(made));
  }
  out.edges.insert(out.edges.end(), edges.begin(), edges.end());
}

}  // namespace stf_places
