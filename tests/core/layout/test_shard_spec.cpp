// Shards as index ranges: every kind of shard is the slice of the whole that it says it is.
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/layout/shard_fill.h"
#include "core/layout/shard_spec.h"
#include "support/check.h"
#include "support/npy.h"
#include "support/paths.h"

using nxd::RandomSite;
using nxd::ShardSpec;

namespace {

// The local tensor by the definition of a shard: ranges of one dimension, element by element.
// Padding is -1.
std::vector<int64_t> slice(const ShardSpec& spec) {
  std::vector<int64_t> out(static_cast<size_t>(spec.local_size()), -1);
  spec.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      assert_int_equal(out[static_cast<size_t>(local + i)], -1);
      out[static_cast<size_t>(local + i)] = global + i;
    }
  });
  return out;
}

using Values = std::vector<int64_t>;

void test_shapes(void**) {
  assert_true(slice(ShardSpec::replicated({2, 3})) == Values({0, 1, 2, 3, 4, 5}));
  assert_true(slice(ShardSpec::replicated({})) == Values({0}));
  assert_true(slice(ShardSpec::replicated({0, 4})).empty());
  assert_true(slice(ShardSpec::split({4, 2}, 0, 1, 2)) == Values({4, 5, 6, 7}));
  const ShardSpec columns = ShardSpec::split({2, 4, 3}, 1, 1, 2);
  assert_true(columns.local_shape() == Values({2, 2, 3}));
  assert_true(slice(columns) == Values({6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}));
  assert_true(slice(ShardSpec::split({4}, 0, 0, 1)) == Values({0, 1, 2, 3}));
  // Three ranks of a vocabulary of 4 padded to 6.
  assert_true(slice(ShardSpec::padded({4, 1}, 0, 6, 1, 3)) == Values({2, 3}));
  assert_true(slice(ShardSpec::padded({4, 1}, 0, 6, 2, 3)) == Values({-1, -1}));
  // With a stride each of the fused tensors has padding of its own.
  assert_true(slice(ShardSpec::padded({6}, 0, 8, 0, 2, 2)) == Values({0, 1, 3, 4}));
  const ShardSpec fused = ShardSpec::padded({6}, 0, 8, 1, 2, 2);
  assert_true(slice(fused) == Values({2, -1, 5, -1}));
  assert_int_equal(fused.padding(), 2);
  assert_true(slice(ShardSpec::padded({2}, 0, 8, 1, 2, 2)) == Values({-1, -1, -1, -1}));
  assert_true(ShardSpec::padded({8}, 0, 8, 1, 2, 2) == ShardSpec::strided({8}, 0, 1, 2, 2));
  const ShardSpec half = ShardSpec::padded({2, 3}, 1, 4, 1, 2);
  assert_true(slice(half) == Values({2, -1, 5, -1}));
  assert_true(half.has_padding());
  assert_false(ShardSpec::padded({2, 3}, 1, 4, 0, 2).has_padding());
  // Two key-value heads of two rows on four ranks, then four heads on two ranks.
  for (int rank = 0; rank < 4; ++rank)
    assert_true(slice(ShardSpec::heads({4}, 0, 2, rank, 4)) ==
                Values({rank / 2 * 2, rank / 2 * 2 + 1}));
  assert_true(slice(ShardSpec::heads({8}, 0, 4, 1, 2)) == Values({4, 5, 6, 7}));
  // Runs that continue one another are one; empty ones are none.
  const ShardSpec merged = ShardSpec::ranges({8}, 0, {{0, 3}, {3, 3}, {3, 8}}, 8);
  assert_int_equal(merged.ranges().size(), 1);
  assert_true(slice(ShardSpec::ranges({4}, 0, {{2, 4}, {0, 1}}, 4)) == Values({2, 3, 0}));
  assert_true(slice(ShardSpec::ranges({4}, 0, {}, 4)).empty());
}

// Which rows of a vocabulary NxD Core gives to each rank, and what it rejects.
void test_vocabulary_oracle(void**) {
  const auto recorded =
      nlohmann::json::parse(std::ifstream(nxd_test::oracles() + "/nxd/vocab_ranges.json"));
  int ranges = 0, refusals = 0;
  for (const auto& entry : recorded) {
    const int64_t rows = entry[0];
    const int size = entry[1], rank = entry[2];
    if (entry[3].is_array()) {
      const ShardSpec spec = ShardSpec::split({rows, 3}, 0, rank, size);
      assert_int_equal(spec.ranges().size(), 1);
      assert_int_equal(spec.ranges()[0].begin, entry[3][0].get<int64_t>());
      assert_int_equal(spec.ranges()[0].end, entry[3][1].get<int64_t>());
      ++ranges;
      continue;
    }
    nxd_status_t status = NXD_OK;
    try {
      ShardSpec::split({rows, 3}, 0, rank, size);
    } catch (const nxd::Error& error) {
      status = error.status();
    }
    assert_int_equal(status, NXD_ERROR_INVALID_ARGUMENT);
    ++refusals;
  }
  assert_true(ranges > 10 && refusals > 10);
}

void test_stride_oracle(void**) {
  for (int rank = 0; rank < 2; ++rank) {
    const std::string at = nxd_test::oracles() + "/nxd/col_stride2/";
    const std::string suffix = ".rank" + std::to_string(rank) + ".npy";
    const auto whole = nxd_test::read_npy<float>(at + "w_full" + suffix);
    const auto part = nxd_test::read_npy<float>(at + "w" + suffix);
    const ShardSpec spec = ShardSpec::strided(whole.shape, 0, rank, 2, 2);
    assert_true(spec.local_shape() == part.shape);
    const std::vector<int64_t> indices = slice(spec);
    for (size_t i = 0; i < indices.size(); ++i)
      assert_true(whole.values[static_cast<size_t>(indices[i])] == part.values[i]);
  }
  const ShardSpec rows = ShardSpec::strided({8}, 0, 1, 2, 2);
  assert_true(slice(rows) == Values({2, 3, 6, 7}));
}

// The shards of all ranks hold every global element, each as often as it is replicated.
void test_partition(void**) {
  const auto counts = [](const std::vector<ShardSpec>& shards) {
    std::vector<int> held(static_cast<size_t>(shards[0].global_size()), 0);
    for (const ShardSpec& shard : shards)
      for (const int64_t index : slice(shard))
        if (index >= 0) ++held[static_cast<size_t>(index)];
    return held;
  };
  for (int dim = 0; dim < 3; ++dim) {
    std::vector<ShardSpec> split, strided, padded, heads;
    for (int rank = 0; rank < 4; ++rank) {
      split.push_back(ShardSpec::split({8, 24, 12}, dim, rank, 4));
      if (dim == 1) strided.push_back(ShardSpec::strided({8, 24, 12}, dim, rank, 4, 3));
      padded.push_back(ShardSpec::padded({8, 24, 12}, dim, 28, rank, 4));
      heads.push_back(ShardSpec::heads({8, 24, 12}, dim, 2, rank, 4));
    }
    const size_t n = 8 * 24 * 12;
    assert_true(counts(split) == std::vector<int>(n, 1));
    if (dim == 1) assert_true(counts(strided) == std::vector<int>(n, 1));
    assert_true(counts(padded) == std::vector<int>(n, 1));
    assert_true(counts(heads) == std::vector<int>(n, 2));
  }
}

template <class T>
void check_fill(nxd_dtype_t dtype) {
  const RandomSite site(99, "model.layers.3.attention.qkv.weight");
  const ShardSpec::Shape shape = {12, 10, 6};
  const ShardSpec whole = ShardSpec::replicated(shape);
  std::vector<T> uniform(static_cast<size_t>(whole.global_size())), normal(uniform);
  nxd::fill_uniform(site, whole, dtype, uniform.data(), -0.5, 0.5);
  nxd::fill_normal(site, whole, dtype, normal.data(), 0.25, 0.02);
  std::vector<ShardSpec> shards;
  for (int rank = 0; rank < 2; ++rank) {
    for (int dim = 0; dim < 3; ++dim) {
      shards.push_back(ShardSpec::split(shape, dim, rank, 2));
      shards.push_back(ShardSpec::padded(shape, dim, 14, rank, 2));
    }
    shards.push_back(ShardSpec::strided(shape, 0, rank, 2, 3));
    shards.push_back(ShardSpec::heads(shape, 2, 1, rank, 2));
  }
  for (int rank = 0; rank < 5; ++rank) shards.push_back(ShardSpec::split(shape, 1, rank, 5));
  for (const ShardSpec& shard : shards) {
    const std::vector<int64_t> indices = slice(shard);
    std::vector<T> a(indices.size(), T(-9)), b(indices.size(), T(-9));
    nxd::fill_uniform(site, shard, dtype, a.data(), -0.5, 0.5);
    nxd::fill_normal(site, shard, dtype, b.data(), 0.25, 0.02);
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto index = static_cast<size_t>(indices[i]);
      const T u = indices[i] < 0 ? T(0) : uniform[index], n = indices[i] < 0 ? T(0) : normal[index];
      assert_memory_equal(&a[i], &u, sizeof u);
      assert_memory_equal(&b[i], &n, sizeof n);
    }
  }
}

void test_fill(void**) {
  check_fill<float>(NXD_DTYPE_F32);
  check_fill<double>(NXD_DTYPE_F64);
}

template <class Call>
void refused(const Call& call, const char* part) {
  try {
    call();
  } catch (const nxd::Error& e) {
    assert_int_equal(e.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!strstr(e.what(), part)) fail_msg("\"%s\" lacks \"%s\"", e.what(), part);
    return;
  }
  fail_msg("not refused: %s", part);
}

void test_bad_arguments(void**) {
  refused([] { ShardSpec::replicated({2, -1}); }, "negative");
  constexpr int64_t kLarge = int64_t{1} << 40;
  refused([] { ShardSpec::replicated({kLarge, kLarge}); }, "fewer elements");
  refused([] { ShardSpec::replicated({0, kLarge, kLarge}); }, "fewer elements");
  refused([] { ShardSpec::replicated({kLarge, kLarge, 0}); }, "fewer elements");
  refused([] { ShardSpec::split({7, 2}, 0, 0, 2); }, "dimension 0 of 7 to be divisible by 2");
  refused([] { ShardSpec::split({4}, 1, 0, 2); }, "dim");
  refused([] { ShardSpec::split({}, 0, 0, 1); }, "dim");
  refused([] { ShardSpec::split({4}, -1, 0, 2); }, "dim");
  refused([] { ShardSpec::split({4}, 0, 2, 2); }, "rank");
  refused([] { ShardSpec::split({4}, 0, -1, 2); }, "rank");
  refused([] { ShardSpec::split({4}, 0, 0, 0); }, "size");
  refused([] { ShardSpec::strided({8}, 0, 0, 2, 3); }, "divisible by 6");
  refused([] { ShardSpec::strided({8}, 0, 0, 2, 0); }, "stride");
  refused([] { ShardSpec::padded({8}, 0, 7, 0, 7); }, "padded_extent");
  refused([] { ShardSpec::padded({8}, 0, 9, 0, 2); }, "divisible by 2");
  refused([] { ShardSpec::padded({8}, 0, 10, 0, 2, 2); }, "divisible by 4");
  refused([] { ShardSpec::padded({9}, 0, 12, 0, 2, 2); }, "divisible by 2");
  refused([] { ShardSpec::heads({8}, 0, 3, 0, 2); }, "divisible by 3");
  refused([] { ShardSpec::heads({12}, 0, 3, 0, 2); }, "num_heads: expected a multiple of the 2");
  refused([] { ShardSpec::heads({12}, 0, 2, 0, 3); }, "num_heads: expected a divisor of the 3");
  refused([] { ShardSpec::heads({12}, 0, 0, 0, 3); }, "num_heads");
  refused([] { ShardSpec::ranges({4}, 0, {{0, 5}}, 4); }, "within 0 to 4");
  refused([] { ShardSpec::ranges({4}, 0, {{3, 2}}, 4); }, "within 0 to 4");
  const RandomSite site(1, "w");
  float one;
  refused(
      [&] { nxd::fill_normal(site, ShardSpec::split({4}, 0, 0, 2), NXD_DTYPE_F32, nullptr, 0, 1); },
      "out");
  refused([&] { nxd::fill_normal(site, ShardSpec::replicated({}), NXD_DTYPE_I32, &one, 0, 1); },
          "dtype");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),        cmocka_unit_test(test_vocabulary_oracle),
      cmocka_unit_test(test_stride_oracle), cmocka_unit_test(test_partition),
      cmocka_unit_test(test_fill),          cmocka_unit_test(test_bad_arguments)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
