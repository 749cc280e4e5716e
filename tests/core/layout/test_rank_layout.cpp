// Rank layouts have their properties, also at sizes no test machine has.
#include <random>
#include <vector>

#include "core/layout/parallel_state.h"
#include "core/layout/rank_layout.h"

#include "support/ranks.h"

#include "support/check.h"

using nxd::ParallelOptions;
using nxd::RankLayout;

namespace {

const std::vector<nxd_axis_t> kAxes = {NXD_AXIS_WORLD,      NXD_AXIS_TENSOR,  NXD_AXIS_PIPELINE,
                                       NXD_AXIS_DATA,       NXD_AXIS_CONTEXT, NXD_AXIS_EXPERT_MODEL,
                                       NXD_AXIS_EXPERT_DATA};

ParallelOptions make_options(int tp, int pp = 1, int cp = 1, int ep = 1,
                             nxd_platform_t platform = NXD_PLATFORM_NEUTRAL, int lnc = 1,
                             int local = 0) {
  return {.tensor = tp,
          .pipeline = pp,
          .context = cp,
          .expert = ep,
          .platform = platform,
          .lnc_size = lnc,
          .local_world_size = local};
}

void check_groups(const RankLayout& layout, nxd_axis_t axis) {
  const int world = layout.world_size();
  assert_int_equal(layout.group_count(axis) * layout.group_size(axis), world);
  std::vector<char> seen(static_cast<size_t>(world), 0);
  for (int i = 0; i < layout.group_count(axis); ++i) {
    const std::vector<int> ranks = layout.group(axis, i);
    assert_int_equal(ranks.size(), layout.group_size(axis));
    for (size_t k = 0; k < ranks.size(); ++k) {
      assert_in_range(ranks[k], 0, world - 1);
      assert_false(seen[static_cast<size_t>(ranks[k])]++);
      const RankLayout::Place place = layout.find(axis, ranks[k]);
      if (place.group_index != i || place.rank_in_group != static_cast<int>(k))
        fail_msg("rank %d is not where group %d of axis %d has it", ranks[k], i, axis);
    }
  }
}

// Coordinates along axes that span the world name every rank once: groups of different axes have
// at most one rank in common, and exactly one when they belong to one slice of the world.
void check_orthogonal(const RankLayout& layout, const std::vector<nxd_axis_t>& axes) {
  const int world = layout.world_size();
  int64_t product = 1;
  for (const nxd_axis_t axis : axes) product *= layout.group_size(axis);
  assert_int_equal(product, world);
  std::vector<char> seen(static_cast<size_t>(world), 0);
  for (int rank = 0; rank < world; ++rank) {
    int64_t n = 0;
    for (const nxd_axis_t axis : axes)
      n = n * layout.group_size(axis) + layout.find(axis, rank).rank_in_group;
    assert_false(seen[static_cast<size_t>(n)]++);
  }
  for (size_t a = 0; a < axes.size(); ++a) {
    // The other coordinates stay when one moves along its own group.
    for (const int member : layout.group(axes[a], layout.find(axes[a], world / 2).group_index))
      for (size_t b = 0; b < axes.size(); ++b)
        if (a != b)
          assert_int_equal(layout.find(axes[b], member).rank_in_group,
                           layout.find(axes[b], world / 2).rank_in_group);
  }
}

// The position of a rank is the number that its coordinates make.
void check_positions(const RankLayout& layout) {
  for (int position = 0; position < layout.world_size(); ++position) {
    const int rank = layout.rank_at(position);
    int number = 0;
    for (const nxd_axis_t axis :
         {NXD_AXIS_PIPELINE, NXD_AXIS_DATA, NXD_AXIS_CONTEXT, NXD_AXIS_TENSOR}) {
      number = number * layout.group_size(axis) + layout.find(axis, rank).rank_in_group;
    }
    assert_int_equal(number, position);
  }
}

void check_layout(const ParallelOptions& options, int world) {
  const RankLayout layout(options, world);
  check_positions(layout);
  for (const nxd_axis_t axis : kAxes) check_groups(layout, axis);
  check_orthogonal(layout, {NXD_AXIS_PIPELINE, NXD_AXIS_DATA, NXD_AXIS_CONTEXT, NXD_AXIS_TENSOR});
  check_orthogonal(
      layout, {NXD_AXIS_PIPELINE, NXD_AXIS_EXPERT_DATA, NXD_AXIS_EXPERT_MODEL, NXD_AXIS_TENSOR});
}

void test_properties(void**) {
  std::mt19937 random(20221);
  const auto draw = [&](std::initializer_list<int> from) {
    return from.begin()[random() % from.size()];
  };
  for (int i = 0; i < 60; ++i) {
    const int tp = draw({1, 2, 3, 4, 8, 32}), pp = draw({1, 2, 3, 4, 7}), cp = draw({1, 2, 5});
    const int ep = draw({1, 2, 4});
    int world = tp * pp * cp * ep * draw({1, 2, 3, 6});
    check_layout(make_options(tp, pp, cp, ep), world);
  }
  for (int i = 0; i < 20; ++i) {
    const int local = draw({4, 8, 16, 32}), pp = draw({1, 2, 3}), cp = draw({1, 2});
    check_layout(make_options(4, pp, cp, 1, NXD_PLATFORM_TRN1, 1, local),
                 pp * cp * local * draw({1, 2, 3}));
    const int lnc = draw({1, 2}), ring = lnc == 1 ? 64 : 32;
    check_layout(make_options(ring, pp, cp, 1, NXD_PLATFORM_TRN2, lnc, ring * draw({1, 2})),
                 ring * pp * cp * 2 * draw({1, 2}));
  }
  check_layout(make_options(8, 16, 4, 8), 65536);
  check_layout(make_options(4, 8, 1, 1, NXD_PLATFORM_TRN1, 1, 32), 65536);
  check_layout(make_options(32, 4, 2, 1, NXD_PLATFORM_TRN2, 2, 64), 65536);
}

void test_parallel_state(void**) {
  const nxd::ParallelState state(RankLayout(make_options(2, 2), 8), 7);
  assert_int_equal(state.size(NXD_AXIS_DATA), 2);
  assert_int_equal(state.rank(NXD_AXIS_PIPELINE), 1);
  assert_int_equal(state.source_rank(NXD_AXIS_TENSOR), 6);
  assert_int_equal(state.source_rank(NXD_AXIS_PIPELINE), 3);
  assert_null(state.group(NXD_AXIS_DATA).get());
  for (const int rank : {-1, 8}) {
    try {
      nxd::ParallelState(RankLayout(make_options(2, 2), 8), rank);
      fail_msg("rank %d of 8 was taken", rank);
    } catch (const nxd::Error& e) {
      assert_int_equal(e.status(), NXD_ERROR_INVALID_ARGUMENT);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_properties),
                              cmocka_unit_test(test_parallel_state)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
