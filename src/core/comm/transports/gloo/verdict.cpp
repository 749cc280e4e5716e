#include "core/comm/transports/gloo/verdict.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "core/comm/monitor/group_monitor.h"

namespace nxd {
namespace {

static_assert(std::is_trivially_copyable_v<Verdict>);

// Exactly what agrees_with compares.
auto order_of(const CallHeader& h) {
  return std::make_tuple(h.sequence, h.operation, h.count, h.dtype, h.reduce, h.root);
}

}  // namespace

Verdict::Verdict(int rank, const CallHeader& header, const std::string& reason) {
  lowest_.header = highest_.header = header;
  lowest_.rank = highest_.rank = rank;
  if (reason.empty()) return;
  refused_by_ = rank;
  reason_size_ = static_cast<uint32_t>(std::min(reason.size(), kReasonLimit));
  std::memcpy(reason_, reason.data(), reason_size_);
}

void Verdict::join(const Verdict& other) {
  const auto key = [](const Side& s) { return std::make_pair(order_of(s.header), s.rank); };
  if (key(other.lowest_) < key(lowest_)) lowest_ = other.lowest_;
  const auto high = order_of(other.highest_.header), own_high = order_of(highest_.header);
  const bool same = high == own_high;
  if (same ? other.highest_.rank < highest_.rank : own_high < high) highest_ = other.highest_;
  if (other.refused_by_ < 0 || (refused_by_ >= 0 && refused_by_ <= other.refused_by_)) return;
  refused_by_ = other.refused_by_;
  reason_size_ = other.reason_size_;
  std::memcpy(reason_, other.reason_, reason_size_);
}

bool Verdict::is_of_group(int size) const {
  const auto is_rank = [size](int rank) { return rank >= 0 && rank < size; };
  return is_rank(lowest_.rank) && is_rank(highest_.rank) && refused_by_ >= -1 &&
         refused_by_ < size && reason_size_ <= kReasonLimit;
}

void Verdict::check(const GroupMonitor& monitor, const std::vector<int>& world_ranks) const {
  const auto world = [&](int rank) { return world_ranks[static_cast<size_t>(rank)]; };
  if (refused_by_ >= 0) {
    const int by = world(refused_by_);
    const std::string reason(reason_, reason_size_);
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, by,
                        by == monitor.world_rank()
                            ? reason
                            : text("rank ", by, " refused its arguments: ", reason));
  }
  if (lowest_.header.agrees_with(highest_.header)) return;
  const bool in_order = lowest_.rank < highest_.rank;
  const Side& first = in_order ? lowest_ : highest_;
  const Side& second = in_order ? highest_ : lowest_;
  throw monitor.error(
      NXD_ERROR_INVALID_ARGUMENT, world(second.rank),
      text("ranks disagree: rank ", world(first.rank), " calls ", first.header.describe(),
           ", rank ", world(second.rank), " calls ", second.header.describe()));
}

}  // namespace nxd
