#include "core/layout/rank_layout.h"

#include <algorithm>

namespace nxd {
namespace {

constexpr int kStridedTensorSize = 4;
// A Trainium2 host is a torus of four rows of cores; a ring takes its rows in this order, so that
// rows that follow one another are neighbours.
constexpr int kRows = 4;
constexpr int kRowOrder[kRows] = {0, 3, 1, 2};

void check_size(const char* name, int size) {
  check_argument(size >= 1, name, ": expected at least 1 (or 0 for its default), got ", size);
}

}  // namespace

void copy_ranks(const std::vector<int>& ranks, int32_t* out, size_t cap, size_t* out_size) {
  check_argument(out_size, "out_size: expected a pointer, got NULL");
  check_argument(out || cap == 0, "ranks: expected room for ", cap, " ranks, got NULL");
  *out_size = ranks.size();
  if (cap > 0) {
    check_argument(ranks.size() <= cap, "cap: expected room for the group's ", ranks.size(),
                   " ranks, got ", cap);
    std::copy(ranks.begin(), ranks.end(), out);
  }
}

RankLayout::RankLayout(const ParallelOptions& options, int world_size)
    : options_(options), world_(world_size) {
  if (options_.local_world_size == 0) options_.local_world_size = world_;
  check_sizes();
  choose_order();
}

void RankLayout::check_sizes() const {
  const ParallelOptions& o = options_;
  check_argument(world_ >= 1, "world_size: expected at least 1, got ", world_);
  check_size("tensor_parallel_size", o.tensor);
  check_size("pipeline_parallel_size", o.pipeline);
  check_size("context_parallel_size", o.context);
  check_size("expert_parallel_size", o.expert);
  check_size("local_world_size", o.local_world_size);
  check_argument(o.platform >= NXD_PLATFORM_NEUTRAL && o.platform <= NXD_PLATFORM_TRN2,
                 "platform: expected an NXD_PLATFORM_*, got ", o.platform);
  check_argument(o.lnc_size == 1 || o.lnc_size == 2, "lnc_size: expected 1 or 2, got ", o.lnc_size);

  // Each factor is at most the world's size before it is multiplied in, so nothing overflows.
  const auto check_product = [&](const char* name, int third) {
    int64_t product = 1;
    for (int size : {o.tensor, o.pipeline, third}) {
      product = size <= world_ ? product * size : world_ + int64_t{1};
      if (product > world_) break;
    }
    check_argument(product <= world_ && world_ % product == 0,
                   "world_size: expected a multiple of "
                   "tensor_parallel_size x pipeline_parallel_size x ",
                   name, " = ", o.tensor, " x ", o.pipeline, " x ", third, ", got ", world_);
  };
  check_product("context_parallel_size", o.context);
  check_product("expert_parallel_size", o.expert);
}

void RankLayout::choose_order() {
  const int tensor = options_.tensor;
  if (options_.platform == NXD_PLATFORM_TRN1 && tensor == kStridedTensorSize) {
    order_ = Order::kStrided;
    check_strided();
  } else if (options_.platform == NXD_PLATFORM_TRN2) {
    // Half a Trainium2 host of 64 logical cores has no rings of its own.
    const bool ring = options_.lnc_size == 1 ? tensor == 64 : tensor == 32 && world_ >= 64;
    if (ring) {
      order_ = Order::kRing;
      check_ring();
    }
  }
}

void RankLayout::check_strided() const {
  const int local = options_.local_world_size;
  check_argument(local % kStridedTensorSize == 0 && world_ % local == 0,
                 "local_world_size: expected a multiple of 4 that divides the world's ", world_,
                 " ranks, got ", local);
  if (options_.expert > 1) {
    fail(NXD_ERROR_UNSUPPORTED,
         "expert_parallel_size: expected 1 on NXD_PLATFORM_TRN1 with a "
         "tensor_parallel_size of 4, got ",
         options_.expert);
  }
  const int groups_per_host = local / kStridedTensorSize;
  const int data = group_size(NXD_AXIS_DATA);
  if (data % groups_per_host != 0) {
    fail(NXD_ERROR_UNSUPPORTED,
         "NXD_PLATFORM_TRN1 with a tensor_parallel_size of 4: expected data "
         "parallel ranks in multiples of the ",
         groups_per_host, " tensor groups of a host, got ", data,
         " (set local_world_size to the ranks per host)");
  }
}

void RankLayout::check_ring() const {
  const int local = options_.local_world_size;
  const int tensor = options_.tensor;
  check_argument((local == tensor || local == 2 * tensor) && world_ % local == 0,
                 "local_world_size: expected ", tensor, " or ", 2 * tensor,
                 " for rings of NXD_PLATFORM_TRN2, dividing the world's ", world_, " ranks, got ",
                 local);
  if (options_.expert > 1) {
    fail(NXD_ERROR_UNSUPPORTED,
         "expert_parallel_size: expected 1 with rings of NXD_PLATFORM_TRN2, "
         "got ",
         options_.expert);
  }
}

RankLayout::Span RankLayout::span(nxd_axis_t axis) const {
  const int tensor = options_.tensor;
  const int context = options_.context;
  const int expert = options_.expert;
  const int stage = world_ / options_.pipeline;
  switch (axis) {
    case NXD_AXIS_WORLD: return {world_, 1};
    case NXD_AXIS_TENSOR: return {tensor, 1};
    case NXD_AXIS_CONTEXT: return {context, tensor};
    case NXD_AXIS_DATA: return {stage / (tensor * context), tensor * context};
    case NXD_AXIS_PIPELINE: return {options_.pipeline, stage};
    case NXD_AXIS_EXPERT_MODEL: return {expert, tensor};
    case NXD_AXIS_EXPERT_DATA: return {stage / (tensor * expert), tensor * expert};
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "axis: expected an NXD_AXIS_*, got ", axis);
  }
}

// NxD Core lists groups of one rank by rank, not by position, when it forms rings.
bool RankLayout::listed_by_rank(nxd_axis_t axis) const {
  return axis == NXD_AXIS_WORLD || (order_ == Order::kRing && axis != NXD_AXIS_TENSOR &&
                                    axis != NXD_AXIS_CONTEXT && span(axis).size == 1);
}

int RankLayout::rank_at(int position) const {
  const int local = options_.local_world_size;
  const int host = position / local * local;
  const int n = position - host;
  switch (order_) {
    case Order::kAscending: return position;
    case Order::kStrided:
      return host + n % kStridedTensorSize * (local / kStridedTensorSize) + n / kStridedTensorSize;
    case Order::kRing: {
      const int row = local / kRows;
      return host + kRowOrder[n / row] * row + n % row;
    }
  }
  return position;
}

int RankLayout::position_of(int rank) const {
  const int local = options_.local_world_size;
  const int host = rank / local * local;
  const int n = rank - host;
  switch (order_) {
    case Order::kAscending: return rank;
    case Order::kStrided: {
      const int groups = local / kStridedTensorSize;
      return host + n % groups * kStridedTensorSize + n / groups;
    }
    case Order::kRing: {
      const int row = local / kRows;
      const auto* place = std::find(kRowOrder, kRowOrder + kRows, n / row);
      return host + static_cast<int>(place - kRowOrder) * row + n % row;
    }
  }
  return rank;
}

std::vector<int> RankLayout::group(nxd_axis_t axis, int index) const {
  const Span s = span(axis);
  check_argument(index >= 0 && index < group_count(axis), "index: expected 0 to ",
                 group_count(axis) - 1, ", got ", index);
  std::vector<int> ranks(static_cast<size_t>(s.size));
  const bool by_rank = listed_by_rank(axis);
  int position = index / s.stride * (s.stride * s.size) + index % s.stride;
  if (by_rank && s.size == 1) position = index;
  for (int& rank : ranks) {
    rank = by_rank ? position : rank_at(position);
    position += s.stride;
  }
  return ranks;
}

RankLayout::Place RankLayout::find(nxd_axis_t axis, int rank) const {
  const Span s = span(axis);
  check_argument(rank >= 0 && rank < world_, "rank: expected 0 to ", world_ - 1, ", got ", rank);
  if (listed_by_rank(axis)) return s.size == 1 ? Place{rank, 0} : Place{0, rank};
  const int position = position_of(rank);
  return {position / (s.stride * s.size) * s.stride + position % s.stride,
          position / s.stride % s.size};
}

}  // namespace nxd
