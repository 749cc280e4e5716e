#pragma once

#include <torch/csrc/jit/api/module.h>

namespace nxd {

// Logs that torch.autocast in a module's code, or in that of a module below, has no effect here: a
// pass of libtorch's executor makes the casts, and the interpreter alone makes none.
void warn_of_casts(const torch::jit::Module& script);

}  // namespace nxd
