#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/module/module.h"

// Activations that are computed again in the backward pass instead of being kept (Chen et al.
// 2016).
namespace nxd {

using ModuleForward = std::function<Module::Tensors(const Module::Tensors& inputs)>;

// Runs a module's forward without recording and keeps its inputs alone. The backward pass runs it
// again with recording, and differentiates it. It restores the step and microbatch of the context,
// the automatic casts, the call path, the training flags and ATen's generator of the first call. A
// gradient of a parameter goes the way it would have gone, in the same order, so that losses and
// gradients have the same bits; hooks hear of it once. The forward may use its inputs and the
// tree's parameters only, and may not write to its inputs: INVALID_STATE.
Module::Tensors call_recomputed(Module& module, const Module::Tensors& inputs,
                                const ModuleForward& forward);

// Turns recomputation on or off for modules of the tree, by their paths or classes. All names are
// looked up first: INVALID_ARGUMENT with near names for one that is neither.
void set_recomputation(Module& root, const std::vector<std::string>& names, bool on);

}  // namespace nxd
