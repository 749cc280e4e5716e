#include "engine/stablehlo/host_checks.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <map>

#include "engine/device/device_copy.h"
#include "engine/device/node_replay.h"

namespace nxd {
namespace {

bool gives_integers(const RecordedNode& node) {
  if (node.call->op->is_effect || !node.call->overwrites.empty()) return false;
  const auto& results = node.call->results;
  return !results.empty() &&
         std::all_of(results.begin(), results.end(), [](const at::Tensor& result) {
           return result.defined() &&
                  at::isIntegralType(result.scalar_type(), /*includeBool=*/true);
         });
}

}  // namespace

HostChecks::HostChecks(const RecordedGraph& outline) : is_check_(outline.nodes.size()) {
  const size_t count = outline.nodes.size();
  std::vector<bool> is_known(static_cast<size_t>(outline.num_slots));  // by the host, of each slot
  std::fill_n(is_known.begin(), outline.leaves.size(), true);
  for (size_t i = 0; i < count; ++i) {
    const RecordedNode& node = *outline.nodes[i];
    const auto& slots = outline.input_slots[i];
    const bool has_inputs = std::all_of(
        slots.begin(), slots.end(), [&](int slot) { return is_known[static_cast<size_t>(slot)]; });
    is_check_[i] = has_inputs && !node.call->op->replay && node.call->results.empty();
    if (!has_inputs || !gives_integers(node)) continue;
    std::fill_n(is_known.begin() + outline.first_slots[i], node.call->results.size(), true);
  }
  std::vector<bool> is_needed(is_known.size());
  for (size_t i = count; i-- > 0;) {
    const auto first = is_needed.begin() + outline.first_slots[i];
    const auto results = static_cast<std::ptrdiff_t>(outline.nodes[i]->call->results.size());
    const bool has_use = std::any_of(first, first + results, [](bool needed) { return needed; });
    if (!is_check_[i] && !has_use) continue;
    for (const int slot : outline.input_slots[i]) is_needed[static_cast<size_t>(slot)] = true;
    nodes_.push_back(i);
  }
  std::reverse(nodes_.begin(), nodes_.end());
}

void HostChecks::make(const RecordedGraph& graph, bool tells_peers) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  std::map<int, at::Tensor> values;  // of slots that nodes give
  for (const size_t i : nodes_) {
    const RecordedNode& node = *graph.nodes[i];
    std::vector<at::Tensor> inputs;
    for (const int slot : graph.input_slots[i]) {
      const auto at = static_cast<size_t>(slot);
      if (at < graph.leaves.size()) read_from_device(graph.leaves[at]);
      inputs.push_back(at < graph.leaves.size() ? graph.leaves[at] : values.at(slot));
    }
    if (is_check_[i] && !tells_peers) {
      (*node.check)(inputs[0]);
      continue;
    }
    int slot = graph.first_slots[i];
    for (at::Tensor& result : replay_node(node, i, inputs)) values[slot++] = std::move(result);
  }
}

}  // namespace nxd
