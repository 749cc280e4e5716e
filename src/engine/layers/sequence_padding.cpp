#include "engine/layers/sequence_padding.h"

#include <ATen/ATen.h>

namespace nxd {

SequencePadding::SequencePadding(const ProcessGroup& group, bool sequence_parallel,
                                 const at::Tensor& mask, const at::Tensor& x)
    : length_(x.size(sequence_parallel ? 0 : 1)) {
  if (!sequence_parallel || !mask.defined() || mask.dim() != 2) return;
  const int64_t places = lacking(group, mask.size(1));
  if (mask.size(1) + places != length_) return;
  length_ = mask.size(1);
  places_ = places;
}

at::Tensor SequencePadding::cut(const at::Tensor& x) const {
  return places_ == 0 ? x : x.narrow(0, 0, length_);
}

at::Tensor SequencePadding::fill(const at::Tensor& x) const {
  if (places_ == 0) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[0] = places_;
  return at::cat({x, at::zeros(sizes, x.options())}, 0);
}

int64_t SequencePadding::lacking(const ProcessGroup& group, int64_t sequence) {
  const int64_t ranks = group.size();
  return (ranks - sequence % ranks) % ranks;
}

at::Tensor SequencePadding::repeat_last(const at::Tensor& x, int64_t places) {
  if (places == 0) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] = places;
  return at::cat({x, x.narrow(1, x.size(1) - 1, 1).expand(sizes)}, 1);
}

}  // namespace nxd
