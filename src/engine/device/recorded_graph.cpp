#include "engine/device/recorded_graph.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace nxd {
namespace {

using Nodes = std::vector<std::shared_ptr<RecordedNode>>;

// Creation order is program order: it is the same on all ranks, and that of random bits.
Nodes reachable(const std::vector<NodeResult>& kept, const Nodes& effects) {
  std::unordered_set<const RecordedNode*> seen;
  Nodes found, open;
  const auto visit = [&](const std::shared_ptr<RecordedNode>& node) {
    if (!node->is_leaf() && seen.insert(node.get()).second) open.push_back(node);
  };
  for (const auto& effect : effects) visit(effect);
  for (const NodeResult& result : kept) visit(result.node);
  while (!open.empty()) {
    const std::shared_ptr<RecordedNode> node = std::move(open.back());
    open.pop_back();
    for (const NodeResult& input : node->inputs) visit(input.node);
    found.push_back(node);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return found;
}

at::Tensor without_value(const at::Tensor& leaf) {
  at::Tensor meta =
      at::empty(leaf.sizes(), at::TensorOptions().dtype(leaf.scalar_type()).device(at::kMeta));
  if (is_wrapped_number(leaf)) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

// An outline outlives the groups of its program.
std::shared_ptr<const CallSignature> without_groups(
    const std::shared_ptr<const CallSignature>& call) {
  if (call->exchanges.empty()) return call;
  auto out = std::make_shared<CallSignature>(*call);
  for (RecordedExchange& exchange : out->exchanges) exchange.group.reset();
  return out;
}

}  // namespace

RecordedGraph RecordedGraph::of(const std::vector<NodeResult>& kept, const Nodes& effects) {
  RecordedGraph graph;
  graph.nodes = reachable(kept, effects);
  std::unordered_map<const RecordedNode*, int> slots;
  for (const auto& node : graph.nodes) {
    for (const NodeResult& input : node->inputs) {
      const RecordedNode& from = *input.node;
      if (!from.is_leaf() || !slots.emplace(&from, graph.num_slots).second) continue;
      ++graph.num_slots;
      graph.leaves.push_back(from.leaf);
    }
  }
  for (const auto& node : graph.nodes) {
    slots.emplace(node.get(), graph.num_slots);
    graph.first_slots.push_back(graph.num_slots);
    graph.num_slots += static_cast<int>(node->call->results.size());
  }
  for (const auto& node : graph.nodes) {
    auto& inputs = graph.input_slots.emplace_back();
    for (const NodeResult& input : node->inputs) {
      inputs.push_back(slots.at(input.node.get()) + input.index);
    }
  }
  for (const NodeResult& result : kept) {
    graph.kept_slots.push_back(slots.at(result.node.get()) + result.index);
  }
  return graph;
}

int RecordedGraph::overwritten_leaf(int slot) const {
  const auto num_leaves = static_cast<int>(leaves.size());
  int at = slot;
  while (at >= num_leaves) {
    const auto after = std::upper_bound(first_slots.begin(), first_slots.end(), at);
    const auto node = static_cast<size_t>(after - first_slots.begin()) - 1;
    const std::vector<int>& overwrites = nodes[node]->call->overwrites;
    if (overwrites.empty()) return -1;
    const int input = overwrites[static_cast<size_t>(at - first_slots[node])];
    if (input < 0) return -1;
    at = input_slots[node][static_cast<size_t>(input)];
  }
  return at == slot ? -1 : at;
}

RecordedGraph RecordedGraph::outline() const {
  RecordedGraph out;
  out.first_slots = first_slots;
  out.input_slots = input_slots;
  out.kept_slots = kept_slots;
  out.num_slots = num_slots;
  std::vector<NodeResult> results;  // of each slot
  for (const at::Tensor& leaf : leaves) {
    auto node = std::make_shared<RecordedNode>();
    node->leaf = without_value(leaf);
    out.leaves.push_back(node->leaf);
    results.push_back({std::move(node), 0});
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const RecordedNode& from = *nodes[i];
    auto node = std::make_shared<RecordedNode>();
    node->id = from.id;
    node->call = without_groups(from.call);
    for (const int slot : input_slots[i])
      node->inputs.push_back(results[static_cast<size_t>(slot)]);
    for (size_t r = 0; r < from.call->results.size(); ++r) {
      results.push_back({node, static_cast<int>(r)});
    }
    out.nodes.push_back(std::move(node));
  }
  return out;
}

GraphHash::Value RecordedGraph::hash() const {
  GraphHash hash;
  hash.add(leaves.size()).add(nodes.size());
  for (const at::Tensor& leaf : leaves) {
    add_shape(hash, leaf);
    hash.add(is_wrapped_number(leaf) ? 1 : 0);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const GraphHash::Value& call = nodes[i]->call->hash;
    hash.add(call[0]).add(call[1]);
    for (const int slot : input_slots[i]) hash.add(static_cast<uint64_t>(slot));
  }
  for (const int slot : kept_slots) hash.add(static_cast<uint64_t>(slot));
  return hash.value();
}

}  // namespace nxd
