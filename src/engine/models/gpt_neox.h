#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/gpt_neox_config.h"
#include "engine/layers/attention_dropout.h"
#include "engine/layers/norm.h"
#include "engine/layers/rotary_embedding.h"
#include "engine/models/causal_lm.h"
#include "engine/module/stored_names.h"

namespace nxd {

// Between the layers of a GPT-NeoX activations are [batch, sequence, hidden], or with sequence
// parallelism slices of [sequence, batch, hidden] along the sequence.

// Causal self-attention of which each rank has whole heads. One product gives each head's query,
// key and value side by side; the leading features of queries and keys turn with their position.
class GptNeoxAttention : public Module, public StoredNames {
 public:
  GptNeoxAttention(const LayerContext& at, const GptNeoxConfig& config);

  // Masks.
  std::vector<std::string> derived_tensors() const override { return {"bias", "masked_bias"}; }

 protected:
  // Inputs x and optionally a key mask.
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  int64_t head_dim_;
  bool sequence_parallel_;
  RotaryTables rotary_;
  std::shared_ptr<Module> projection_, output_;
  std::shared_ptr<AttentionDropout> dropout_;
};

// The sum of residuals and what the sublayers add to it travel apart, so that each norm adds them
// as it reads them.
class GptNeoxLayer : public Module {
 public:
  GptNeoxLayer(const LayerContext& at, const GptNeoxConfig& config);

  bool is_leaf() const override { return false; }

 protected:
  // Inputs x, key mask, residual; the last two may be left out. One output: the layer's. Two: what
  // its last sublayers add, and the residual to add it to.
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  bool parallel_residual_;
  std::shared_ptr<LayerNorm> attention_norm_, mlp_norm_;
  std::shared_ptr<Module> attention_, attention_dropout_, mlp_, mlp_dropout_;
};

// Embedding, layers and the last norm. Inputs ids [batch, sequence] and optionally a key mask.
class GptNeoxModel : public Module {
 public:
  GptNeoxModel(const LayerContext& at, const GptNeoxConfig& config);

  const std::shared_ptr<Module>& embedding() const { return embedding_; }
  bool is_leaf() const override { return false; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  bool sequence_parallel_;
  std::shared_ptr<Module> embedding_, dropout_;
  std::vector<std::shared_ptr<Module>> layers_;
  std::shared_ptr<LayerNorm> norm_;
};

// A GPT-NeoX with its language-model head, under Hugging Face's parameter names.
class GptNeoxForCausalLM : public CausalLm, public StoredNames {
 public:
  GptNeoxForCausalLM(const LayerContext& at, const GptNeoxConfig& config);

  const char* transformer_layer_class() const override { return "GPTNeoXLayer"; }
  std::string body_prefix() const override { return "gpt_neox."; }
  // As transformers 5 calls it inside, and in files too with save_original_format off.
  std::vector<std::pair<std::string, std::string>> other_names() const override {
    return {{"embed_out.weight", "lm_head.weight"}};
  }
};

}  // namespace nxd
