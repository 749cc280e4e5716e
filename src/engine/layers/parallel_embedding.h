#pragma once

#include <optional>

#include "engine/layers/layer_support.h"

namespace nxd {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx{};  // a row that starts as zeros and gets no gradient
  bool shard_columns = false;            // embedding_dim is split instead of the vocabulary
  int64_t sequence_dim = 0;              // of the output, with sequence parallelism
  bool pad_rows = false;  // a vocabulary that does not divide is split as if zero rows followed it
};

// Embedding table split over the tensor-parallel ranks, by rows (the vocabulary) or by columns.
class ParallelEmbedding : public Module {
 public:
  ParallelEmbedding(const LayerContext& at, int64_t num_embeddings, int64_t embedding_dim,
                    const EmbeddingOptions& options);

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  GroupRef group_;
  int64_t num_embeddings_, embedding_dim_;
  int64_t padding_idx_;  // -1: none
  bool shard_columns_;
  bool sequence_parallel_;
  int64_t sequence_dim_;
};

}  // namespace nxd
