#pragma once

#include "engine/layers/layer_support.h"

namespace nxd {

// Embedding table split over the tensor-parallel ranks, by rows (the vocabulary) or by columns.
class ParallelEmbedding : public Module {
 public:
  // pad_rows: a vocabulary that does not divide by the ranks is split as if zero rows followed it.
  ParallelEmbedding(std::shared_ptr<Context> context, int64_t num_embeddings, int64_t embedding_dim,
                    const nxd_embedding_options_t& options, bool pad_rows = false);

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
