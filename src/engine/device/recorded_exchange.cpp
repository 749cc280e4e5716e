#include "engine/device/recorded_exchange.h"

#include "engine/device/replay_plan.h"

namespace nxd {

RecordedExchange exchange_over(const std::shared_ptr<ProcessGroup>& group,
                               RecordedExchange::Kind kind, nxd_reduce_t reduce, int64_t dim) {
  RecordedExchange out;
  out.kind = kind;
  out.reduce = reduce;
  out.dim = dim;
  out.ranks = group->ranks();
  out.in_one_process = has_graph_compiler() && group->is_in_one_process();
  out.group = group;
  return out;
}

}  // namespace nxd
