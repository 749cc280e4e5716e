#include "engine/layers/head_projection.h"

#include <cmath>

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
  const int size = group.size();
  check_argument(heads % size == 0, "num_heads: ", heads, " heads do not divide by the ", size,
                 " ranks of group ", group.name());
  check_argument(sizes.kv_heads % size == 0 || size % sizes.kv_heads == 0,
                 "num_kv_heads: expected ", sizes.kv_heads, " key heads to divide by the ", size,
                 " ranks of group ", group.name(), ", or the ranks by them");
  return sizes;
}

// Neighbours share a head: rank r holds head r * kv_heads / size.
GroupRef key_sharing_group(Context& context, const GroupRef& group, int64_t kv_heads) {
  if (kv_heads >= group->size()) return nullptr;
  const auto shared = static_cast<int>(group->size() / kv_heads);
  const int first = group->rank() / shared * shared;
  std::vector<int> ranks;
  for (int i = 0; i < shared; ++i) {
    ranks.push_back(group->ranks()[static_cast<size_t>(first + i)]);
  }
  return context.shared_group(ranks, "kv");
}

HeadProjection::HeadProjection(const LayerContext& at, int64_t hidden, int64_t heads,
                               int64_t head_dim, bool has_bias, const GroupRef& gradient_group)
    : Module(at.context, "ColumnParallelLinear") {
  const GroupRef group = at.group();
  const double bound = 1.0 / std::sqrt(static_cast<double>(hidden));
  const Initializer init = at.init.resolve(Initializer::uniform(-bound, bound), hidden);
  const auto add = [&](const char* name, ShardSpec::Shape shape, const Initializer& start) {
    Parameter& p = make_parameter(*this, at, name,
                                  ShardSpec::heads(std::move(shape), 0, static_cast<int>(heads),
                                                   group->rank(), group->size()),
                                  start);
    if (gradient_group) {
      p.set_gradient_group(gradient_group);
      p.set_counts_in_norm(gradient_group->rank() == 0);
    }
  };
  add("weight", {heads * head_dim, hidden}, init);
  if (has_bias) {
    add("bias", {heads * head_dim}, at.init.is_default() ? init : Initializer::constant(0));
  }
}

Module::Tensors HeadProjection::forward(const Tensors&, size_t) {
  fail(NXD_ERROR_UNSUPPORTED, "a projection of queries, keys or values runs with the others only");
}

}  // namespace nxd
