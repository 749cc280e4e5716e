#pragma once

#include "core/optim/gradient_finish.h"
#include "engine/module/module.h"

namespace nxd {

// Completes the gradients of a tree's trainable parameters; see nxd_finish_grads. Gives the
// norm before clipping.
double finish_gradients(Module& root, const FinishOptions& options);

}  // namespace nxd
