#pragma once

#include "engine/module/module.h"

// Parameters and gradient hooks of the caller's own.
namespace nxd {

// Adds a parameter of the global shape, sharded over the tensor-parallel group as the options say.
Parameter& add_caller_parameter(Module& module, const std::string& name, ShardSpec::Shape shape,
                                const nxd_parameter_options_t& options);

// Sets a hook that calls back; destroy is called when the hook is gone, not when it is refused.
void set_caller_hook(Parameter& parameter, nxd_grad_hook_fn hook, void* user_data,
                     nxd_destroy_fn destroy);

}  // namespace nxd
