#pragma once

#include "capi/options.h"
#include "core/base/exact_number.h"
#include "core/tensor_parallel/loss_formula.h"

namespace nxd {

// Reads what the options of all losses have; INVALID_ARGUMENT for values out of range.
template <class Options>
void read_loss_formula(const Options& options, LossFormula& formula) {
  check_argument(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                 "label_smoothing: expected 0 to 1, got ", exact_number(options.label_smoothing));
  check_argument(
      options.smoothing == NXD_SMOOTHING_TORCH || options.smoothing == NXD_SMOOTHING_MEGATRON,
      "smoothing: expected an NXD_SMOOTHING_*, got ", options.smoothing);
  check_argument(options.reduction >= NXD_REDUCTION_MEAN && options.reduction <= NXD_REDUCTION_NONE,
                 "reduction: expected an NXD_REDUCTION_*, got ", options.reduction);
  formula.label_smoothing = options.label_smoothing;
  formula.smoothing = options.smoothing;
  formula.reduction = options.reduction;
  if (flag(options.has_ignore_index, "has_ignore_index")) {
    formula.ignore_index = options.ignore_index;
  }
}

}  // namespace nxd
