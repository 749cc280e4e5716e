#pragma once

#include <memory>
#include <vector>

#include "core/model/llama_config.h"
#include "engine/layers/norm.h"
#include "engine/models/causal_lm.h"

namespace nxd {

// Between the layers of a Llama activations are [batch, sequence, hidden], or with sequence
// parallelism slices of [sequence, batch, hidden] along the sequence.

// One decoder layer. The sum of residuals and the last sublayer's output travel apart, so that each
// norm adds them as it reads them.
class LlamaDecoderLayer : public Module {
 public:
  // index: of the layer among all of the model.
  LlamaDecoderLayer(const LayerContext& at, const LlamaConfig& config, int64_t index);

  bool is_leaf() const override { return false; }

 protected:
  // Inputs x, key mask, residual; the last two may be left out. One output: the layer's. Two: the
  // output of the last sublayer and the residual to add to it.
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  std::shared_ptr<RmsNorm> input_norm_, post_attention_norm_;
  std::shared_ptr<Module> attention_, mlp_;
};

// Embedding, layers and the last norm. Inputs ids [batch, sequence] and optionally a key mask.
class LlamaModel : public Module {
 public:
  LlamaModel(const LayerContext& at, const LlamaConfig& config);

  const std::shared_ptr<Module>& embedding() const { return embedding_; }
  bool is_leaf() const override { return false; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  bool sequence_parallel_;
  std::shared_ptr<Module> embedding_;
  std::vector<std::shared_ptr<Module>> layers_;
  std::shared_ptr<RmsNorm> norm_;
};

// A Llama, Mistral, Qwen2 or Qwen3 with its language-model head, under Hugging Face's parameter
// names.
class LlamaForCausalLM : public CausalLm {
 public:
  LlamaForCausalLM(const LayerContext& at, const LlamaConfig& config);

  const char* transformer_layer_class() const override { return "LlamaDecoderLayer"; }
  std::string body_prefix() const override { return "model."; }
};

}  // namespace nxd
