#include "engine/device/recorded_graph.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/hash.h"

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
    for (const NodeInput& input : node->inputs) visit(input.from.node);
    found.push_back(node);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return found;
}

enum Tag : uint64_t {
  kNone = 1,
  kBool,
  kInt,
  kDouble,
  kInts,
  kList,
  kString,
  kDevice,
  kOther,
  kDefault
};

void add_argument(GraphHash& hash, const c10::IValue& value) {
  if (value.isNone()) {
    hash.add(kNone);
  } else if (value.isBool()) {
    hash.add(kBool).add(value.toBool() ? 1 : 0);
  } else if (value.isInt()) {
    hash.add(kInt).add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    hash.add(kDouble).add(bits);
  } else if (value.isString()) {
    hash.add(kString).add(Hash().add(value.toStringRef()).value());
  } else if (value.isIntList()) {
    const auto list = value.toIntVector();
    hash.add(kInts).add(list.size());
    for (const int64_t element : list) hash.add(static_cast<uint64_t>(element));
  } else if (value.isList()) {
    const auto list = value.toListRef();
    hash.add(kList).add(list.size());
    for (const c10::IValue& element : list) add_argument(hash, element);
  } else {
    hash.add(value.isDevice() ? kDevice : kOther);
  }
}

void add_shape(GraphHash& hash, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    hash.add(kNone);
    return;
  }
  hash.add(static_cast<uint64_t>(tensor.scalar_type()) * 100 + static_cast<uint64_t>(tensor.dim()));
  for (const int64_t size : tensor.sizes()) hash.add(static_cast<uint64_t>(size));
}

// Groups of one form are one group of each rank: the same graph for all.
void add_exchange(GraphHash& hash, const RecordedExchange& exchange) {
  hash.add(static_cast<uint64_t>(exchange.kind)).add(exchange.in_one_process ? 1 : 0);
  hash.add(exchange.ranks.size());
  for (const int rank : exchange.ranks) {
    hash.add(static_cast<uint64_t>(int64_t{rank} - exchange.ranks.front()));
  }
}

// A scalar's kind decides on the result's dtype; its value is an input.
uint64_t kind_of(const c10::IValue& scalar) {
  return scalar.isNone() ? kNone : scalar.isInt() ? kInt : scalar.isBool() ? kBool : kDouble;
}

// One that a program wrote: it does not decide on a result's dtype as other tensors do.
bool is_wrapped_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

at::Tensor without_value(const at::Tensor& leaf) {
  at::Tensor meta =
      at::empty(leaf.sizes(), at::TensorOptions().dtype(leaf.scalar_type()).device(at::kMeta));
  if (is_wrapped_number(leaf)) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

}  // namespace

RecordedGraph RecordedGraph::of(const std::vector<NodeResult>& kept, const Nodes& effects) {
  RecordedGraph graph;
  graph.nodes = reachable(kept, effects);
  std::unordered_map<const RecordedNode*, int> slots;
  for (const auto& node : graph.nodes) {
    for (const NodeInput& input : node->inputs) {
      const RecordedNode& from = *input.from.node;
      if (!from.is_leaf() || !slots.emplace(&from, graph.num_slots).second) continue;
      ++graph.num_slots;
      graph.leaves.push_back(from.leaf);
    }
  }
  for (const auto& node : graph.nodes) {
    slots.emplace(node.get(), graph.num_slots);
    graph.first_slots.push_back(graph.num_slots);
    graph.num_slots += static_cast<int>(node->results.size());
  }
  for (const auto& node : graph.nodes) {
    auto& inputs = graph.input_slots.emplace_back();
    for (const NodeInput& input : node->inputs) {
      inputs.push_back(slots.at(input.from.node.get()) + input.from.index);
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
    const std::vector<int>& overwrites = nodes[node]->overwrites;
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
    node->op = from.op;
    node->arguments = from.arguments;
    node->lists = from.lists;
    node->results = from.results;
    node->result_lists = from.result_lists;
    node->overwrites = from.overwrites;
    node->attributes = from.attributes;
    node->exchanges = from.exchanges;
    for (RecordedExchange& exchange : node->exchanges) exchange.group.reset();
    for (size_t k = 0; k < from.inputs.size(); ++k) {
      const auto slot = static_cast<size_t>(input_slots[i][k]);
      node->inputs.push_back({from.inputs[k].argument, from.inputs[k].element, results[slot]});
    }
    for (size_t r = 0; r < from.results.size(); ++r) {
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
    const RecordedNode& node = *nodes[i];
    hash.add(node.op->hash);
    if (!node.attributes.empty()) hash.add(Hash().add(node.attributes).value());
    for (const RecordedExchange& exchange : node.exchanges) add_exchange(hash, exchange);
    for (size_t a = 0; a < node.arguments.size(); ++a) {
      const ListArgument& list = node.lists[a];
      if (list.kind != ListArgument::Kind::kNone) {
        hash.add(static_cast<uint64_t>(list.kind)).add(list.size);
      } else if (node.op->is_scalar[a]) {
        const bool is_default = node.op->is_default(a, node.arguments[a]);
        hash.add(is_default ? kDefault : kind_of(node.arguments[a]));
      } else {
        add_argument(hash, node.arguments[a]);
      }
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const NodeInput& input = node.inputs[k];
      hash.add(static_cast<uint64_t>(input.argument))
          .add(static_cast<uint64_t>(input.element + 1))
          .add(static_cast<uint64_t>(input_slots[i][k]));
    }
    for (const at::Tensor& result : node.results) add_shape(hash, result);
    for (const int input : node.overwrites) hash.add(static_cast<uint64_t>(input + 1));
  }
  for (const int slot : kept_slots) hash.add(static_cast<uint64_t>(slot));
  return hash.value();
}

}  // namespace nxd
