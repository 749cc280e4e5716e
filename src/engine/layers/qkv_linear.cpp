#include "engine/layers/qkv_linear.h"

#include <ATen/ATen.h>

#include <cmath>

#include "engine/functional/split_qkv.h"
#include "engine/ops/collectives.h"

namespace nxd {

QkvLinear::QkvLinear(const LayerContext& at, int64_t hidden, int64_t num_heads,
                     const QkvOptions& options)
    : Module(at.context, "QKVLinear"),
      group_(at.group()),
      sizes_(HeadSizes::make(*group_, hidden, num_heads, options.kv_heads, options.head_dim)),
      fusion_(options.fusion) {
  plan_.context = context();
  plan_.group = group_;
  plan_.input = at.sequence_parallel ? ParallelLinearPlan::Input::kGatherSequence
                                     : ParallelLinearPlan::Input::kCopy;
  switch (fusion_) {
    case NXD_QKV_SEPARATE: make_separate(at, options.bias); break;
    case NXD_QKV_BY_PART:
    case NXD_QKV_BY_HEAD: make_fused(at, options.bias); break;
    default:
      fail(NXD_ERROR_INVALID_ARGUMENT, "fusion: expected NXD_QKV_SEPARATE, _BY_PART or _BY_HEAD, ",
           "got ", fusion_);
  }
}

void QkvLinear::make_separate(const LayerContext& at, bool has_bias) {
  const GroupRef sharing = key_sharing_group(*context(), group_, sizes_);
  q_ = add_layer<HeadProjection>(*this, at, "q_proj", sizes_, sizes_.heads, sizes_.own, has_bias,
                                 nullptr);
  const auto add_keys = [&](const char* name) {
    return add_layer<HeadProjection>(*this, at, name, sizes_, sizes_.kv_heads, sizes_.own_keys,
                                     has_bias, sharing);
  };
  k_ = add_keys("k_proj");
  v_ = add_keys("v_proj");
}

void QkvLinear::make_fused(const LayerContext& at, bool has_bias) {
  // Ranks would share a part of the weight, and the sum over them is one of whole gradients.
  check_argument(sizes_.kv_heads >= group_->size(), "fusion: ", sizes_.kv_heads,
                 " key heads for the ", group_->size(), " ranks of group ", group_->name(),
                 " need NXD_QKV_SEPARATE, since ranks share them");
  const double bound = 1.0 / std::sqrt(static_cast<double>(sizes_.hidden));
  const Initializer init = at.init.resolve(Initializer::uniform(-bound, bound), sizes_.hidden);
  const int64_t features = (sizes_.heads + 2 * sizes_.kv_heads) * sizes_.head_dim;
  make_parameter(*this, at, "weight", fused_shard({features, sizes_.hidden}), init);
  if (!has_bias) return;
  make_parameter(*this, at, "bias", fused_shard({features}),
                 at.init.is_default() ? init : Initializer::constant(0));
}

ShardSpec QkvLinear::fused_shard(ShardSpec::Shape shape) const {
  const int64_t d = sizes_.head_dim, features = shape[0];
  std::vector<ShardSpec::Range> ranges;
  if (fusion_ == NXD_QKV_BY_HEAD) {
    const int64_t of_key = (sizes_.queries_per_key() + 2) * d;
    ranges.push_back({sizes_.own_keys.begin * of_key, sizes_.own_keys.end * of_key});
  } else {
    int64_t begin = 0;
    const auto add = [&](int64_t heads, HeadSizes::Range own) {
      ranges.push_back({begin + own.begin * d, begin + own.end * d});
      begin += heads * d;
    };
    add(sizes_.heads, sizes_.own);
    add(sizes_.kv_heads, sizes_.own_keys);
    add(sizes_.kv_heads, sizes_.own_keys);
  }
  return ShardSpec::ranges(std::move(shape), 0, ranges, features);
}

Module::Tensors QkvLinear::separate_heads(const at::Tensor& x) const {
  for (const auto& part : {q_, k_, v_}) part->check_parameters({x});
  check_features(*group_, class_name(), x, sizes_.hidden, q_->weight());
  Tensors parts = parallel_linears(plan_, x, {q_->weight(), k_->weight(), v_->weight()},
                                   {q_->bias(), k_->bias(), v_->bias()});
  for (at::Tensor& part : parts) {
    part = part.unflatten(-1, {part.size(-1) / sizes_.head_dim, sizes_.head_dim});
  }
  return parts;
}

Module::Tensors QkvLinear::fused_heads(const at::Tensor& x) const {
  const at::Tensor weight = parameter_value("weight");
  check_features(*group_, class_name(), x, sizes_.hidden, weight);
  const at::Tensor y = parallel_linear(plan_, x, weight, parameter_value("bias"));
  const bool by_head = fusion_ == NXD_QKV_BY_HEAD;
  if (sizes_.queries_per_key() == 1) {
    const auto [q, k, v] =
        split_qkv(y, sizes_.head_dim, by_head ? QkvOrder::kByHead : QkvOrder::kByPart);
    return {q, k, v};
  }
  const int64_t d = sizes_.head_dim, each = sizes_.queries_per_key();
  const int64_t kv = sizes_.own_keys.end - sizes_.own_keys.begin;
  if (by_head) {
    const at::Tensor heads = y.unflatten(-1, {kv, each + 2, d});
    return {heads.narrow(-2, 0, each).flatten(-3, -2), heads.select(-2, each),
            heads.select(-2, each + 1)};
  }
  const at::Tensor heads = y.unflatten(-1, {kv * (each + 2), d});
  return {heads.narrow(-2, 0, kv * each), heads.narrow(-2, kv * each, kv),
          heads.narrow(-2, kv * (each + 1), kv)};
}

Module::Tensors QkvLinear::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 3, group_.get());
  Tensors outputs = q_ ? separate_heads(inputs[0]) : fused_heads(inputs[0]);
  outputs.resize(n_outputs);
  return outputs;
}

}  // namespace nxd
