#pragma once

#include "engine/functional/attention_op.h"
#include "engine/functional/rope_frequencies.h"
#include "engine/module/module.h"

namespace nxd {

// Cosines and sines for sequences of one length after another; the last tables are kept.
class RotaryTables {
 public:
  RotaryTables(const nxd_rope_options_t& options, int64_t head_dim);

  struct Tables {
    at::Tensor cos, sin;  // [sequence, rotary_dim / 2]
  };
  // In f64 for an f64 consumer, else f32.
  const Tables& get(int64_t sequence, at::ScalarType consumer);

 private:
  nxd_rope_options_t options_;
  int64_t head_dim_;
  int64_t sequence_ = -1;
  at::ScalarType dtype_ = at::kFloat;
  Tables tables_;
};

// Turns heads by their position in the sequence.
class RotaryEmbedding : public Module {
 public:
  RotaryEmbedding(std::shared_ptr<Context> context, int64_t head_dim,
                  const nxd_rope_options_t& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  int64_t head_dim_;
  RotaryTables tables_;
};

}  // namespace nxd
