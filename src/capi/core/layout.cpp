// Section 3 of nxd.h: the functions that need no context.
#include "core/base/last_error.h"
#include "core/base/options.h"
#include "core/layout/rank_layout.h"

using namespace nxd;

nxd_status_t nxd_parallel_options_init(nxd_parallel_options_t* options, size_t size) {
  return guard([&] {
    const nxd_parallel_options_t defaults = NXD_PARALLEL_OPTIONS_INIT;
    init_options(options, size, defaults, "nxd_parallel_options_t");
  });
}

nxd_status_t nxd_layout_get_group_count(const nxd_parallel_options_t* options, int32_t world_size,
                                        nxd_axis_t axis, int32_t* out_count) {
  if (out_count) *out_count = 0;
  return guard([&] {
    check_argument(out_count, "out_count: expected a pointer, got NULL");
    *out_count = RankLayout(read_parallel_options(options), world_size).group_count(axis);
  });
}

nxd_status_t nxd_layout_get_group(const nxd_parallel_options_t* options, int32_t world_size,
                                  nxd_axis_t axis, int32_t index, int32_t* ranks, size_t cap,
                                  size_t* out_size) {
  if (out_size) *out_size = 0;
  return guard([&] {
    const RankLayout layout(read_parallel_options(options), world_size);
    copy_ranks(layout.group(axis, index), ranks, cap, out_size);
  });
}

nxd_status_t nxd_layout_find_rank(const nxd_parallel_options_t* options, int32_t world_size,
                                  nxd_axis_t axis, int32_t rank, int32_t* out_group_index,
                                  int32_t* out_rank_in_group) {
  if (out_group_index) *out_group_index = 0;
  if (out_rank_in_group) *out_rank_in_group = 0;
  return guard([&] {
    check_argument(out_group_index, "out_group_index: expected a pointer, got NULL");
    check_argument(out_rank_in_group, "out_rank_in_group: expected a pointer, got NULL");
    const RankLayout layout(read_parallel_options(options), world_size);
    const RankLayout::Place place = layout.find(axis, rank);
    *out_group_index = place.group_index;
    *out_rank_in_group = place.rank_in_group;
  });
}
