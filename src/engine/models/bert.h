#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/bert_config.h"
#include "engine/layers/attention_dropout.h"
#include "engine/layers/norm.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/position_table.h"
#include "engine/models/language_head.h"
#include "engine/models/token_model.h"
#include "engine/module/stored_names.h"

namespace nxd {

// Between the layers of a BERT activations are [batch, sequence, hidden], or with sequence
// parallelism slices of [sequence, batch, hidden] along the sequence. Each norm reads the sum of a
// residual and what is added to it, and its output is the next residual.

// The sum of three embeddings, of words, positions and token types, normed. Inputs ids and
// optionally token types, both [batch, sequence].
class BertEmbeddings : public Module, public StoredNames {
 public:
  BertEmbeddings(const LayerContext& at, const BertConfig& config);

  const Module& words() const { return *words_; }
  std::vector<std::string> derived_tensors() const override { return {"position_ids"}; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  // Rows of the table of token types, by a product with one-hot rows, so that the gradient of its
  // few rows is summed over all tokens in f32.
  at::Tensor type_rows(const at::Tensor& types) const;

  GroupRef group_;
  bool sequence_parallel_;
  int64_t token_types_;
  std::shared_ptr<Module> words_, types_, dropout_;
  std::shared_ptr<PositionTable> positions_;
  std::shared_ptr<LayerNorm> norm_;
};

// Self-attention of all tokens with all, of which each rank has whole heads. Inputs x and
// optionally a key mask; the output is this rank's features.
class BertSelfAttention : public Module {
 public:
  BertSelfAttention(const LayerContext& at, const BertConfig& config);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  int64_t hidden_, head_dim_;
  bool sequence_parallel_;
  ParallelLinearPlan plan_;
  std::shared_ptr<ColumnParallelLinear> query_, key_, value_;
  std::shared_ptr<AttentionDropout> dropout_;
};

// The end of a sublayer: features split over the ranks become hidden states, which are added to the
// residual, and the sum is normed. Inputs features and residual.
class BertOutput : public Module {
 public:
  BertOutput(const LayerContext& at, const char* class_name, const BertConfig& config,
             int64_t features, ShardSpec::Range own);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  std::shared_ptr<Module> dense_, dropout_;
  std::shared_ptr<LayerNorm> norm_;
};

// Inputs x and optionally a key mask.
class BertLayer : public Module {
 public:
  BertLayer(const LayerContext& at, const BertConfig& config);

  bool is_leaf() const override { return false; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  std::shared_ptr<Module> attention_, attention_output_, intermediate_, output_;
};

// The first token's hidden state, through a dense layer and tanh: the same on all ranks.
class BertPooler : public Module {
 public:
  BertPooler(const LayerContext& at, const BertConfig& config);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  bool sequence_parallel_;
  std::shared_ptr<Module> dense_;
};

// Embeddings, layers and pooler. Inputs ids, and optionally a key mask and token types; outputs
// hidden states and what the pooler makes of them.
class BertModel : public Module {
 public:
  BertModel(const LayerContext& at, const BertConfig& config);

  const Module& words() const { return embeddings_->words(); }
  bool is_leaf() const override { return false; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  std::shared_ptr<BertEmbeddings> embeddings_;
  std::vector<std::shared_ptr<Module>> layers_;
  std::shared_ptr<Module> pooler_;
};

// A BERT with the heads of its pre-training, for masked tokens and for the next sentence, under
// Hugging Face's parameter names.
class BertForPreTraining : public TokenModel {
 public:
  BertForPreTraining(const LayerContext& at, const BertConfig& config);

  const char* transformer_layer_class() const override { return "BertLayer"; }
  std::string body_prefix() const override { return "bert."; }
  // The first three are those of all families.
  std::vector<std::string> input_names() const override {
    return {"input_ids", "labels", "attention_mask", "token_type_ids", "next_sentence_label"};
  }
  bool shifts_labels() const override { return false; }
  // Transformers 5 ties the decoder's bias to this one only where it ties the weights, too.
  std::vector<std::string> unused_names() const override {
    if (sizes().tied_embeddings) return {};
    return {"cls.predictions.bias"};
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  void check_inputs(const Tensors& inputs, size_t n_outputs) const;

  std::shared_ptr<Module> bert_, transform_, next_sentence_;
  std::shared_ptr<LanguageHead> decoder_;
};

}  // namespace nxd
