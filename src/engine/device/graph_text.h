#pragma once

#include <string>
#include <vector>

#include "engine/device/recorded_graph.h"

namespace nxd {

// A graph as it is told to people: shapes and names, without values. Tensors are numbered by their
// slots, leaves first.
class GraphText {
 public:
  GraphText() = default;
  explicit GraphText(const RecordedGraph& graph);

  size_t size() const { return nodes_.size(); }
  // A line for each node, such as "%7 f32[2, 3] = aten::mm(f32[2, 4], f32[4, 3]) of %0, %5".
  std::string lines() const;
  // The language of Graphviz: a box for each node, an ellipse for each tensor that the graph takes,
  // an edge for each argument.
  std::string dot() const;
  // The first node in which another graph differs from this one, or else the first result that only
  // one of them keeps; "" for none.
  std::string first_difference(const GraphText& before) const;

 private:
  struct Node {
    int first_slot = 0;
    std::vector<std::string> results{};  // shapes
    std::string call{};
    std::vector<int> inputs{};  // slots
  };

  static std::string line(const Node& node);
  std::string line_of_slot(int slot) const;

  std::vector<std::string> leaves_{};  // shapes
  std::vector<Node> nodes_{};
  std::vector<int> kept_{};  // slots of results, in rising order
};

}  // namespace nxd
