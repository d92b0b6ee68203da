// What the nodes of a graph are, for pictures of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/driver.hpp"

namespace stf_places {

class Scope;

// What an operation put into a graph, by its last node. The first entry of a node counts: an operation
// without nodes of its own ends in those of others.
struct GraphLog {
  struct Entry {
    NodeHandle node = 0;
    const char* kind = "";  // task, copy, host or loop
    std::string label;
    std::string place;
    const Scope* loop = nullptr;
  };
  std::vector<Entry> entries;

  void add(std::span<const NodeHandle> nodes, const char* kind, const std::string& label,
           const std::string& place) {
    for (NodeHandle node : nodes) entries.push_back({node, kind, label, place, nullptr});
  }
};

struct GraphDescription {
  // Nodes that stand in one graph, or the body of a loop. Parts of one group run one after the other.
  struct Group {
    int parent = -1;
    int part = 0;
    std::string kind;   // graph, while or repeat
    std::string label;  // of a loop: who drives it, how often
  };
  struct Node {
    std::uint64_t id = 0;
    int group = 0;
    int body = -1;  // the group of a loop's body
    std::string kind;
    std::string label;
    std::string place;
  };
  std::vector<Group> groups;
  std::vector<Node> nodes;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> edges;
};

}  // namespace stf_places
