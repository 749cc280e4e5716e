// Shards as rows of random words: the numbers of their elements, and of parts of these.
#include <string>
#include <vector>

#include "core/layout/random_rows.h"
#include "support/check.h"

using nxd::RandomRows;
using nxd::RandomSite;
using nxd::ShardSpec;

namespace {

using Values = std::vector<int64_t>;

Values numbers_of(const RandomRows& rows) {
  Values out;
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t local = rows.skipped + i;
    out.push_back(rows.first + local / rows.cols * rows.stride + local % rows.cols);
  }
  return out;
}

// The definition of a shard; padding is -1.
Values elements_of(const ShardSpec& shard) {
  Values out(static_cast<size_t>(shard.local_size()), -1);
  shard.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(local + i)] = global + i;
  });
  return out;
}

void check(const ShardSpec& shard) {
  const std::optional<RandomRows> rows = RandomRows::of(shard);
  assert_true(rows.has_value());
  const Values want = elements_of(shard), got = numbers_of(*rows);
  assert_int_equal(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] >= 0) assert_int_equal(got[i], want[i]);
  }
  // Parts of one size have one code.
  for (int64_t size = 1; size < rows->count; ++size) {
    for (int64_t begin = 0; begin + size <= rows->count; ++begin) {
      const RandomRows part = rows->part(begin, size);
      const auto at = got.begin() + begin;
      assert_true(numbers_of(part) == Values(at, at + size));
      assert_true(part.rows * part.cols >= part.skipped + size);
      assert_string_equal(part.code(8).c_str(), rows->part(0, size).code(8).c_str());
    }
  }
}

void test_shards(void**) {
  check(ShardSpec::replicated({2, 3}));
  check(ShardSpec::replicated({}));
  for (int rank = 0; rank < 2; ++rank) {
    for (int dim = 0; dim < 3; ++dim) check(ShardSpec::split({4, 2, 6}, dim, rank, 2));
    check(ShardSpec::strided({12, 3}, 0, rank, 2, 3));
    check(ShardSpec::strided({2, 12}, 1, rank, 2, 3));
    check(ShardSpec::padded({7, 3}, 0, 8, rank, 2));
    check(ShardSpec::padded({2, 7}, 1, 8, rank, 2));
    check(ShardSpec::heads({3, 6}, 1, 1, rank, 2));
  }
  check(ShardSpec::ranges({3, 8}, 1, {{2, 5}}, 8));
  check(ShardSpec::ranges({1, 9}, 1, {{1, 2}, {5, 6}}, 9));
}

// The last of so many pairs.
ShardSpec last_of(int64_t pairs) {
  return ShardSpec::ranges({pairs, 2}, 0, {{pairs - 1, pairs}}, pairs);
}

void test_what_is_no_rows(void**) {
  assert_false(RandomRows::of(ShardSpec::replicated({0, 4})).has_value());
  assert_false(RandomRows::of(ShardSpec::ranges({2, 9}, 1, {{1, 2}, {5, 6}}, 9)).has_value());
  assert_false(RandomRows::of(ShardSpec::ranges({9}, 0, {{1, 2}, {5, 7}}, 9)).has_value());
  assert_false(RandomRows::of(ShardSpec::ranges({9}, 0, {{5, 6}, {1, 2}}, 9)).has_value());
  assert_false(RandomRows::of(ShardSpec::padded({6}, 0, 8, 1, 2, 2)).has_value());
  assert_false(RandomRows::of(ShardSpec::replicated({int64_t{1} << 31})).has_value());
  constexpr int64_t kHalf = RandomRows::kMostElements / 2;
  assert_true(RandomRows::of(last_of(kHalf)).has_value());
  assert_false(RandomRows::of(last_of(kHalf + 1)).has_value());
}

// Ranks differ in numbers alone.
void test_code_and_numbers(void**) {
  const RandomSite site = RandomSite(5, "a").at(int64_t{1} << 35, 7);
  for (int rank = 0; rank < 4; ++rank) {
    const RandomRows rows = *RandomRows::of(ShardSpec::split({2, 4, 8}, 1, rank, 4));
    assert_string_equal(rows.code(8).c_str(), "rows 2, cols 8, stride 32, aligned");
    const std::vector<int32_t> numbers = rows.numbers(site, 4);
    assert_int_equal(static_cast<uint32_t>(numbers[0]), site.key()[0]);
    assert_int_equal(static_cast<uint32_t>(numbers[1]), site.key()[1]);
    assert_int_equal(static_cast<uint32_t>(numbers[2]), site.draw() & 0xFFFFFFFF);
    assert_int_equal(static_cast<uint32_t>(numbers[3]), site.draw() >> 32);
    assert_int_equal(numbers[4], rank * 2);
    assert_int_equal(numbers[5], 0);
    assert_int_equal(numbers[6], 0);
  }
  const RandomRows columns = *RandomRows::of(ShardSpec::split({3, 10}, 1, 1, 2));
  assert_string_equal(columns.code(4).c_str(), "rows 3, cols 5, stride 10");
  assert_int_equal(columns.numbers(site, 4)[4], 1);
  assert_int_equal(columns.numbers(site, 4)[5], 1);
  // The last block of all has the largest number of 32 bits.
  const RandomRows last = *RandomRows::of(last_of(RandomRows::kMostElements / 2));
  assert_int_equal(last.numbers(site, 4)[4], -1);
  assert_int_equal(last.numbers(site, 4)[5], 2);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shards),
      cmocka_unit_test(test_what_is_no_rows),
      cmocka_unit_test(test_code_and_numbers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
