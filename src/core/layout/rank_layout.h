#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// A layout that is asked for: sizes of the axes, and the platform; see nxd_init_model_parallel.
struct ParallelOptions {
  int tensor = 1, pipeline = 1, context = 1, expert = 1;
  nxd_platform_t platform = NXD_PLATFORM_NEUTRAL;
  int lnc_size = 1;
  int local_world_size = 0;  // 0: the whole world
  // No part of a layout: BF16 partial sums of linear layers are exchanged in this.
  nxd_dtype_t reduce_dtype = NXD_DTYPE_F32;
};

// Hands a list of ranks to a caller's buffer, as nxd_layout_get_group describes.
void copy_ranks(const std::vector<int>& ranks, int32_t* out, size_t cap, size_t* out_size);

// The groups of ranks: pure arithmetic on a validated layout, O(group) per question.
//
// A rank has a position: ((pipeline * D + data) * C + context) * T + tensor. In the expert view of
// the same positions the data and context axes together are expert data x expert model. Every axis
// is then a size and a stride over positions. On most platforms position and rank are equal; where
// tensor groups are strided or rings within a host, they are permutations of one another.
class RankLayout {
 public:
  // INVALID_ARGUMENT for sizes that do not divide the world; UNSUPPORTED for a platform's own
  // exclusions.
  RankLayout(const ParallelOptions& options, int world_size);

  int world_size() const { return world_; }
  nxd_dtype_t reduce_dtype() const { return options_.reduce_dtype; }
  int group_size(nxd_axis_t axis) const { return span(axis).size; }
  int group_count(nxd_axis_t axis) const { return world_ / span(axis).size; }
  // World ranks of the index-th group along the axis, in group order.
  std::vector<int> group(nxd_axis_t axis, int index) const;
  // Index of the group a world rank belongs to, and its place in it.
  struct Place {
    int group_index;
    int rank_in_group;
  };
  Place find(nxd_axis_t axis, int rank) const;
  // World rank of a position.
  int rank_at(int position) const;

 private:
  enum class Order { kAscending, kStrided, kRing };
  struct Span {
    int size;
    int stride;
  };

  void check_sizes() const;
  void choose_order();
  void check_strided() const;
  void check_ring() const;
  Span span(nxd_axis_t axis) const;
  bool listed_by_rank(nxd_axis_t axis) const;
  int position_of(int rank) const;

  ParallelOptions options_;
  int world_;
  Order order_ = Order::kAscending;
};

}  // namespace nxd
