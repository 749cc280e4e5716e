#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/comm/call_header.h"

namespace nxd {

// Agreement of the headers of any number of ranks, in bounded space: the lowest and the highest by
// a fixed order, and the first rejection. All agree when these two do. Merging summaries is
// commutative, associative and idempotent, so every rank that has heard of all others, in whatever
// order and how often, has the same summary.
//
// Ranks are places in the group. The bytes of an object are what ranks send one another.
class CallSummary {
 public:
  static constexpr size_t kReasonLimit = 400;

  CallSummary() = default;
  // Describes one rank; the reason of a rejection is cut to kReasonLimit bytes.
  CallSummary(int rank, const CallHeader& header, const std::optional<Rejection>& rejection);

  void merge(const CallSummary& other);
  // True if a group of so many ranks can have come to it. To be asked of what a peer has sent.
  bool is_of_group(int size) const;
  // The bytes that matter, from the first on: all but the unused end of the reason.
  size_t size() const { return sizeof(CallSummary) - kReasonLimit + reason_size_; }
  // As find_rejection does.
  std::optional<Rejection> rejection(const std::vector<int>& world_ranks) const;

 private:
  struct Side {
    CallHeader header;
    int32_t rank = 0;
    uint32_t unused = 0;
  };
  Side lowest_, highest_;
  int32_t rejected_by_ = -1;
  uint32_t reason_size_ = 0;
  int32_t culprit_ = -1;  // in the world; another than rejected_by_ when that one has passed it on
  uint32_t disagrees_ = 0;
  char reason_[kReasonLimit] = {};
};
static_assert(sizeof(CallSummary) == 512);

}  // namespace nxd
