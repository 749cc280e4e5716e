#pragma once

#include "core/model/rope_frequencies.h"
#include "engine/functional/attention_op.h"
#include "engine/layers/layer_context.h"

namespace nxd {

// Cosines and sines for sequences of one length after another; the last tables are kept.
class RotaryTables {
 public:
  RotaryTables(const RopeOptions& options, int64_t head_dim);

  // Differs where the options do.
  uint32_t options_digest() const;

  struct Tables {
    at::Tensor cos, sin;  // [sequence, rotary_dim / 2]
  };
  // In f64 for an f64 consumer, else f32; on the consumer's device.
  const Tables& get(int64_t sequence, const at::Tensor& consumer);

 private:
  RopeOptions options_;
  int64_t head_dim_;
  int64_t sequence_ = -1;
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  Tables tables_;
};

// Turns heads by their position in the sequence.
class RotaryEmbedding : public Module {
 public:
  RotaryEmbedding(const LayerContext& at, int64_t head_dim, const RopeOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  int64_t head_dim_;
  RotaryTables tables_;
};

}  // namespace nxd
