#include "engine/layers/position_table.h"

#include <ATen/ATen.h>

#include "core/base/round_up.h"
#include "engine/ops/collectives.h"

namespace nxd {

PositionTable::PositionTable(const LayerContext& at, int64_t positions, int64_t hidden)
    : Container(at, "Embedding"), group_(at.group()), sequence_parallel_(at.sequence_parallel) {
  mark_replicated(make_parameter(*this, at, "weight", ShardSpec::replicated({positions, hidden}),
                                 at.init.resolve(Initializer::normal(0, 1), positions)),
                  group_, sequence_parallel_);
}

at::Tensor PositionTable::rows(int64_t sequence) const {
  at::Tensor table = parameter_value("weight");
  const int64_t positions = table.size(0);
  // Places that pad the sequence may stand behind the table's end.
  const int64_t most =
      sequence_parallel_ ? round_up(positions, int64_t{group_->size()}) : positions;
  check_with_group(*group_, sequence <= most, class_name().c_str(), "expected at most ", positions,
                   " positions, got ", sequence);
  if (!sequence_parallel_) return table.narrow(0, 0, sequence);
  if (sequence > positions) {
    const at::Tensor last = table.narrow(0, positions - 1, 1);
    table = at::cat({table, last.expand({sequence - positions, table.size(1)})});
  }
  return own_part(group_, table, 0, sequence / group_->size()).unsqueeze(1);
}

}  // namespace nxd
