#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/comm/process_group.h"

namespace nxd {

// A collective of a group over a tensor of a recorded node, for compilers that have collectives of
// their own.
struct RecordedExchange {
  enum class Kind { kAllReduce, kAllGather, kReduceScatter };

  Kind kind = Kind::kAllReduce;
  nxd_reduce_t reduce = NXD_REDUCE_SUM;
  int64_t dim = 0;           // that is gathered or scattered
  std::vector<int> ranks{};  // world ranks of the group, in its order
  // All ranks of the group are threads of this process, and a compiler is at work.
  bool in_one_process = false;
  // False: a rank may make the call without recording it, such as a stage without parameters.
  bool all_record = true;
  std::shared_ptr<ProcessGroup> group{};  // null in an outline
};

// No rank is asked, as not all ranks of the group need record the same.
RecordedExchange exchange_over(const std::shared_ptr<ProcessGroup>& group,
                               RecordedExchange::Kind kind, nxd_reduce_t reduce = NXD_REDUCE_SUM,
                               int64_t dim = 0);

}  // namespace nxd
