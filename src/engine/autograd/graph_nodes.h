#pragma once

#include <torch/csrc/autograd/function.h>

#include <unordered_set>
#include <vector>

namespace nxd {

// Calls visit(node) for each node that a backward pass from these edges may reach, once, until it
// gives false.
template <class Visit>
void visit_nodes(const torch::autograd::edge_list& roots, Visit&& visit) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> waiting;
  const auto reach = [&](const torch::autograd::edge_list& edges) {
    for (const torch::autograd::Edge& edge : edges) {
      torch::autograd::Node* const node = edge.function.get();
      if (edge.is_valid() && seen.insert(node).second) waiting.push_back(node);
    }
  };
  reach(roots);
  while (!waiting.empty()) {
    torch::autograd::Node& node = *waiting.back();
    waiting.pop_back();
    if (!visit(node)) return;
    reach(node.next_edges());
  }
}

}  // namespace nxd
