#pragma once

#include "nxd/base.h"
#include "nxd/tensor_parallel.h"

namespace nxd {

// How the loss of a token is formed of its logits, and that of a call of all tokens'.
struct LossFormula {
  double label_smoothing = 0;
  nxd_smoothing_t smoothing = NXD_SMOOTHING_TORCH;
  nxd_reduction_t reduction = NXD_REDUCTION_MEAN;
  int64_t ignore_index = -100;
  int64_t vocab_size = 0;  // ids there are, where columns pad it; 0: the columns of all ranks

  // The weight of the uniform part, by torch's formula, over a vocabulary of this size.
  double uniform_weight(int64_t vocabulary) const {
    if (smoothing != NXD_SMOOTHING_MEGATRON || vocabulary <= 1) return label_smoothing;
    const auto v = static_cast<double>(vocabulary);
    return label_smoothing * v / (v - 1);
  }
};

}  // namespace nxd
