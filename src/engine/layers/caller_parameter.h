#pragma once

#include "engine/layers/layer_context.h"

// Parameters and gradient hooks of the caller's own.
namespace nxd {

// Adds a parameter of the global shape, whose dimension `dim` is split over the tensor-parallel
// group; -1: it is replicated. By default it starts as zeros.
Parameter& add_caller_parameter(Module& module, const LayerContext& at, const std::string& name,
                                ShardSpec::Shape shape, int dim = -1);

// Sets a hook that calls back; destroy is called when the hook is gone, not when it is rejected.
void set_caller_hook(Parameter& parameter, nxd_grad_hook_fn hook, void* user_data,
                     nxd_destroy_fn destroy);

}  // namespace nxd
