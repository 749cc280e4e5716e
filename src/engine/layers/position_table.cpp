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
  at::Tensor table = parameter_value("weight");
  if (!sequence_parallel_) return table.narrow(0, 0, sequence);
  // Places that pad the sequence may stand behind the table's end.
  if (const int64_t positions = table.size(0); sequence > positions) {
    const at::Tensor last = table.narrow(0, positions - 1, 1);
    table = at::cat({table, last.expand({sequence - positions, table.size(1)})});
  }
  return own_part(group_, table, 0, sequence / group_->size()).unsqueeze(1);
}

}  // namespace nxd
