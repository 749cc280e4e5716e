#pragma once

#include "engine/layers/layer_context.h"

namespace nxd {

// Adds a parameter of the caller's own. It has the global shape, and its dimension `dim` is split
// over the tensor-parallel group; -1: it is replicated. By default it starts as zeros.
Parameter& add_caller_parameter(Module& module, const LayerContext& at, const std::string& name,
                                ShardSpec::Shape shape, int dim = -1);

}  // namespace nxd
