#include "core/optim/group_agreement.h"

#include "core/base/error.h"

namespace nxd {

void agree(const std::vector<ProcessGroup*>& groups, int world_rank,
           const std::vector<AgreedValue>& values, const std::string& own_error) {
  // The largest of x and of -x over all ranks: equal but for the sign when all gave the same. In
  // front, who found its arguments bad. What a group found travels on to the next.
  std::vector<double> highest{own_error.empty() ? -1.0 : static_cast<double>(world_rank)};
  for (const AgreedValue& value : values) {
    highest.push_back(value.value);
    highest.push_back(-value.value);
  }
  for (ProcessGroup* group : groups) {
    if (group->size() == 1) continue;
    group->all_reduce(highest.data(), highest.data(), highest.size(), NXD_DTYPE_F64,
                      NXD_REDUCE_MAX);
  }
  check_argument(own_error.empty(), own_error);
  check_argument(highest[0] < 0, "rank ", highest[0], " refused its arguments");
  for (size_t i = 0; i < values.size(); ++i) {
    const double most = highest[1 + 2 * i], least = -highest[2 + 2 * i];
    check_argument(most == least, values[i].name, ": expected the same on all ranks, got ",
                   values[i].value, " here, and ", least, " to ", most, " over all ranks");
  }
}

}  // namespace nxd
