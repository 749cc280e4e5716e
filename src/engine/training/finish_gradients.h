#pragma once

#include "engine/nn/module.h"

namespace nxd {

// Makes the gradients that a backward pass left complete, in a fixed order across ranks: sums over
// each parameter's gradient group, the data-parallel reduction, scale, norm, clip. Gives the norm
// before clipping. See nxd_finish_gradients. A parameter that has a gradient on some ranks only
// counts as zeros on the others; one that has none anywhere is left alone.
double finish_gradients(Module& root, const nxd_finish_options_t& options);

}  // namespace nxd
