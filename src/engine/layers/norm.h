#pragma once

#include <optional>

#include "engine/layers/layer_support.h"

namespace nxd {

struct NormOptions {
  double eps = 1e-5;
  bool affine = true;          // a weight, and a LayerNorm's bias
  std::optional<bool> bias{};  // on where a norm can have one
};

// The base of both norms: a replicated weight, and for LayerNorm a bias.
class Norm : public Module {
 public:
  int64_t size() const { return size_; }
  double eps() const { return eps_; }
  at::Tensor weight() const { return parameter_value("weight"); }
  // Checks x and optionally a residual against one another and the parameters, which the kernels
  // read as one dtype.
  void check_inputs(const Tensors& inputs, size_t n_outputs) const;
  // One without parameters takes inputs of that dtype, too.
  void parameters_were_cast(at::ScalarType dtype) override { dtype_ = dtype; }

 protected:
  Norm(const LayerContext& at, const char* class_name, int64_t size, const NormOptions& options,
       bool has_bias);

  at::Tensor bias() const { return parameter_value("bias"); }
  // The residual among the inputs, undefined when there is none.
  static at::Tensor residual(const Tensors& inputs);
  // {sum, norm of the sum} as the outputs that were asked for.
  static Tensors results(const std::pair<at::Tensor, at::Tensor>& sum_and_norm, size_t n_outputs);

 private:
  int64_t size_;
  double eps_;
  at::ScalarType dtype_;  // of inputs where there are no parameters
};

class LayerNorm : public Norm {
 public:
  LayerNorm(const LayerContext& at, int64_t size, const NormOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
};

class RmsNorm : public Norm {
 public:
  RmsNorm(const LayerContext& at, int64_t size, const NormOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
};

}  // namespace nxd
