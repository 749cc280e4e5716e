#include "engine/training/shared_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "core/comm/take_for_call.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/module/module_tree.h"
#include "engine/ops/collectives.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

using Uses = std::vector<std::pair<std::shared_ptr<Parameter>, std::vector<int>>>;

// The nodes that use each parameter, in the order of the graph, and parameters in that of first
// uses, which is the same on all ranks: several that one call uses are in the order of its module.
Uses find_uses(const Graph& graph) {
  Uses uses;
  std::map<const Parameter*, size_t> places;
  const auto add = [&](const std::shared_ptr<Parameter>& parameter, int node) {
    const auto [place, is_new] = places.emplace(parameter.get(), uses.size());
    if (is_new) uses.push_back({parameter, {}});
    std::vector<int>& nodes = uses[place->second].second;
    if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (node.kind == GraphNode::Kind::kModule) {
      for (const NamedParameter& entry : named_parameters(*node.callee)) {
        add(entry.parameter, static_cast<int>(i));
      }
    }
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      const int producer = graph.values[static_cast<size_t>(input)].producer;
      const GraphNode& from = graph.nodes[static_cast<size_t>(producer)];
      if (from.kind == GraphNode::Kind::kParameter) add(from.parameter, static_cast<int>(i));
    }
  }
  return uses;
}

std::vector<int> stages_of_nodes(const Graph& graph, const Partition& partition) {
  std::vector<int> result(graph.nodes.size(), -1);
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    for (const int node : partition.stages[s].nodes) {
      auto& stage = result[static_cast<size_t>(node)];
      if (stage < 0) stage = static_cast<int>(s);
    }
  }
  return result;
}

}  // namespace

SharedParameters::SharedParameters(std::shared_ptr<Context> context, const ProcessGroup& pipeline,
                                   std::shared_ptr<const Graph> graph, const Partition& partition,
                                   const PipelineShape& shape)
    : context_(std::move(context)) {
  const std::vector<int> stage_of = stages_of_nodes(*graph, partition);
  // Ranks meet in the order of first uses; names may be alike.
  for (const auto& [parameter, nodes] : find_uses(*graph)) {
    if (nodes.size() > 1) add(pipeline, parameter, nodes, stage_of, shape);
  }
}

void SharedParameters::add(const ProcessGroup& pipeline,
                           const std::shared_ptr<Parameter>& parameter,
                           const std::vector<int>& nodes, const std::vector<int>& stage_of,
                           const PipelineShape& shape) {
  Shared shared;
  std::vector<int> ranks;  // of the pipeline, the owner's first
  for (const int node : nodes) {
    const int stage = stage_of[static_cast<size_t>(node)];
    const int rank = shape.rank_of(stage);
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    if (rank == pipeline.rank()) shared.places.push_back({stage, node, {}, {}});
  }
  if (shared.places.empty()) return;
  shared.parameter = parameter;
  shared.owner = ranks.front() == pipeline.rank();
  if (ranks.size() > 1) {
    std::vector<int> world;
    for (const int rank : ranks) world.push_back(pipeline.ranks()[static_cast<size_t>(rank)]);
    shared.group = context_->shared_group(world, "pipeline-shared");
  }
  shared_.push_back(std::move(shared));
}

std::vector<ParameterUse> SharedParameters::uses(int stage) const {
  std::vector<ParameterUse> result;
  for (const Shared& shared : shared_) {
    for (const Place& place : shared.places) {
      if (place.stage == stage) result.push_back({place.node, shared.parameter, place.leaf});
    }
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const ParameterUse& a, const ParameterUse& b) { return a.node < b.node; });
  return result;
}

bool SharedParameters::is_owner(const Parameter& parameter) const {
  const auto same = [&](const Shared& shared) { return shared.parameter.get() == &parameter; };
  const auto found = std::find_if(shared_.begin(), shared_.end(), same);
  return found == shared_.end() || found->owner;
}

void SharedParameters::synchronize() {
  const at::NoGradGuard no_grad;
  for (const Shared& shared : shared_) {
    at::Tensor value = host_memory(shared.parameter->tensor(), "nxd::broadcast").detach();
    if (!shared.group || value.numel() == 0) continue;
    at::Tensor dense;
    take_for_call(shared.group.get(), "broadcast", [&] { dense = value.contiguous(); });
    shared.group->run(Call::broadcast(dense.data_ptr(), static_cast<size_t>(dense.numel()),
                                      to_nxd_dtype(dense.scalar_type()), 0));
    if (!dense.is_same(value)) value.copy_(dense);
  }
}

void SharedParameters::begin_run() {
  for (Shared& shared : shared_) {
    const at::Tensor& value = shared.parameter->tensor();
    for (Place& place : shared.places) {
      place.leaf = value.detach();
      place.leaf.set_requires_grad(value.requires_grad());
    }
  }
}

void SharedParameters::add_up(int stage) {
  const at::NoGradGuard no_grad;
  for (Shared& shared : shared_) {
    if (!shared.parameter->has_wide_gradient()) continue;
    for (Place& place : shared.places) {
      if (place.stage != stage || !place.leaf.defined()) continue;
      at::Tensor& grad = place.leaf.mutable_grad();
      if (!grad.defined()) continue;
      make_dense(grad);
      const at::Tensor wide = grad.to(at::kFloat);
      place.wide = place.wide.defined() ? place.wide.add_(wide) : wide;
      grad.reset();
    }
  }
}

at::Tensor SharedParameters::sum(const Shared& shared) {
  at::Tensor total;
  for (const Place& place : shared.places) {
    at::Tensor grad = place.leaf.defined() ? place.leaf.grad() : at::Tensor();
    make_dense(grad);
    if (place.wide.defined()) grad = place.wide;
    if (grad.defined()) total = total.defined() ? total + grad : grad;
  }
  return total;
}

void SharedParameters::end_run(bool has_valid_tokens) {
  const at::NoGradGuard no_grad;
  // A rank that rejects does so for every parameter, so that all ranks meet for each of them.
  std::exception_ptr failure;
  for (const Shared& shared : shared_) {
    try {
      finish(shared, has_valid_tokens);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  drop();
  if (failure) std::rethrow_exception(failure);
}

void SharedParameters::finish(const Shared& shared, bool has_valid_tokens) {
  Parameter& parameter = *shared.parameter;
  at::Tensor& value = parameter.tensor();
  if (!value.requires_grad()) return;
  const bool wide = parameter.has_wide_gradient();
  at::Tensor total;
  take_for_call(shared.group.get(), "all_reduce", [&] {
    total = sum(shared);
    if (!shared.group) return;
    const at::ScalarType dtype = wide ? at::kFloat : value.scalar_type();
    total = total.defined() ? total.contiguous() : at::zeros_like(value.detach(), dtype);
  });
  if (shared.group) all_reduce_in_place(*shared.group, total);
  if (!total.defined() || !has_valid_tokens) return;
  at::Tensor& grad = wide ? parameter.main_grad() : value.mutable_grad();
  if (grad.defined()) {
    grad.add_(total);
  } else {
    grad = total;
  }
  parameter.hooks().call_user();
}

void SharedParameters::reject_end(const char* reason) noexcept {
  for (const Shared& shared : shared_) {
    try {
      const bool trained = shared.parameter->tensor().requires_grad();
      if (shared.group && trained) shared.group->reject(Call::named("all_reduce"), reason);
    } catch (...) {
      // The peers fail as the group does, and this rank has its reason.
    }
  }
  drop();
}

void SharedParameters::drop() noexcept {
  for (Shared& shared : shared_) {
    for (Place& place : shared.places) place.leaf = place.wide = at::Tensor();
  }
}

}  // namespace nxd
