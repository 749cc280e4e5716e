#pragma once

#include <memory>
#include <vector>

#include "engine/device/graph_hash.h"
#include "engine/device/recorded_node.h"

namespace nxd {

// Nodes in the order of their calls, with the leaves that they take and the results that are kept.
struct RecordedGraph {
  std::vector<std::shared_ptr<RecordedNode>> nodes{};
  std::vector<at::Tensor> leaves{};
  // The slot of each node's first result; results of leaves come before those of nodes.
  std::vector<int> first_slots{};
  std::vector<std::vector<int>> input_slots{};  // of each node's inputs
  std::vector<int> kept_slots{};
  int num_slots = 0;

  // The nodes that kept results and effects need.
  static RecordedGraph of(const std::vector<NodeResult>& kept,
                          const std::vector<std::shared_ptr<RecordedNode>>& effects);
  // The leaf in whose memory a slot's value ends up, since nodes overwrite their inputs; -1: none.
  int overwritten_leaf(int slot) const;
  GraphHash::Value hash() const;
  // The same graph without values: leaves are on the meta device, and functions are left out.
  RecordedGraph outline() const;
};

}  // namespace nxd
