#pragma once

#include "core/base/error.h"
#include "nxd.h"

namespace nxd {

// Checks what the options of all losses have; INVALID_ARGUMENT for values out of range.
template <class Options>
void check_loss_options(const Options& options) {
  check_argument(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                 "label_smoothing: expected 0 to 1, got ", options.label_smoothing);
  check_argument(
      options.smoothing == NXD_SMOOTHING_TORCH || options.smoothing == NXD_SMOOTHING_MEGATRON,
      "smoothing: expected an NXD_SMOOTHING_*, got ", options.smoothing);
  check_argument(options.reduction >= NXD_REDUCTION_MEAN && options.reduction <= NXD_REDUCTION_NONE,
                 "reduction: expected an NXD_REDUCTION_*, got ", options.reduction);
}

}  // namespace nxd
