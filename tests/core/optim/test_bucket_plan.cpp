// Gradient buckets: NxD Core's recorded plan, and what holds of every plan, over random sizes,
// dtypes and ranks.
#include <random>
#include <set>
#include <vector>

#include "core/base/dtype.h"
#include "core/optim/bucket_plan.h"

#include "support/check.h"

using nxd::BucketPlan;

namespace {

using Parameters = std::vector<BucketPlan::Parameter>;

constexpr int64_t kMegabyte = int64_t{1} << 20;

std::vector<std::vector<int64_t>> counts_of(const BucketPlan& plan) {
  std::vector<std::vector<int64_t>> counts;
  for (const BucketPlan::Bucket& bucket : plan.buckets()) {
    counts.emplace_back();
    for (const BucketPlan::Item& item : bucket.items) counts.back().push_back(item.count);
  }
  return counts;
}

Parameters of_f32(const std::vector<int64_t>& counts) {
  Parameters parameters;
  for (const int64_t count : counts) parameters.push_back({count, NXD_DTYPE_F32});
  return parameters;
}

void against_nxd_core(void**) {
  const BucketPlan plan(of_f32({100000, 200000, 300000, 50000, 100000}), kMegabyte, 2);
  const std::vector<std::vector<int64_t>> want{{100000, 50000}, {300000}, {200000}, {100000}};
  assert_true(counts_of(plan) == want);
}

void edges(void**) {
  assert_true(BucketPlan({}, kMegabyte, 4).buckets().empty());
  const BucketPlan empty(of_f32({0, 3, 0}), kMegabyte, 4);
  assert_int_equal(empty.buckets().size(), 1);
  assert_int_equal(empty.bucket_of(0), -1);
  assert_int_equal(empty.bucket_of(1), 0);
  assert_int_equal(empty.buckets()[0].size, 4 * 16);
  // A bucket that is exactly full takes no more, and one parameter is never too large.
  assert_true(counts_of(BucketPlan(of_f32({1, 3, 1}), 16, 1)) ==
              (std::vector<std::vector<int64_t>>{{1, 3}, {1}}));
  assert_true(counts_of(BucketPlan(of_f32({9, 9}), 16, 1)) ==
              (std::vector<std::vector<int64_t>>{{9}, {9}}));
}

// Where parameters of a replica group lie depends on no others, and a bucket waits for none that
// fills later.
void replica_groups(void**) {
  for (const int64_t width : {8, 40}) {
    Parameters parameters = of_f32({30, width, 4, width, 4, 5});
    parameters[2].replica_group = parameters[4].replica_group = 1;
    parameters[5].replica_group = 2;
    const BucketPlan plan(parameters, kMegabyte, 2);
    assert_true(counts_of(plan) ==
                (std::vector<std::vector<int64_t>>{{5}, {4, 4}, {width, width, 30}}));
    assert_true(plan.bucket_of(2) == 1 && plan.offset_of(2) == 4);
    assert_true(plan.part(1, 0).size() == 2 && plan.part(1, 1).empty());
  }
}

Parameters random_parameters(std::mt19937_64& random, size_t n) {
  static const nxd_dtype_t dtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16};
  Parameters parameters;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t draw = random();
    const auto count = static_cast<int64_t>((draw >> 8) % (draw % 5 == 0 ? 40000 : 300));
    const bool wide = (draw >> 40) % 3 == 0;
    const nxd_dtype_t value = dtypes[(draw >> 32) % 3];
    const bool main_grad = wide && value == NXD_DTYPE_BF16;
    parameters.push_back({draw % 11 == 0 ? 0 : count, main_grad ? NXD_DTYPE_F32 : value, value,
                          static_cast<int>((draw >> 48) % 7 / 4)});
  }
  return parameters;
}

// Every parameter that is not empty lies in one bucket of its dtypes, behind the one before it.
void check_items(const BucketPlan& plan, const Parameters& parameters, int64_t bucket_bytes) {
  std::set<size_t> seen;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const BucketPlan::Bucket& bucket = plan.buckets()[b];
    const auto size = static_cast<int64_t>(nxd::dtype_size(bucket.dtype));
    int64_t offset = 0;
    for (size_t k = 0; k < bucket.items.size(); ++k) {
      const BucketPlan::Item& item = bucket.items[k];
      const BucketPlan::Parameter& parameter = parameters[item.parameter];
      assert_true(seen.insert(item.parameter).second);
      assert_true(item.count == parameter.count && item.count > 0);
      assert_true(bucket.dtype == parameter.dtype && bucket.value_dtype == parameter.value_dtype);
      assert_int_equal(bucket.replica_group, parameter.replica_group);
      assert_true(item.offset == offset && plan.offset_of(item.parameter) == offset);
      assert_int_equal(plan.bucket_of(item.parameter), b);
      assert_true(k == 0 || item.parameter < bucket.items[k - 1].parameter);
      offset += item.count;
    }
    assert_true(bucket.used == offset && bucket.size >= offset);
    assert_true(b == 0 ||
                bucket.items.back().parameter < plan.buckets()[b - 1].items.back().parameter);
    assert_true(bucket.items.size() == 1 || offset * size <= bucket_bytes);
    assert_int_equal(plan.part_size(b) * plan.ranks(), bucket.size);
    if (plan.has_parts_alike()) {
      assert_int_equal(bucket.items.size(), 1);
      assert_true(bucket.size - bucket.used < plan.ranks());
    } else {
      assert_int_equal(plan.part_size(b) * size % 64, 0);
      assert_true((bucket.size - bucket.used) * size < 64 * plan.ranks());
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    assert_true((parameters[i].count > 0) == (seen.count(i) == 1));
    assert_true((parameters[i].count > 0) == (plan.bucket_of(i) >= 0));
  }
}

// The ranks' parts cover every element once, in order.
void check_parts(const BucketPlan& plan) {
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    int64_t covered = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      for (const BucketPlan::Segment& segment : plan.part(b, rank)) {
        assert_true(segment.count > 0);
        assert_int_equal(segment.bucket_offset, covered);
        assert_true(segment.bucket_offset >= rank * plan.part_size(b));
        covered += segment.count;
        assert_true(covered <= (rank + 1) * plan.part_size(b));
        const int64_t offset = plan.offset_of(segment.parameter);
        assert_int_equal(segment.bucket_offset - offset, segment.parameter_offset);
      }
    }
    assert_int_equal(covered, plan.buckets()[b].used);
    int64_t whole = 0;
    for (const BucketPlan::Segment& segment : plan.full(b)) {
      assert_int_equal(segment.parameter_offset, 0);
      whole += segment.count;
    }
    assert_int_equal(whole, covered);
  }
}

void properties(void**) {
  static const int64_t sizes[] = {1, 500, 4096, 100000, kMegabyte};
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const Parameters parameters = random_parameters(random, static_cast<size_t>(trial % 41));
    const int64_t bucket_bytes = sizes[trial % 5];
    const int ranks = 1 + trial % 9;
    for (const auto parts : {BucketPlan::Parts::kWholeLines, BucketPlan::Parts::kAlike}) {
      const BucketPlan plan(parameters, bucket_bytes, ranks, parts);
      check_items(plan, parameters, bucket_bytes);
      check_parts(plan);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(against_nxd_core), cmocka_unit_test(edges),
                              cmocka_unit_test(replica_groups), cmocka_unit_test(properties)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
