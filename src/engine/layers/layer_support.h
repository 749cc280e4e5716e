#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "engine/functional/mappings.h"
#include "engine/module/module.h"

// What the constructors and forwards of built-in layers share.
namespace nxd {

// The context's tensor-parallel group; INVALID_STATE before nxd_init_model_parallel.
GroupRef tensor_group(const Context& context);

// The value of a toggle, INVALID_ARGUMENT for none of its values.
bool toggle(nxd_toggle_t value, bool default_value, const char* name);

// Options of an initial distribution, with the layer's own default; fan_in for KAIMING_UNIFORM.
Initializer initializer(nxd_init_t kind, double a, double b, const Initializer& default_value,
                        int64_t fan_in);

// A rank's rows of a table whose rows are the vocabulary, padded to a multiple of the ranks.
ShardSpec vocabulary_shard(ShardSpec::Shape shape, const ProcessGroup& group);

// Dtype and device of a layer's parameters: F32, F64 or BF16 on the CPU or the meta device.
struct ParameterPlace {
  at::ScalarType dtype;
  bool meta;
};
ParameterPlace parameter_place(nxd_dtype_t dtype, nxd_device_t device);

// Makes a parameter, draws its initial value with the context's seed, and adds it.
Parameter& make_parameter(Module& owner, const std::string& path, const std::string& name,
                          ShardSpec shard, const Initializer& initializer, ParameterPlace place);

// Marks a replicated parameter: one rank of the group counts it in norms, and with sequence
// parallelism its gradient is summed over the group.
void mark_replicated(Parameter& parameter, const GroupRef& group, bool sequence_parallel);

// Checks an input's last dimension, and its dtype by that of the parameters, on all ranks of the
// group alike.
void check_features(ProcessGroup& group, const std::string& layer, const at::Tensor& x,
                    int64_t features, at::ScalarType dtype);

}  // namespace nxd
