// Ranks of layouts against the lists NxD Core prints, layouts and options that are rejected, and
// groups along axes, whose collectives are their members'.
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "support/ranks.h"

#include "support/check.h"

using nlohmann::json;

namespace {

nxd_parallel_options_t make_options(int tp, int pp = 1, int cp = 1, int ep = 1,
                                    nxd_platform_t platform = NXD_PLATFORM_NEUTRAL, int lnc = 1,
                                    int local = 0) {
  nxd_parallel_options_t o = NXD_PARALLEL_OPTIONS_INIT;
  o.tensor_parallel_size = tp;
  o.pipeline_parallel_size = pp;
  o.context_parallel_size = cp;
  o.expert_parallel_size = ep;
  o.platform = platform;
  o.lnc_size = lnc;
  o.local_world_size = local;
  return o;
}

json groups_of(const nxd_parallel_options_t& options, int world, nxd_axis_t axis) {
  json lists = json::array();
  int32_t count = 0;
  assert_int_equal(nxd_layout_get_group_count(&options, world, axis, &count), NXD_OK);
  std::vector<int32_t> ranks(static_cast<size_t>(world));
  for (int32_t i = 0; i < count; ++i) {
    size_t size = 0;
    assert_int_equal(
        nxd_layout_get_group(&options, world, axis, i, ranks.data(), ranks.size(), &size), NXD_OK);
    lists.push_back(std::vector<int32_t>(ranks.begin(), ranks.begin() + static_cast<long>(size)));
  }
  return lists;
}

// NxD Core groups expert-data ranks of rings by rank, although its tensor groups are rings: the
// members of such a group hold different tensor shards, which cannot be averaged. This is the one
// list not followed. Here its groups are those of the data-parallel ranks.
void check_ring_expert_data(const nxd_parallel_options_t& options, int world, const json& oracle) {
  const auto shard_of = [&](int32_t rank) {
    int32_t group = -1, place = -1;
    assert_int_equal(nxd_layout_find_rank(&options, world, NXD_AXIS_TENSOR, rank, &group, &place),
                     NXD_OK);
    return place;
  };
  bool mixes_shards = false;
  for (const auto& group : oracle) {
    for (const int rank : group) mixes_shards |= shard_of(rank) != shard_of(group[0]);
  }
  assert_true(mixes_shards);
  assert_true(groups_of(options, world, NXD_AXIS_EXPERT_DATA) ==
              groups_of(options, world, NXD_AXIS_DATA));
}

void test_oracle(void**) {
  const json cases = json::parse(std::ifstream(nxd_test::oracles() + "/nxd/parallel_groups.json"));
  const std::vector<std::pair<const char*, nxd_axis_t>> lists = {
      {"tp_groups", NXD_AXIS_TENSOR},
      {"dp_groups", NXD_AXIS_DATA},
      {"pp_groups", NXD_AXIS_PIPELINE},
      {"cp_groups", NXD_AXIS_CONTEXT},
      {"ep_model_groups", NXD_AXIS_EXPERT_MODEL},
      {"ep_data_groups", NXD_AXIS_EXPERT_DATA}};
  int compared = 0, refused = 0, rings = 0;
  for (const json& c : cases) {
    const int world = c["world"];
    const std::string platform = c.value("platform", "");
    const bool trn1 = platform == "trn1";
    nxd_parallel_options_t options =
        make_options(c["tp"], c["pp"], c.value("cp", 1), c.value("ep", 1),
                     trn1 ? NXD_PLATFORM_TRN1 : NXD_PLATFORM_TRN2, c.value("lnc", 1));
    if (c.contains("error")) {
      int32_t count = -1;
      const nxd_status_t status =
          nxd_layout_get_group_count(&options, world, NXD_AXIS_DATA, &count);
      assert_int_equal(status, trn1 ? NXD_ERROR_UNSUPPORTED : NXD_ERROR_INVALID_ARGUMENT);
      assert_int_equal(count, 0);
      ++refused;
      continue;
    }
    const bool ring = c["logic"] == "LOGIC2";
    // A layout that needs no order of the platform's own is the neutral one.
    const bool plain = !ring && !(trn1 && options.tensor_parallel_size == 4);
    for (const auto& [name, axis] : lists) {
      if (ring && axis == NXD_AXIS_EXPERT_DATA && c[name].size() < static_cast<size_t>(world)) {
        check_ring_expert_data(options, world, c[name]);
        ++rings;
        continue;
      }
      if (groups_of(options, world, axis) != c[name])
        fail_msg("%s tp %d pp %d world %d: %s differ", platform.c_str(),
                 options.tensor_parallel_size, options.pipeline_parallel_size, world, name);
      nxd_parallel_options_t neutral = options;
      neutral.platform = NXD_PLATFORM_NEUTRAL;
      if (plain) assert_true(groups_of(neutral, world, axis) == c[name]);
      ++compared;
    }
  }
  assert_int_equal(refused, 5);
  assert_int_equal(rings, 1);
  assert_int_equal(compared, 100 * 6 - rings);
}

void test_strided_hosts(void**) {
  // Two Trainium1 hosts of eight cores.
  const auto o = make_options(4, 2, 1, 1, NXD_PLATFORM_TRN1, 1, 8);
  assert_true(groups_of(o, 16, NXD_AXIS_TENSOR) ==
              json::parse("[[0,2,4,6],[1,3,5,7],[8,10,12,14],[9,11,13,15]]"));
  assert_true(groups_of(o, 16, NXD_AXIS_DATA) ==
              json::parse("[[0,1],[2,3],[4,5],[6,7],[8,9],[10,11],[12,13],[14,15]]"));
  assert_true(groups_of(o, 16, NXD_AXIS_PIPELINE) ==
              json::parse("[[0,8],[2,10],[4,12],[6,14],[1,9],[3,11],[5,13],[7,15]]"));
}

void test_refused(void**) {
  struct Case {
    nxd_parallel_options_t options;
    int world;
    nxd_status_t status;
    const char* part;
  };
  nxd_parallel_options_t narrow = make_options(1);
  narrow.reduce_dtype = NXD_DTYPE_F16;
  const int big = 2147483647;
  const Case cases[] = {
      {make_options(1), 0, NXD_ERROR_INVALID_ARGUMENT, "world_size: expected at least 1"},
      {make_options(1), -4, NXD_ERROR_INVALID_ARGUMENT, "got -4"},
      {make_options(-1), 4, NXD_ERROR_INVALID_ARGUMENT, "tensor_parallel_size"},
      {make_options(1, -1), 4, NXD_ERROR_INVALID_ARGUMENT, "pipeline_parallel_size"},
      {make_options(1, 1, -1), 4, NXD_ERROR_INVALID_ARGUMENT, "context_parallel_size"},
      {make_options(1, 1, 1, -1), 4, NXD_ERROR_INVALID_ARGUMENT, "expert_parallel_size"},
      {make_options(16), 8, NXD_ERROR_INVALID_ARGUMENT, "16 x 1 x 1, got 8"},
      {make_options(2, 3), 8, NXD_ERROR_INVALID_ARGUMENT, "2 x 3 x 1, got 8"},
      {make_options(2, 2, 1, 4), 8, NXD_ERROR_INVALID_ARGUMENT, "x expert_parallel_size"},
      {make_options(big, big, big), 8, NXD_ERROR_INVALID_ARGUMENT, "got 8"},
      {make_options(1, 1, 1, 1, 3), 4, NXD_ERROR_INVALID_ARGUMENT, "platform"},
      {make_options(1, 1, 1, 1, NXD_PLATFORM_INVALID), 4, NXD_ERROR_INVALID_ARGUMENT, "platform"},
      {make_options(1, 1, 1, 1, NXD_PLATFORM_TRN2, 3), 4, NXD_ERROR_INVALID_ARGUMENT, "lnc_size"},
      {make_options(1, 1, 1, 1, NXD_PLATFORM_TRN1, 1, -8), 8, NXD_ERROR_INVALID_ARGUMENT,
       "local_world_size"},
      {make_options(4, 1, 1, 1, NXD_PLATFORM_TRN1, 1, 6), 8, NXD_ERROR_INVALID_ARGUMENT,
       "multiple of 4"},
      {make_options(4, 1, 1, 2, NXD_PLATFORM_TRN1, 1, 8), 8, NXD_ERROR_UNSUPPORTED,
       "expert_parallel_size"},
      {make_options(4, 2, 1, 1, NXD_PLATFORM_TRN1), 16, NXD_ERROR_UNSUPPORTED, "local_world_size"},
      {make_options(32, 1, 1, 1, NXD_PLATFORM_TRN2, 2), 128, NXD_ERROR_INVALID_ARGUMENT,
       "32 or 64"},
      {make_options(32, 1, 1, 2, NXD_PLATFORM_TRN2, 2), 64, NXD_ERROR_UNSUPPORTED,
       "expert_parallel_size"},
      {narrow, 4, NXD_ERROR_INVALID_ARGUMENT, "reduce_dtype: expected f32 or bf16, got f16"},
  };
  for (const Case& c : cases) {
    int32_t count = 7;
    assert_int_equal(nxd_layout_get_group_count(&c.options, c.world, NXD_AXIS_TENSOR, &count),
                     c.status);
    assert_int_equal(count, 0);
    if (!strstr(nxd_last_error(), c.part)) fail_msg("\"%s\" lacks %s", nxd_last_error(), c.part);
  }
}

void test_bad_arguments(void**) {
  const nxd_parallel_options_t o = make_options(2);
  int32_t ranks[4] = {9, 9, 9, 9}, a = 7, b = 7;
  size_t size = 7;
  const auto bad = NXD_ERROR_INVALID_ARGUMENT;
  assert_int_equal(nxd_layout_get_group_count(&o, 4, NXD_AXIS_TENSOR, nullptr), bad);
  assert_int_equal(nxd_layout_get_group_count(&o, 4, NXD_AXIS_INVALID, &a), bad);
  assert_int_equal(nxd_layout_get_group_count(&o, 4, 7, &a), bad);

  assert_int_equal(nxd_layout_get_group(&o, 4, NXD_AXIS_TENSOR, 0, ranks, 4, nullptr), bad);
  assert_int_equal(nxd_layout_get_group(&o, 4, NXD_AXIS_TENSOR, 0, nullptr, 4, &size), bad);
  assert_int_equal(nxd_layout_get_group(&o, 4, NXD_AXIS_TENSOR, 2, ranks, 4, &size), bad);
  assert_int_equal(nxd_layout_get_group(&o, 4, NXD_AXIS_TENSOR, -1, ranks, 4, &size), bad);
  assert_int_equal(size, 0);
  assert_int_equal(nxd_layout_get_group(&o, 4, NXD_AXIS_TENSOR, 0, ranks, 1, &size), bad);
  assert_int_equal(size, 2);  // nothing is copied, and the size is told
  for (const int32_t rank : ranks) assert_int_equal(rank, 9);
  // Asking for the size alone.
  assert_int_equal(nxd_layout_get_group(&o, 4, NXD_AXIS_TENSOR, 0, nullptr, 0, &size), NXD_OK);
  assert_int_equal(size, 2);

  assert_int_equal(nxd_layout_find_rank(&o, 4, NXD_AXIS_TENSOR, 4, &a, &b), bad);
  assert_int_equal(nxd_layout_find_rank(&o, 4, NXD_AXIS_TENSOR, -1, &a, &b), bad);
  assert_int_equal(nxd_layout_find_rank(&o, 4, NXD_AXIS_TENSOR, 0, nullptr, &b), bad);
  assert_int_equal(nxd_layout_find_rank(&o, 4, NXD_AXIS_TENSOR, 0, &a, nullptr), bad);
  assert_int_equal(a, 0);
  assert_int_equal(b, 0);
  assert_int_equal(nxd_layout_find_rank(&o, 4, NXD_AXIS_TENSOR, 3, &a, &b), NXD_OK);
  assert_int_equal(a, 1);
  assert_int_equal(b, 1);
}

void test_options(void**) {
  nxd_parallel_options_t o;
  assert_int_equal(nxd_parallel_options_init(nullptr, sizeof o), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_parallel_options_init(&o, 4), NXD_ERROR_ABI_MISMATCH);
  assert_int_equal(nxd_parallel_options_init(&o, sizeof o), NXD_OK);
  // NULL and zeroed options are the defaults: everything data parallel.
  int32_t count = 0;
  assert_int_equal(nxd_layout_get_group_count(nullptr, 6, NXD_AXIS_DATA, &count), NXD_OK);
  assert_int_equal(count, 1);
  nxd_parallel_options_t zero = {};
  zero.struct_size = sizeof zero;
  assert_int_equal(nxd_layout_get_group_count(&zero, 6, NXD_AXIS_DATA, &count), NXD_OK);
  assert_int_equal(count, 1);
  zero.struct_size = 8;
  assert_int_equal(nxd_layout_get_group_count(&zero, 6, NXD_AXIS_DATA, &count),
                   NXD_ERROR_ABI_MISMATCH);
  // A newer caller's tail must be zero.
  struct {
    nxd_parallel_options_t known;
    int64_t unknown;
  } newer = {make_options(2), 0};
  newer.known.struct_size = sizeof newer;
  assert_int_equal(nxd_layout_get_group_count(&newer.known, 6, NXD_AXIS_DATA, &count), NXD_OK);
  newer.unknown = 1;
  assert_int_equal(nxd_layout_get_group_count(&newer.known, 6, NXD_AXIS_DATA, &count),
                   NXD_ERROR_ABI_MISMATCH);
}

// Rank = tensor + 2 data + 4 pipeline: where each is, by the definition of its axes.
void test_find_rank(void**) {
  const nxd_parallel_options_t o = make_options(2, 2);
  for (int32_t rank = 0; rank < 8; ++rank) {
    const int32_t tensor = rank % 2, data = rank / 2 % 2, pipeline = rank / 4;
    for (const auto& [axis, place] :
         {std::pair{NXD_AXIS_WORLD, rank}, std::pair{NXD_AXIS_TENSOR, tensor},
          std::pair{NXD_AXIS_DATA, data}, std::pair{NXD_AXIS_PIPELINE, pipeline}}) {
      int32_t group = -1, found = -1, members[8];
      size_t size = 0;
      assert_int_equal(nxd_layout_find_rank(&o, 8, axis, rank, &group, &found), NXD_OK);
      assert_int_equal(found, place);
      assert_int_equal(nxd_layout_get_group(&o, 8, axis, group, members, 8, &size), NXD_OK);
      assert_int_equal(members[found], rank);
      assert_int_equal(size, axis == NXD_AXIS_WORLD ? 8 : 2);
    }
    int32_t group = -1, place = -1;
    assert_int_equal(nxd_layout_find_rank(&o, 8, NXD_AXIS_TENSOR, rank, &group, &place), NXD_OK);
    assert_int_equal(group, rank / 2);
  }
}

// A rank's group along an axis: its members, this rank's place, and that its collectives are
// theirs.
void check_members(nxd_context_t* ctx, int rank, nxd_axis_t axis, const std::vector<int>& want) {
  int32_t size = 0, place = -1, source = -1, members[8] = {};
  size_t count = 0;
  nxd_group_t* group = nullptr;
  NXD_TEST_OK(nxd_parallel_get_size(ctx, axis, &size));
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, axis, &place));
  NXD_TEST_OK(nxd_parallel_get_source_rank(ctx, axis, &source));
  if (!NXD_TEST_OK(nxd_parallel_get_group(ctx, axis, &group))) return;
  NXD_TEST_OK(nxd_group_get_ranks(group, members, 8, &count));
  const std::vector<int> got(members, members + count);
  int64_t sum = 0, wanted = 0;
  const int64_t own = int64_t{1} << (4 * rank);
  NXD_TEST_OK(nxd_all_reduce(group, &own, &sum, 1, NXD_DTYPE_I64, NXD_REDUCE_SUM));
  for (const int member : want) wanted += int64_t{1} << (4 * member);
  if (got == want && size == static_cast<int32_t>(want.size()) && source == want[0] &&
      want.at(static_cast<size_t>(place)) == rank && sum == wanted) {
    return;
  }
  nxd_test_fail(__FILE__, __LINE__, "rank %d axis %d: expected %d, %d .., got %d, %d .., sum %llx",
                rank, axis, want[0], want.back(), got.front(), got.back(),
                static_cast<unsigned long long>(sum));
}

// Ranks of tp 2 and cp 2 are tensor + 2 context + 4 data; of tp 2 and ep 2 tensor + 2 expert + 4
// expert data, while other parameters see the data ranks of both.
void test_context_and_expert_groups(void**) {
  static const auto with = [](nxd_context_t* ctx, int cp, int ep) {
    nxd_parallel_options_t options = make_options(2);
    options.context_parallel_size = cp;
    options.expert_parallel_size = ep;
    return NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
  };
  nxd_test_run_ranks(
      8, 0,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const int t = rank % 2, second = rank / 2 % 2, third = rank / 4;
        if (!with(ctx, 2, 1)) return;
        check_members(ctx, rank, NXD_AXIS_TENSOR, {rank - t, rank - t + 1});
        check_members(ctx, rank, NXD_AXIS_CONTEXT, {t + 4 * third, t + 4 * third + 2});
        check_members(ctx, rank, NXD_AXIS_DATA, {t + 2 * second, t + 2 * second + 4});
        NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
        if (!with(ctx, 1, 2)) return;
        check_members(ctx, rank, NXD_AXIS_EXPERT_MODEL, {t + 4 * third, t + 4 * third + 2});
        check_members(ctx, rank, NXD_AXIS_EXPERT_DATA, {t + 2 * second, t + 2 * second + 4});
        check_members(ctx, rank, NXD_AXIS_DATA, {t, t + 2, t + 4, t + 6});
        check_members(ctx, rank, NXD_AXIS_CONTEXT, {rank});
      },
      nullptr);
}

// A struct of no version on one rank: the others are told, and may try again.
void test_bad_struct_on_one_rank(void**) {
  nxd_test_run_ranks(
      3, 0,
      [](nxd_context_t* ctx, int rank, int, void*) {
        for (int bad = 0; bad < 3; ++bad) {
          nxd_parallel_options_t options = make_options(1);
          if (rank == bad) options.struct_size = 3;
          NXD_TEST_REFUSED(nxd_init_model_parallel(ctx, &options), NXD_ERROR_ABI_MISMATCH,
                           "struct_size: expected");
          nxd_error_info_t info = {};
          info.struct_size = sizeof info;
          NXD_TEST_OK(nxd_last_error_info(&info));
          NXD_TEST_CHECK(rank == bad || info.root_rank == bad);
        }
        NXD_TEST_OK(nxd_init_model_parallel(ctx, nullptr));
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_oracle),
                              cmocka_unit_test(test_strided_hosts),
                              cmocka_unit_test(test_refused),
                              cmocka_unit_test(test_bad_arguments),
                              cmocka_unit_test(test_options),
                              cmocka_unit_test(test_find_rank),
                              cmocka_unit_test(test_context_and_expert_groups),
                              cmocka_unit_test(test_bad_struct_on_one_rank)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
