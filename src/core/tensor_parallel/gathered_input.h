#pragma once

#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

// An array of which each rank has a part along one dimension, gathered from all of them.
class GatheredInput {
 public:
  GatheredInput(const ProcessGroup& group, const Array& part, int dim, Scratch& scratch);
  // The collective, once this rank's part is in its place.
  Call call(const Scratch& scratch) const;
  // All parts, in C order, after the collective; to be called once.
  Array whole(const Scratch& scratch) const;

 private:
  Array part_;
  int dim_, rank_, ranks_;
  StackedParts stacked_;
  size_t block_ = 0;
};

}  // namespace nxd
