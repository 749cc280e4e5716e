#include "engine/layers/position_table.h"

#include <ATen/ATen.h>

#include <algorithm>

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
  const int64_t own = sequence / group_->size(), last = table.size(0) - 1;
  const int64_t begin = own * group_->rank(), beyond = std::max<int64_t>(begin + own - last - 1, 0);
  if (beyond == 0) return table.narrow(0, begin, own).unsqueeze(1);
  // Places that pad the sequence may stand behind the table's end.
  const int64_t held = std::max<int64_t>(own - beyond, 0);
  const at::Tensor end = table.narrow(0, last, 1).expand({own - held, table.size(1)});
  return at::cat({table.narrow(0, last + 1 - held, held), end}).unsqueeze(1);
}

}  // namespace nxd
