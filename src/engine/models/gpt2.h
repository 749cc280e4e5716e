#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model/gpt2_config.h"
#include "engine/layers/attention_dropout.h"
#include "engine/layers/norm.h"
#include "engine/layers/position_table.h"
#include "engine/models/causal_lm.h"
#include "engine/module/stored_names.h"

namespace nxd {

// Between the layers of a GPT-2 activations are [batch, sequence, hidden], or with sequence
// parallelism slices of [sequence, batch, hidden] along the sequence.

// Causal self-attention of which each rank has whole heads; their queries, keys and values are one
// product.
class Gpt2Attention : public Module, public StoredNames {
 public:
  Gpt2Attention(const LayerContext& at, const Gpt2Config& config, int64_t layer);

  // Masks.
  std::vector<std::string> derived_tensors() const override { return {"bias", "masked_bias"}; }

 protected:
  // Inputs x and optionally a key mask.
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  int64_t head_dim_;
  double scale_;
  bool sequence_parallel_;
  std::shared_ptr<Module> projection_, output_;
  std::shared_ptr<AttentionDropout> weight_dropout_;
  std::shared_ptr<Dropout> output_dropout_;
};

// The sum of residuals and the last sublayer's output travel apart, so that each norm adds them as
// it reads them.
class Gpt2Block : public Module {
 public:
  Gpt2Block(const LayerContext& at, const Gpt2Config& config, int64_t layer);

  bool is_leaf() const override { return false; }

 protected:
  // Inputs x, key mask, residual; the last two may be left out. One output: the block's. Two: the
  // output of the last sublayer and the residual to add to it.
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  std::shared_ptr<LayerNorm> attention_norm_, mlp_norm_;
  std::shared_ptr<Module> attention_, mlp_;
};

// Embeddings, blocks and the last norm. Inputs ids [batch, sequence] and optionally a key mask.
class Gpt2Model : public Module {
 public:
  Gpt2Model(const LayerContext& at, const Gpt2Config& config);

  const std::shared_ptr<Module>& embedding() const { return embedding_; }
  bool is_leaf() const override { return false; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  bool sequence_parallel_;
  std::shared_ptr<Module> embedding_;
  std::shared_ptr<PositionTable> positions_;
  std::shared_ptr<Dropout> dropout_;
  std::vector<std::shared_ptr<Module>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
};

// A GPT-2 with its language-model head, under Hugging Face's parameter names.
class Gpt2LmHeadModel : public CausalLm {
 public:
  Gpt2LmHeadModel(const LayerContext& at, const Gpt2Config& config);

  const char* transformer_layer_class() const override { return "GPT2Block"; }
  std::string body_prefix() const override { return "transformer."; }
};

}  // namespace nxd
