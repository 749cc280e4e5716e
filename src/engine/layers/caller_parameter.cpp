#include "engine/layers/caller_parameter.h"

#include <algorithm>

#include "engine/layers/layer_support.h"

namespace nxd {

Parameter& add_caller_parameter(Module& module, const LayerContext& at, const std::string& name,
                                ShardSpec::Shape shape, int dim) {
  for (const int64_t size : shape) {
    check_argument(size >= 0, "global_shape: expected sizes of at least 0, got ",
                   shape_text(shape));
  }
  check_argument(dim < 0 || !at.sequence_parallel,
                 "sequence_parallel: only for a replicated parameter");
  // As that of a shard over buffers (nxd_shard_initialize). Sizes that overflow fail further down.
  double fan_in = 1;
  for (size_t i = 1; i < shape.size(); ++i) fan_in *= static_cast<double>(shape[i]);
  const Initializer init = at.init.resolve(Initializer::constant(0),
                                           static_cast<int64_t>(std::clamp(fan_in, 1.0, 0x1p62)));
  // Outside of model parallelism a replicated parameter needs no group.
  const bool grouped = module.context()->model_parallel_is_initialized();
  const GroupRef group = grouped || dim >= 0 || at.sequence_parallel ? at.group() : nullptr;
  ShardSpec shard = dim >= 0 ? ShardSpec::split(std::move(shape), dim, group->rank(), group->size())
                             : ShardSpec::replicated(std::move(shape));
  Parameter& parameter = make_parameter(module, at, name, std::move(shard), init);
  if (dim < 0 && group) mark_replicated(parameter, group, at.sequence_parallel);
  return parameter;
}

}  // namespace nxd
