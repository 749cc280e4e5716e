#include "engine/layers/layer_support.h"

#include <cmath>

#include "core/base/dtype.h"
#include "core/base/round_up.h"
#include "core/world/trained_axes.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {

GroupRef tensor_group(const Context& context) {
  check_trained_axes(context, "layers");
  return context.parallel().group(NXD_AXIS_TENSOR);
}

bool toggle(nxd_toggle_t value, bool default_value, const char* name) {
  switch (value) {
    case NXD_TOGGLE_DEFAULT: return default_value;
    case NXD_TOGGLE_ON: return true;
    case NXD_TOGGLE_OFF: return false;
    default: fail(NXD_ERROR_INVALID_ARGUMENT, name, ": expected an NXD_TOGGLE_*, got ", value);
  }
}

Initializer initializer(nxd_init_t kind, double a, double b, const Initializer& default_value,
                        int64_t fan_in) {
  check_argument(std::isfinite(a) && std::isfinite(b), "init_a, init_b: expected finite numbers");
  switch (kind) {
    case NXD_INIT_DEFAULT: return default_value;
    case NXD_INIT_CONSTANT: return Initializer::constant(a);
    case NXD_INIT_NORMAL:
      check_argument(b >= 0, "init_b: expected a standard deviation of at least 0, got ", b);
      return Initializer::normal(a, b);
    case NXD_INIT_UNIFORM:
      check_argument(a <= b, "init_a, init_b: expected a <= b, got ", a, " and ", b);
      return Initializer::uniform(a, b);
    case NXD_INIT_KAIMING_UNIFORM: {
      const double bound = std::sqrt(6.0 / ((1.0 + a * a) * static_cast<double>(fan_in)));
      return Initializer::uniform(-bound, bound);
    }
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "init: expected an NXD_INIT_*, got ", kind);
  }
}

ShardSpec vocabulary_shard(ShardSpec::Shape shape, const ProcessGroup& group) {
  const int64_t size = group.size(), padded = round_up(shape[0], size);
  if (padded == shape[0]) return ShardSpec::split(std::move(shape), 0, group.rank(), group.size());
  return ShardSpec::padded(std::move(shape), 0, padded, group.rank(), group.size());
}

ParameterPlace parameter_place(nxd_dtype_t dtype, nxd_device_t device) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype == NXD_DTYPE_BF16,
                 "dtype: expected F32, F64 or BF16 for parameters, got ", dtype_name(dtype));
  check_argument(device >= NXD_DEVICE_CPU && device <= NXD_DEVICE_META,
                 "device: expected an NXD_DEVICE_*, got ", device);
  if (device == NXD_DEVICE_NEURON) {
    fail(NXD_ERROR_UNSUPPORTED, "device: layers run on the CPU only, got NXD_DEVICE_NEURON");
  }
  return {to_scalar_type(dtype), device == NXD_DEVICE_META};
}

Parameter& make_parameter(Module& owner, const std::string& path, const std::string& name,
                          ShardSpec shard, const Initializer& initializer, ParameterPlace place) {
  try {
    auto parameter = std::make_shared<Parameter>(join_path(path, name), shard, initializer,
                                                 place.dtype, place.meta);
    parameter->initialize(owner.context()->seed(), parameter->canonical_name());
    return owner.add_parameter(name, std::move(parameter));
  } catch (const Error& error) {
    if (error.status() != NXD_ERROR_OUT_OF_MEMORY) throw;
    fail(NXD_ERROR_OUT_OF_MEMORY, "parameter ", join_path(path, name), " of shape ",
         shape_text(shard.shape()), ", here ", shape_text(shard.local_shape()), ": ", error.what());
  }
}

void mark_replicated(Parameter& parameter, const GroupRef& group, bool sequence_parallel) {
  parameter.set_counts_in_norm(group->rank() == 0);
  if (sequence_parallel && group->size() > 1) parameter.set_gradient_group(group);
}

void check_features(ProcessGroup& group, const std::string& layer, const at::Tensor& x,
                    int64_t features, at::ScalarType dtype) {
  check_with_group(group, x.dim() >= 1 && x.size(-1) == features, layer.c_str(),
                   text("input: expected ", features, " features in the last dimension, got ",
                        x.dim() ? text("shape ", x.sizes()) : std::string("a scalar")));
  check_with_group(group, takes_input(dtype, x.scalar_type()), layer.c_str(),
                   text("input: expected dtype ", c10::toString(dtype), ", got ",
                        c10::toString(x.scalar_type())));
}

}  // namespace nxd
