#pragma once

#include "engine/functional/attention_op.h"
#include "engine/layers/dropout.h"
#include "engine/layers/head_projection.h"

namespace nxd {

// A dropout of attention's weights, [batch, heads, queries, keys], of which each rank has those of
// its heads.
class AttentionDropout : public Dropout {
 public:
  AttentionDropout(const LayerContext& at, double p, const HeadSizes& sizes)
      : Dropout(at, p, /*shard_dim=*/1), heads_(sizes.heads), first_head_(sizes.own.begin) {
    set_share(sizes.own, sizes.heads);
  }

  // attention() of q, k and v. In training its weights are dropped.
  at::Tensor attend(AttentionArgs args, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v);

 private:
  int64_t heads_, first_head_;
};

}  // namespace nxd
