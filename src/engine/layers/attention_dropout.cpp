#include "engine/layers/attention_dropout.h"

#include <ATen/ATen.h>

namespace nxd {

at::Tensor AttentionDropout::attend(AttentionArgs args, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v) const {
  if (active() && !q.is_meta()) {
    const bool batch_first = args.layout == SequenceLayout::kBatchFirst;
    const int64_t batch = q.size(batch_first ? 0 : 1), sequence = batch_first ? 1 : 0;
    const at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    args.weight_factors =
        factors({batch, q.size(2), q.size(sequence), k.size(sequence)}, q.options().dtype(wide));
  }
  return attention(*context(), args, q, k, v);
}

}  // namespace nxd
