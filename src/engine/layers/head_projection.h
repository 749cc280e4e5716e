#pragma once

#include "engine/layers/layer_support.h"

namespace nxd {

// Sizes of attention's heads. Key and value heads may be fewer than those of queries.
struct HeadSizes {
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;

  // kv_heads 0: heads; head_dim 0: hidden / heads. INVALID_ARGUMENT for sizes out of range, and
  // for such that the group's ranks can neither split nor share.
  static HeadSizes make(const ProcessGroup& group, int64_t hidden, int64_t heads, int64_t kv_heads,
                        int64_t head_dim);
  int64_t queries_per_key() const { return heads / kv_heads; }
};

// Ranks of the tensor-parallel group that hold the same key head, or none when no two do.
GroupRef key_sharing_group(Context& context, const GroupRef& group, int64_t kv_heads);

// A projection to heads, which only holds its parameters: that of queries, keys or values runs at
// once with the others.
class HeadProjection : public Module {
 public:
  // heads of head_dim features, of which this rank holds its share; gradients of shared ones are
  // summed over the ranks of gradient_group.
  HeadProjection(const LayerContext& at, int64_t hidden, int64_t heads, int64_t head_dim,
                 bool has_bias, const GroupRef& gradient_group);

  at::Tensor weight() const { return parameter_value("weight"); }
  at::Tensor bias() const { return parameter_value("bias"); }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
};

}  // namespace nxd
