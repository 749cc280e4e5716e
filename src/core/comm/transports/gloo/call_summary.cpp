#include "core/comm/transports/gloo/call_summary.h"

#include <cstring>
#include <tuple>
#include <type_traits>

#include "core/base/shortened.h"

namespace nxd {
namespace {

static_assert(std::is_trivially_copyable_v<CallSummary>);

// Exactly what agrees_with compares.
auto order_of(const CallHeader& h) {
  return std::make_tuple(h.sequence, h.operation, h.count, h.dtype, h.reduce, h.root, h.key);
}

}  // namespace

CallSummary::CallSummary(int rank, const CallHeader& header,
                         const std::optional<Rejection>& rejection) {
  lowest_.header = highest_.header = header;
  lowest_.rank = highest_.rank = rank;
  if (!rejection) return;
  rejected_by_ = rank;
  culprit_ = rejection->rank;
  disagrees_ = rejection->disagrees;
  reason_size_ = static_cast<uint32_t>(copy_shortened(rejection->why, reason_, kReasonLimit));
}

void CallSummary::merge(const CallSummary& other) {
  const auto key = [](const Side& s) { return std::make_pair(order_of(s.header), s.rank); };
  if (key(other.lowest_) < key(lowest_)) lowest_ = other.lowest_;
  const auto high = order_of(other.highest_.header), own_high = order_of(highest_.header);
  const bool same = high == own_high;
  if (same ? other.highest_.rank < highest_.rank : own_high < high) highest_ = other.highest_;
  if (other.rejected_by_ < 0 || (rejected_by_ >= 0 && rejected_by_ <= other.rejected_by_)) return;
  rejected_by_ = other.rejected_by_;
  culprit_ = other.culprit_;
  disagrees_ = other.disagrees_;
  reason_size_ = other.reason_size_;
  std::memcpy(reason_, other.reason_, reason_size_);
}

bool CallSummary::is_of_group(int size) const {
  const auto is_rank = [size](int rank) { return rank >= 0 && rank < size; };
  return is_rank(lowest_.rank) && is_rank(highest_.rank) && rejected_by_ >= -1 &&
         rejected_by_ < size && reason_size_ <= kReasonLimit;
}

std::optional<Rejection> CallSummary::rejection(const std::vector<int>& world_ranks) const {
  if (rejected_by_ >= 0) {
    return Rejection{culprit_, disagrees_ != 0, std::string(reason_, reason_size_)};
  }
  if (lowest_.header.agrees_with(highest_.header)) return std::nullopt;
  const bool in_order = lowest_.rank < highest_.rank;
  const Side& first = in_order ? lowest_ : highest_;
  const Side& second = in_order ? highest_ : lowest_;
  const auto world = [&](const Side& side) { return world_ranks[static_cast<size_t>(side.rank)]; };
  return disagreement(world(first), first.header, world(second), second.header);
}

}  // namespace nxd
