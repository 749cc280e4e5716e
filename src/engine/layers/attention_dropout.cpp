#include "engine/layers/attention_dropout.h"

#include <ATen/ATen.h>

#include <vector>

namespace nxd {

at::Tensor AttentionDropout::attend(AttentionArgs args, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v) {
  if (drops() && !q.is_meta()) {
    const bool batch_first = args.layout == SequenceLayout::kBatchFirst;
    const int64_t batch = q.size(batch_first ? 0 : 1), sequence = batch_first ? 1 : 0;
    const at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const std::vector<int64_t> sizes{batch, q.size(2), q.size(sequence), k.size(sequence)};
    args.dropout = {keep_probability(), heads_, first_head_,
                    [this, q] { return site_words(q.options()); },
                    [this, q, sizes, wide] { return factors(sizes, q.options().dtype(wide)); }};
  }
  return attention(*context(), args, q, k, v);
}

}  // namespace nxd
