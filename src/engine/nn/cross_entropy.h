#pragma once

#include <ATen/core/Tensor.h>

#include "engine/nn/mappings.h"
#include "engine/nn/module.h"

namespace nxd {

// Options of the loss with their defaults resolved.
struct CrossEntropyOptions {
  double label_smoothing = 0;
  nxd_smoothing_t smoothing = NXD_SMOOTHING_TORCH;
  nxd_reduction_t reduction = NXD_REDUCTION_MEAN;
  int64_t ignore_index = -100;
  // The logits' storage may hold their gradient: for a caller that owns them and reads them no
  // more.
  bool overwrite_logits = false;
};

// INVALID_ARGUMENT for values out of range.
CrossEntropyOptions resolve(const nxd_cross_entropy_options_t& options);

// Cross entropy on logits [..., vocabulary / ranks] and labels [...]; see
// nxd_parallel_cross_entropy.
at::Tensor parallel_cross_entropy(const Context& context, const GroupRef& group,
                                  const at::Tensor& logits, const at::Tensor& labels,
                                  const CrossEntropyOptions& options);

}  // namespace nxd
