#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/graph/partition.h"

namespace nxd {

// Another tensor for a parameter, at one place of its use.
struct ParameterUse {
  int node = -1;  // that calls a module of the parameter's, or takes the parameter's value
  std::shared_ptr<Parameter> parameter;
  at::Tensor tensor;
};

// Runs one stage of a partitioned graph, with autograd as the thread's mode is.
class StageExecutor {
 public:
  StageExecutor(std::shared_ptr<const Graph> graph, const Partition& partition, int stage);

  const Graph& graph() const { return *graph_; }
  // The root's inputs that the stage's nodes use, by their place.
  const std::vector<size_t>& root_inputs() const { return root_inputs_; }
  // Parameters that the stage's nodes read or whose modules have them, each once, by canonical
  // name, in the order of Graph::parameters.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  // Paths of the modules that the stage calls as a whole, in order.
  const std::vector<std::string>& module_names() const { return module_names_; }

  // inputs: of Partition::Stage. root_inputs: all of the root's; those not in root_inputs() may be
  // undefined. Gives the stage's outputs; for the last stage the graph's. A value that is only
  // handed on gives itself. Automatic casts are those of the trace, not the thread's.
  // uses: in the order of their nodes.
  Module::Tensors run(const Module::Tensors& inputs, const Module::Tensors& root_inputs,
                      const std::vector<ParameterUse>& uses = {}) const;

 private:
  struct Step {
    int node;
    std::vector<ValueId> released;  // used for the last time
  };

  at::Device device(const Module::Tensors& inputs, const Module::Tensors& root_inputs) const;
  at::Tensor source_value(const GraphNode& node, const Module::Tensors& root_inputs,
                          at::Device device) const;
  at::Tensor constant_on(at::Device device, const at::Tensor& constant) const;
  void find_releases();
  void find_parameters();

  std::shared_ptr<const Graph> graph_;
  std::vector<Step> steps_;
  std::vector<ValueId> inputs_, outputs_;
  std::vector<size_t> root_inputs_;
  std::vector<NamedParameter> parameters_;
  std::vector<std::string> module_names_;
  // Constants of the CPU on the device where the stage has run.
  mutable std::unordered_map<const c10::TensorImpl*, at::Tensor> placed_;
};

}  // namespace nxd
