#include "core/optim/group_agreement.h"

#include "core/base/error.h"

namespace nxd {
namespace {

enum { kBadArguments, kBadState, kFirstValue };

void exchange(const std::vector<ProcessGroup*>& groups, std::vector<double>& highest) {
  for (ProcessGroup* group : groups) {
    if (group->size() == 1) continue;
    group->run(Call::all_reduce(highest.data(), highest.data(), highest.size(), NXD_DTYPE_F64,
                                NXD_REDUCE_MAX));
  }
}

}  // namespace

void agree(const std::vector<ProcessGroup*>& groups, int world_rank,
           const std::vector<AgreedValue>& values, const OwnRefusal& own) {
  // Ranks that reject come in front. Then the largest of x and of -x over all ranks: equal but for
  // the sign when all gave the same. The result of a group travels on to the next.
  std::vector<double> highest(kFirstValue, -1.0);
  if (!own.why.empty()) {
    highest[own.status == NXD_ERROR_INVALID_STATE ? kBadState : kBadArguments] = world_rank;
  }
  for (const AgreedValue& value : values) {
    highest.push_back(value.value);
    highest.push_back(-value.value);
  }
  try {
    exchange(groups, highest);
  } catch (const Error&) {
    if (own.why.empty()) throw;
  }
  if (!own.why.empty()) fail(own.status, own.why);
  check_argument(highest[kBadArguments] < 0, "rank ", highest[kBadArguments],
                 " refused its arguments");
  check_state(highest[kBadState] < 0, "rank ", highest[kBadState],
              " is in no state to take part: its own error says why");
  for (size_t i = 0; i < values.size(); ++i) {
    const double most = highest[kFirstValue + 2 * i], least = -highest[kFirstValue + 1 + 2 * i];
    check_argument(most == least, values[i].name, ": expected the same on all ranks, got ",
                   values[i].value, " here, and ", least, " to ", most, " over all ranks");
  }
}

}  // namespace nxd
