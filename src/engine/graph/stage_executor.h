#pragma once

#include <memory>
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
  const Partition::Stage& stage() const { return stage_; }
  // The root's inputs that the stage's nodes use, by their place.
  const std::vector<size_t>& root_inputs() const;
  // Parameters that the stage's nodes read or whose modules have them, each once, by canonical name.
  const std::vector<NamedParameter>& parameters() const;

  // inputs: of Partition::Stage. root_inputs: all of the root's; those not in root_inputs() may be
  // undefined. Gives the stage's outputs; for the last stage the graph's. What a value that is only
  // handed on gives is itself.
  Module::Tensors run(const Module::Tensors& inputs, const Module::Tensors& root_inputs,
                      const std::vector<ParameterUse>& uses = {}) const;

 private:
  std::shared_ptr<const Graph> graph_;
  Partition::Stage stage_;
  bool is_last_ = false;
  std::vector<size_t> root_inputs_;
  std::vector<NamedParameter> parameters_;
};

}  // namespace nxd
