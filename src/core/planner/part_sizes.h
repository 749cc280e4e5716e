#pragma once

#include "core/base/round_up.h"
#include "core/model/model_sizes.h"
#include "nxd.h"

namespace nxd {

constexpr double kF32Bytes = 4;

inline int64_t bytes_of(nxd_dtype_t dtype) { return dtype == NXD_DTYPE_BF16 ? 2 : 4; }

// Sizes of a microbatch and of the matrices on one rank, from which the time and the memory of a
// part of the model follow.
class PartSizes {
 protected:
  PartSizes(const ModelSizes& model, const nxd_plan_layout_t& layout)
      : model_(model),
        tensor_(layout.tensor_parallel_size),
        recompute_(layout.recompute != 0),
        split_sequence_(layout.sequence_parallel != 0),
        element_(number(bytes_of(layout.dtype))),
        sequence_(number(layout.sequence_length)),
        sequences_(number(layout.microbatch_size)),
        tokens_(sequences_ *
                number(round_up<int64_t>(layout.sequence_length, split_sequence_ ? tensor_ : 1))),
        local_(split_sequence_ ? tokens_ / tensor_ : tokens_),
        hidden_(number(model.hidden)),
        query_(number(model.query_width(tensor_))),
        key_(number(model.key_width(tensor_))),
        mlp_(number(model.mlp_width(tensor_))),
        table_(number(model.head_elements(tensor_))),
        vocabulary_(table_ / hidden_) {}

  bool is_bert() const { return model_.token_types > 0; }
  bool is_narrow() const { return element_ < kF32Bytes; }

  const ModelSizes& model_;
  int tensor_;
  bool recompute_, split_sequence_;
  double element_;    // bytes
  double sequence_;   // tokens of one
  double sequences_;  // of a microbatch
  double tokens_;     // of it, with the places behind sequences that ranks do not divide
  double local_;      // tokens of this rank, where activations are not split by features
  double hidden_, query_, key_, mlp_;
  double table_;       // elements of the embedding, and of the head
  double vocabulary_;  // rows of them
};

}  // namespace nxd
