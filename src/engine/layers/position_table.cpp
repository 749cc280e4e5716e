#include "engine/layers/position_table.h"

#include <ATen/ATen.h>

namespace nxd {

PositionTable::PositionTable(const LayerContext& at, int64_t positions, int64_t hidden)
    : Container(at, "Embedding"), group_(at.group()), sequence_parallel_(at.sequence_parallel) {
  mark_replicated(make_parameter(*this, at, "weight", ShardSpec::replicated({positions, hidden}),
                                 at.init.resolve(Initializer::normal(0, 1), positions)),
                  group_, sequence_parallel_);
}

at::Tensor PositionTable::rows(int64_t sequence) const {
  const at::Tensor table = parameter_value("weight");
  if (!sequence_parallel_) return table.narrow(0, 0, sequence);
  const int64_t own = sequence / group_->size();
  return table.narrow(0, own * group_->rank(), own).unsqueeze(1);
}

}  // namespace nxd
