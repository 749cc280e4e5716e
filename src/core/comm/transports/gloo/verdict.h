#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/comm/call_header.h"

namespace nxd {

// What the headers of any number of ranks come to, in bounded space: the lowest and the highest by
// a fixed order, and the first refusal. All agree when these two do. Joining verdicts is
// commutative, associative and idempotent, so every rank that has heard of all others, in whatever
// order and how often, has the same verdict.
//
// Ranks are places in the group. The bytes of an object are what ranks send one another.
class Verdict {
 public:
  static constexpr size_t kReasonLimit = 416;

  Verdict() = default;
  // Of one rank; a reason refuses the call, and is cut to kReasonLimit bytes.
  Verdict(int rank, const CallHeader& header, const std::string& reason);

  void join(const Verdict& other);
  // Whether a group of so many ranks can have come to it. To be asked of what a peer has sent.
  bool is_of_group(int size) const;
  // The bytes that matter, from the first on: all but the unused end of the reason.
  size_t size() const { return sizeof(Verdict) - kReasonLimit + reason_size_; }
  // Fails as check_offers does.
  void check(const GroupMonitor& monitor, const std::vector<int>& world_ranks) const;

 private:
  struct Side {
    CallHeader header;
    int32_t rank = 0;
    uint32_t unused = 0;
  };
  Side lowest_, highest_;
  int32_t refused_by_ = -1;
  uint32_t reason_size_ = 0;
  uint64_t unused_ = 0;
  char reason_[kReasonLimit] = {};
};
static_assert(sizeof(Verdict) == 512);

}  // namespace nxd
