#include "engine/layers/head_projection.h"

#include <cmath>

#include "core/base/round_up.h"
#include "core/layout/nearly_equal.h"
#include "core/model/model_sizes.h"

namespace nxd {

HeadSizes HeadSizes::make(const ProcessGroup& group, int64_t hidden, int64_t heads,
                          int64_t kv_heads, int64_t head_dim) {
  check_argument(hidden > 0, "hidden_size: expected a positive number, got ", hidden);
  check_argument(heads > 0, "num_heads: expected a positive number, got ", heads);
  HeadSizes sizes{hidden, heads, kv_heads == 0 ? heads : kv_heads, head_dim};
  check_argument(sizes.kv_heads > 0 && heads % sizes.kv_heads == 0,
                 "num_kv_heads: expected a divisor of ", heads, " heads, got ", sizes.kv_heads);
  check_argument(head_dim > 0 || (head_dim == 0 && hidden % heads == 0),
                 "head_dim: expected a positive number, or 0 and a hidden size (", hidden,
                 ") that divides by ", heads, " heads, got ", head_dim);
  if (head_dim == 0) sizes.head_dim = hidden / heads;
  int64_t features = 0;  // a fused weight has those of queries, keys and values
  check_argument(!__builtin_mul_overflow(sizes.kv_heads, 2, &features) &&
                     !__builtin_add_overflow(features, heads, &features) &&
                     !__builtin_mul_overflow(features, sizes.head_dim, &features),
                 "num_heads, head_dim: ", heads, " heads of ", sizes.head_dim, " features, with ",
                 sizes.kv_heads, " key heads, are beyond INT64_MAX");
  const int size = group.size(), rank = group.rank();
  const int64_t fewest = fewest_heads(sizes.kv_heads, size);
  check_argument(heads >= fewest, "num_heads: expected at least ", fewest, " with ", sizes.kv_heads,
                 " key heads and ", size, " ranks of group ", group.name(), ", got ", heads);
  const int64_t each = sizes.queries_per_key();
  if (sizes.kv_heads >= size) {
    sizes.own_keys = nearly_equal(sizes.kv_heads, rank, size);
    sizes.own = {sizes.own_keys.begin * each, sizes.own_keys.end * each};
    sizes.sharing = {rank, rank + 1};
    return sizes;
  }
  const int64_t key = rank * sizes.kv_heads / size;
  const auto first_rank = [&](int64_t of) {
    return round_up(of * size, sizes.kv_heads) / sizes.kv_heads;
  };
  sizes.own_keys = {key, key + 1};
  sizes.sharing = {first_rank(key), first_rank(key + 1)};
  const auto place = static_cast<int>(rank - sizes.sharing.begin);
  const auto count = static_cast<int>(sizes.sharing.end - sizes.sharing.begin);
  const Range part = nearly_equal(each, place, count);
  sizes.own = {key * each + part.begin, key * each + part.end};
  return sizes;
}

GroupRef key_sharing_group(Context& context, const GroupRef& group, const HeadSizes& sizes) {
  const auto [first, end] = sizes.sharing;
  if (end - first < 2) return nullptr;
  const auto ranks = group->ranks().begin();
  return context.shared_group({ranks + first, ranks + end}, "kv");
}

HeadProjection::HeadProjection(const LayerContext& at, const HeadSizes& sizes, int64_t heads,
                               HeadSizes::Range own, bool has_bias, const GroupRef& gradient_group)
    : Module(at.context, "ColumnParallelLinear") {
  const double bound = 1.0 / std::sqrt(static_cast<double>(sizes.hidden));
  const Initializer init = at.init.resolve(Initializer::uniform(-bound, bound), sizes.hidden);
  const int64_t features = heads * sizes.head_dim;
  const auto add = [&](const char* name, ShardSpec::Shape shape, const Initializer& start) {
    Parameter& p = make_parameter(
        *this, at, name, ShardSpec::ranges(std::move(shape), 0, {sizes.features(own)}, features),
        start);
    if (gradient_group) {
      p.set_gradient_group(gradient_group);
      p.set_counts_in_norm(gradient_group->rank() == 0);
    }
  };
  add("weight", {features, sizes.hidden}, init);
  if (has_bias) add("bias", {features}, at.init.is_default() ? init : Initializer::constant(0));
}

Module::Tensors HeadProjection::forward(const Tensors&, size_t) {
  fail(NXD_ERROR_UNSUPPORTED, "a projection of queries, keys or values runs with the others only");
}

}  // namespace nxd
