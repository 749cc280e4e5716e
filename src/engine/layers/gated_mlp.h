#pragma once

#include "engine/layers/layer_support.h"
#include "engine/layers/parallel_linear.h"

namespace nxd {

struct MlpOptions {
  nxd_activation_t activation = NXD_ACTIVATION_SILU;
  bool bias = false;
};

// down_proj(activation(gate_proj(x)) * up_proj(x)), the intermediate features split over the
// tensor-parallel ranks.
class GatedMlp : public Module {
 public:
  GatedMlp(const LayerContext& at, int64_t hidden, int64_t intermediate, const MlpOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  nxd_activation_t activation_;
  ParallelLinearPlan plan_;
  int64_t hidden_;
  std::shared_ptr<ColumnParallelLinear> gate_, up_;
  std::shared_ptr<RowParallelLinear> down_;
};

}  // namespace nxd
