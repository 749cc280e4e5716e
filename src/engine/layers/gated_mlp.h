#pragma once

#include "engine/layers/layer_support.h"
#include "engine/layers/parallel_linear.h"

namespace nxd {

// down_proj(activation(gate_proj(x)) * up_proj(x)), the intermediate features split over the
// tensor-parallel ranks.
class GatedMlp : public Module {
 public:
  GatedMlp(std::shared_ptr<Context> context, int64_t hidden, int64_t intermediate,
           const nxd_mlp_options_t& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  nxd_activation_t activation_;
  ParallelLinearPlan plan_;
  int64_t hidden_;
  std::shared_ptr<Module> gate_, up_, down_;
};

}  // namespace nxd
