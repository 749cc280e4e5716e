#include "engine/graph/stage_executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "engine/device/operator_arguments.h"
#include "engine/device/recorder.h"
#include "engine/module/module_tree.h"
#include "engine/ops/autocast.h"
#include "engine/ops/written_views.h"
#include "engine/own_products.h"

namespace nxd {
namespace {

using Kind = GraphNode::Kind;
using Tensors = Module::Tensors;

// A trace names the CPU for the device on which its graph will run.
Tensors run_operator_node(const GraphNode& node, const Tensors& inputs, at::Device device) {
  std::vector<c10::IValue> stack = node.arguments;
  for (c10::IValue& argument : stack) {
    if (argument.isDevice()) argument = device;
  }
  size_t next = 0;
  replace_tensors(stack, [&](const at::Tensor&) { return inputs[next++]; });
  run_on_views(*node.op, stack);
  Tensors outputs;
  for_each_tensor(stack, [&](const at::Tensor& result) { outputs.push_back(result); });
  return outputs;
}

// Results of a node that is no source.
Tensors run_node(const GraphNode& node, const Tensors& inputs, at::Device device) {
  const at::AutoGradMode grad_mode(at::GradMode::is_enabled() && node.grad_mode);
  const OwnProducts own_products(node.own_products);
  const CallPathScope call_path(node.call_path);
  switch (node.kind) {
    case Kind::kModule: return node.callee->call(inputs, node.outputs.size());
    case Kind::kFunction: return node.function(inputs);
    case Kind::kOperator: return run_operator_node(node, inputs, device);
    default: fail(NXD_ERROR_INTERNAL, "graph: ", node.name, " is no call");
  }
}

// The inputs of a node, with other tensors for some parameters: in place of their values, and, for
// as long as this lives, of the parameters of the module that it calls.
class Substitution {
 public:
  Substitution(const Graph& graph, const GraphNode& node, std::vector<ParameterUse> uses,
               const Tensors& values)
      : uses_(std::move(uses)) {
    for (const ValueId value : node.inputs) {
      inputs_.push_back(value == kNoValue ? at::Tensor() : values[slot(value)]);
      if (value == kNoValue) continue;
      const GraphNode& from = graph.nodes[slot(graph.values[slot(value)].producer)];
      for (const ParameterUse& use : uses_) {
        if (from.kind == Kind::kParameter && from.parameter == use.parameter) {
          inputs_.back() = use.tensor;
        }
      }
    }
    if (node.kind == Kind::kModule) swap();
    swapped_ = node.kind == Kind::kModule;
  }
  ~Substitution() {
    if (swapped_) swap();
  }
  Substitution(const Substitution&) = delete;
  Substitution& operator=(const Substitution&) = delete;

  const Tensors& inputs() const { return inputs_; }

 private:
  void swap() {
    for (ParameterUse& use : uses_) std::swap(use.parameter->tensor(), use.tensor);
  }

  std::vector<ParameterUse> uses_;
  Tensors inputs_;
  bool swapped_ = false;
};

// Sets automatic casts for a scope.
class AutocastScope {
 public:
  AutocastScope() : outer_(autocast_dtype()) {}
  ~AutocastScope() { set(outer_); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

  void set(nxd_dtype_t dtype) {
    if (dtype != autocast_dtype()) set_autocast(dtype);
  }

 private:
  nxd_dtype_t outer_;
};

}  // namespace

StageExecutor::StageExecutor(std::shared_ptr<const Graph> graph, const Partition& partition,
                             int stage)
    : graph_(std::move(graph)) {
  check_internal(stage >= 0 && slot(stage) < partition.stages.size(), "stage: no stage ", stage);
  const Partition::Stage& own = partition.stages[slot(stage)];
  const bool is_last = slot(stage) + 1 == partition.stages.size();
  inputs_ = own.inputs;
  outputs_ = is_last ? graph_->outputs : own.outputs;
  for (const int node : own.nodes) {
    steps_.push_back({node, {}});
    const GraphNode& n = graph_->nodes[slot(node)];
    if (n.kind == Kind::kInput) root_inputs_.push_back(n.input_index);
    const bool known =
        std::find(module_names_.begin(), module_names_.end(), n.name) != module_names_.end();
    if (n.callee && !known) module_names_.push_back(n.name);
  }
  std::sort(root_inputs_.begin(), root_inputs_.end());
  find_releases();
  find_parameters();
}

void StageExecutor::find_releases() {
  std::unordered_set<ValueId> live(outputs_.begin(), outputs_.end());
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const GraphNode& node = graph_->nodes[slot(step->node)];
    const auto use = [&](ValueId value) {
      if (value != kNoValue && live.insert(value).second) step->released.push_back(value);
    };
    for (const ValueId value : node.outputs) use(value);
    for (const ValueId value : node.inputs) use(value);
  }
}

void StageExecutor::find_parameters() {
  std::unordered_set<const Parameter*> used;
  std::vector<NamedParameter> all;
  const auto add = [&](const std::string& name, const std::shared_ptr<Parameter>& parameter) {
    if (used.insert(parameter.get()).second) all.push_back({name, parameter});
  };
  for (const Step& step : steps_) {
    const GraphNode& node = graph_->nodes[slot(step.node)];
    if (node.kind == Kind::kParameter) add(node.name, node.parameter);
    if (!node.callee) continue;
    for (const NamedParameter& entry : named_parameters(*node.callee)) {
      add(join_path(node.name, entry.name), entry.parameter);
    }
  }
  for (const NamedParameter& entry : graph_->parameters) {
    if (used.erase(entry.parameter.get()) != 0) parameters_.push_back(entry);
  }
  // Parameters of modules that are in no place of the tree come last.
  for (const NamedParameter& entry : all) {
    if (used.count(entry.parameter.get()) != 0) parameters_.push_back(entry);
  }
}

// Where its parameters lie, or else what it is given.
at::Device StageExecutor::device(const Tensors& inputs, const Tensors& root_inputs) const {
  std::optional<at::Device> found;
  if (!parameters_.empty()) found = parameters_[0].parameter->tensor().device();
  for (const at::Tensor& input : inputs) {
    if (!found && input.defined()) found = input.device();
  }
  for (const size_t index : root_inputs_) {
    if (!found && root_inputs.at(index).defined()) found = root_inputs[index].device();
  }
  return found && !found->is_meta() ? *found : at::Device(at::kCPU);
}

at::Tensor StageExecutor::source_value(const GraphNode& node, const Tensors& root_inputs,
                                       at::Device device) const {
  if (node.kind == Kind::kConstant && !node.buffer) return constant_on(device, node.constant);
  const at::Tensor& value = node.kind == Kind::kInput       ? root_inputs.at(node.input_index)
                            : node.kind == Kind::kParameter ? node.parameter->tensor()
                                                            : node.buffer->value;
  check_internal(value.defined(), "stage: ", node.name, ": expected a tensor, got none");
  return value;
}

// A constant is the trace's own: what writes to it writes to the one on the device.
at::Tensor StageExecutor::constant_on(at::Device device, const at::Tensor& constant) const {
  if (device.is_cpu() || !constant.is_cpu() || constant.dim() == 0) return constant;
  at::Tensor& placed = placed_[constant.unsafeGetTensorImpl()];
  if (!placed.defined()) placed = constant.to(device);
  return placed;
}

Tensors StageExecutor::run(const Tensors& inputs, const Tensors& root_inputs,
                           const std::vector<ParameterUse>& uses) const {
  check_internal(inputs.size() == inputs_.size(), "stage: expected ", inputs_.size(),
                 " inputs, got ", inputs.size());
  Tensors values(graph_->values.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[slot(inputs_[i])] = inputs[i];
  const at::Device device = this->device(inputs, root_inputs);
  std::optional<HostTensorScope> host_tensors;
  if (!device.is_cpu()) host_tensors.emplace();
  AutocastScope autocast;
  auto use = uses.begin();
  for (const Step& step : steps_) {
    const GraphNode& node = graph_->nodes[slot(step.node)];
    const auto first_use = use;
    while (use != uses.end() && use->node == step.node) ++use;
    if (node.is_source()) {
      values[slot(node.outputs[0])] = source_value(node, root_inputs, device);
    } else {
      const Substitution substitution(*graph_, node, {first_use, use}, values);
      autocast.set(node.autocast);
      Tensors results = run_node(node, substitution.inputs(), device);
      check_internal(results.size() == node.outputs.size(), "stage: ", node.name, ": expected ",
                     node.outputs.size(), " results, got ", results.size());
      for (size_t i = 0; i < results.size(); ++i) {
        if (node.outputs[i] != kNoValue) values[slot(node.outputs[i])] = std::move(results[i]);
      }
    }
    for (const ValueId value : step.released) values[slot(value)].reset();
  }
  Tensors outputs;
  for (const ValueId value : outputs_) {
    outputs.push_back(value == kNoValue ? at::Tensor() : values[slot(value)]);
  }
  return outputs;
}

}  // namespace nxd
