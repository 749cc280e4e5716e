#pragma once

#include "engine/layers/layer_support.h"

namespace nxd {

// Positions that are learned: a table [positions, hidden] that each rank has all of.
class PositionTable : public Container {
 public:
  PositionTable(const LayerContext& at, int64_t positions, int64_t hidden);

  // Rows of a sequence, shaped to be added to activations: all of them, or with sequence
  // parallelism those of this rank's slice.
  at::Tensor rows(int64_t sequence) const;

 private:
  GroupRef group_;
  bool sequence_parallel_;
};

}  // namespace nxd
