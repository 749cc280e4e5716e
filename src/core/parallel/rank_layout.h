#pragma once

#include <vector>

#include "core/base/error.h"

namespace nxd {

// Which ranks form which groups: pure arithmetic on a validated layout, O(group) per question.
class RankLayout {
 public:
  // INVALID_ARGUMENT for sizes that do not divide the world; UNSUPPORTED for a platform's own
  // exclusions. Zero fields of the options mean their defaults.
  RankLayout(const nxd_parallel_options_t& options, int world_size);

  int world_size() const;
  int group_size(nxd_axis_t axis) const;
  int group_count(nxd_axis_t axis) const;
  // World ranks of the index-th group along the axis, in group order.
  std::vector<int> group(nxd_axis_t axis, int index) const;
  // Index of the group a world rank belongs to, and its place in it.
  struct Place {
    int group_index;
    int rank_in_group;
  };
  Place find(nxd_axis_t axis, int rank) const;

 private:
  int world_, tensor_, pipeline_, context_, expert_;
  nxd_parallel_options_t options_;
};

}  // namespace nxd
