#pragma once

#include "engine/layers/layer_support.h"

namespace nxd {

// Sizes of attention's heads, and a rank's share of them. Key and value heads may be fewer than
// those of queries.
//
// Ranks have nearly equal numbers of key heads and the queries of these; or, where there are fewer
// key heads than ranks, each has one, and ranks with the same one have nearly equal numbers of its
// queries. So 6 heads with 3 key heads are 1, 1, 2 and 2 heads of four ranks, of which the first
// two have one key head in common.
struct HeadSizes {
  using Range = ShardSpec::Range;

  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  Range own{0, 0}, own_keys{0, 0};  // this rank's heads
  Range sharing{0, 0};              // ranks of the group with the same key heads, this one too

  // kv_heads 0: heads; head_dim 0: hidden / heads. INVALID_ARGUMENT for sizes out of range, and
  // where a rank would have no head.
  static HeadSizes make(const ProcessGroup& group, int64_t hidden, int64_t heads, int64_t kv_heads,
                        int64_t head_dim);
  int64_t queries_per_key() const { return heads / kv_heads; }
  // Features of heads.
  Range features(Range of) const { return {of.begin * head_dim, of.end * head_dim}; }
};

// Ranks of the tensor-parallel group that hold the same key heads, or none when no two do.
GroupRef key_sharing_group(Context& context, const GroupRef& group, const HeadSizes& sizes);

// A projection to heads, which only holds its parameters: that of queries, keys or values runs at
// once with the others.
class HeadProjection : public Module {
 public:
  // So many heads, of which this rank holds its own; gradients of shared ones are summed over the
  // ranks of gradient_group.
  HeadProjection(const LayerContext& at, const HeadSizes& sizes, int64_t heads,
                 HeadSizes::Range own, bool has_bias, const GroupRef& gradient_group);

  at::Tensor weight() const { return parameter_value("weight"); }
  at::Tensor bias() const { return parameter_value("bias"); }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
};

}  // namespace nxd
