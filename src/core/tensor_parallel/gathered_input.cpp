#include "core/tensor_parallel/gathered_input.h"

#include <utility>

namespace nxd {

GatheredInput::GatheredInput(const ProcessGroup& group, const Array& part, int dim,
                             Scratch& scratch)
    : part_(part),
      dim_(dim),
      rank_(group.rank()),
      ranks_(group.size()),
      stacked_(group, part.dtype, part.shape, dim, scratch) {
  if (!stacked_.is_whole()) {
    block_ = scratch.reserve(part.count(), ranks_, part.dtype, Scratch::Use::kOwn);
  }
}

Call GatheredInput::call(const Scratch& scratch) const {
  const Array place = stacked_.part(scratch, rank_);
  kernels::move_rows(part_.rows(), place.rows());
  return stacked_.gather(scratch);
}

Array GatheredInput::whole(const Scratch& scratch) const {
  if (stacked_.is_whole()) return stacked_.whole(scratch);
  Array::Shape shape = part_.shape;
  shape[static_cast<size_t>(dim_)] *= ranks_;
  const Array whole = Array::dense(part_.dtype, std::move(shape), scratch.at(block_));
  stacked_.copy_to(whole, scratch);
  return whole;
}

}  // namespace nxd
