#include "engine/layers/layer_support.h"

#include <ATen/ATen.h>

#include "core/base/round_up.h"
#include "core/layout/nearly_equal.h"
#include "core/world/trained_axes.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {

GroupRef tensor_group(const Context& context) {
  const auto layout = context.parallel();
  check_trained_axes(*layout, "layers");
  return layout->group(NXD_AXIS_TENSOR);
}

ShardSpec vocabulary_shard(ShardSpec::Shape shape, const ProcessGroup& group) {
  const int64_t size = group.size(), padded = round_up(shape[0], size);
  if (padded == shape[0]) return ShardSpec::split(std::move(shape), 0, group.rank(), group.size());
  return ShardSpec::padded(std::move(shape), 0, padded, group.rank(), group.size());
}

ShardSpec::Range own_features(const ProcessGroup& group, int64_t features) {
  check_argument(features >= group.size(), "expected at least a feature for each of the ",
                 group.size(), " ranks of group ", group.name(), ", got ", features);
  return nearly_equal(features, group.rank(), group.size());
}

void mark_replicated(Parameter& parameter, const GroupRef& group, bool sequence_parallel) {
  if (sequence_parallel && group->size() > 1) parameter.set_gradient_group(group);
}

void check_features(ProcessGroup& group, const std::string& layer, const at::Tensor& x,
                    int64_t features, const at::Tensor& parameter) {
  const at::ScalarType dtype = parameter.scalar_type();
  const bool fits = x.dim() >= 1 && x.size(-1) == features;
  const std::string given = fits      ? ""
                            : x.dim() ? text("shape ", x.sizes())
                                      : std::string("a scalar");
  check_with_group(group, fits, layer.c_str(), "input: expected ", features,
                   " features in the last dimension, got ", given);
  check_with_group(group, takes_input(dtype, x.scalar_type()), layer.c_str(),
                   "input: expected dtype ", dtype_text(dtype), ", got ",
                   dtype_text(x.scalar_type()));
  check_device(group, layer, x, parameter);
}

void check_device(ProcessGroup& group, const std::string& layer, const at::Tensor& x,
                  const at::Tensor& parameter) {
  check_with_group(group, on_same_device(x, parameter), layer.c_str(), "input: expected device ",
                   parameter.device(), ", where the parameters are, got ", x.device());
}

void check_ids_below(const GroupRef& group, const char* layer, const char* expected,
                     const at::Tensor& ids, int64_t limit) {
  if (ids.numel() == 0) return;
  check_values(group, layer, "nxd::check_ids", ids, [=](const at::Tensor& values) -> std::string {
    const auto [low, high] = at::aminmax(values);
    const int64_t least = low.item<int64_t>(), most = high.item<int64_t>();
    if (least >= 0 && most < limit) return "";
    return text(expected, " 0 to ", limit - 1, ", got ", least < 0 ? least : most);
  });
}

}  // namespace nxd
