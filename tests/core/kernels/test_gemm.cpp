#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/kernel_support.h"
#include "core/kernels/float_gemm.h"
#include "core/kernels/product_tiles.h"
#include "nxd.h"
#include "support/larger_error.h"
#include "support/sanitized.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b;
  int64_t pad_a, pad_b, pad_c;
  nxd_dtype_t in, out;
  bool accumulate, bias;
};

// Runs a case against sums in double.
void check_case(const Case& c, uint64_t seed) {
  const int64_t a_rows = c.trans_a ? c.k : c.m;
  const int64_t b_rows = c.trans_b ? c.n : c.k;
  const int64_t lda = (c.trans_a ? c.m : c.k) + c.pad_a;
  const int64_t ldb = (c.trans_b ? c.k : c.n) + c.pad_b;
  const int64_t ldc = c.n + c.pad_c;
  Buffer a(c.in, a_rows * lda, seed);
  Buffer b(c.in, b_rows * ldb, seed + 1);
  Buffer bias(c.out, c.n, seed + 2);
  Buffer out(c.out, c.m * ldc, seed + 3);
  std::vector<double> want = out.doubles();
  const std::vector<double> a_values = a.doubles(), b_values = b.doubles();
  const int64_t a_step = c.trans_a ? lda : 1, b_step = c.trans_b ? 1 : ldb;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      double& sum = want[static_cast<size_t>(i * ldc + j)];
      if (!c.accumulate) sum = 0;
      if (c.bias) sum += bias[j];
      const int64_t a_first = c.trans_a ? i : i * lda, b_first = c.trans_b ? j * ldb : j;
      for (int64_t p = 0; p < c.k; ++p) {
        sum += a_values[static_cast<size_t>(a_first + p * a_step)] *
               b_values[static_cast<size_t>(b_first + p * b_step)];
      }
    }
  }
  GemmArgs args;
  args.trans_a = c.trans_a ? Trans::kYes : Trans::kNo;
  args.trans_b = c.trans_b ? Trans::kYes : Trans::kNo;
  args.m = c.m;
  args.n = c.n;
  args.k = c.k;
  args.a = a.data();
  args.lda = lda;
  args.b = b.data();
  args.ldb = ldb;
  args.c = out.data();
  args.ldc = ldc;
  args.in_dtype = c.in;
  args.out_dtype = c.out;
  args.accumulate = c.accumulate;
  if (c.bias) args.bias = bias.data();
  gemm(args);
  check_close("c", out, want, test::tolerance(c.out, 5e-6));
}

void all_forms(void**) {
  const int64_t sizes[][3] = {{1, 1, 1},    {7, 5, 3},     {1, 17, 129},  {33, 1, 64},
                              {64, 96, 32}, {129, 65, 17}, {70, 130, 200}};
  const nxd_dtype_t dtypes[][2] = {{NXD_DTYPE_F32, NXD_DTYPE_F32},
                                   {NXD_DTYPE_BF16, NXD_DTYPE_F32},
                                   {NXD_DTYPE_BF16, NXD_DTYPE_BF16}};
  uint64_t seed = 1;
  for (const auto& size : sizes) {
    for (const auto& dtype : dtypes) {
      for (int form = 0; form < 16; ++form) {
        check_case({size[0], size[1], size[2], (form & 1) != 0, (form & 2) != 0, 0, 0, 0, dtype[0],
                    dtype[1], (form & 4) != 0, (form & 8) != 0},
                   seed++);
      }
    }
  }
}

// A product too large to be checked as a whole: some elements against sums in double, and that
// nothing beside the matrix was written.
void check_samples(const Case& c, uint64_t seed) {
  const int64_t lda = (c.trans_a ? c.m : c.k) + c.pad_a;
  const int64_t ldb = (c.trans_b ? c.k : c.n) + c.pad_b;
  const int64_t ldc = c.n + c.pad_c;
  Buffer a(c.in, (c.trans_a ? c.k : c.m) * lda, seed);
  Buffer b(c.in, (c.trans_b ? c.n : c.k) * ldb, seed + 1);
  Buffer bias(c.out, c.n, seed + 2);
  Buffer out(c.out, c.m * ldc, seed + 3);
  const Buffer before = out;
  GemmArgs args;
  args.trans_a = c.trans_a ? Trans::kYes : Trans::kNo;
  args.trans_b = c.trans_b ? Trans::kYes : Trans::kNo;
  args.m = c.m, args.n = c.n, args.k = c.k;
  args.a = a.data(), args.lda = lda;
  args.b = b.data(), args.ldb = ldb;
  args.c = out.data(), args.ldc = ldc;
  args.in_dtype = c.in, args.out_dtype = c.out;
  args.accumulate = c.accumulate;
  if (c.bias) args.bias = bias.data();
  gemm(args);
  double largest = 0, worst = 0;
  for (int64_t sample = 0; sample < 400; ++sample) {
    // The corners, then anywhere.
    const int64_t i = sample < 4 ? (sample & 1) * (c.m - 1) : sample * 7919 % c.m;
    const int64_t j = sample < 4 ? (sample >> 1) * (c.n - 1) : sample * 104729 % c.n;
    double want = (c.accumulate ? before[i * ldc + j] : 0) + (c.bias ? bias[j] : 0);
    for (int64_t p = 0; p < c.k; ++p) {
      want += a[c.trans_a ? p * lda + i : i * lda + p] * b[c.trans_b ? j * ldb + p : p * ldb + j];
    }
    largest = std::max(largest, std::abs(want));
    worst = larger_error(worst, out[i * ldc + j] - want);
  }
  assert_true(worst <= test::tolerance(c.out, 5e-6) * largest);
  for (int64_t i = 0; i < c.m; i += 37) {
    for (int64_t j = c.n; j < ldc; ++j) assert_true(out[i * ldc + j] == before[i * ldc + j]);
  }
}

// Products that take other ways than small ones: all forms of a ragged one, one whose rows are
// split for their sums in f32, and one with more of these than are ever held.
void large_products(void**) {
  const nxd_dtype_t dtypes[][2] = {{NXD_DTYPE_F32, NXD_DTYPE_F32},
                                   {NXD_DTYPE_BF16, NXD_DTYPE_F32},
                                   {NXD_DTYPE_BF16, NXD_DTYPE_BF16}};
  uint64_t seed = 5000;
  for (const auto& dtype : dtypes) {
    for (int form = 0; form < 16; ++form) {
      const bool ta = (form & 1) != 0, tb = (form & 2) != 0;
      const bool accumulate = (form & 4) != 0, bias = (form & 8) != 0;
      check_samples({509, 387, 345, ta, tb, 0, 0, 0, dtype[0], dtype[1], accumulate, bias}, seed++);
    }
    for (int form = 0; form < 8; ++form) {
      const bool ta = (form & 1) != 0, tb = (form & 2) != 0, accumulate = (form & 4) != 0;
      check_samples({509, 387, 345, ta, tb, 3, 5, 7, dtype[0], dtype[1], accumulate, false},
                    seed++);
      check_samples({17001, 259, 17, ta, tb, 0, 0, 0, dtype[0], dtype[1], accumulate, false},
                    seed++);
    }
    check_samples({4100, 4103, 5, true, false, 0, 0, 0, dtype[0], dtype[1], true, false}, seed++);
    if (kSanitized && dtype[0] != NXD_DTYPE_F32) continue;  // of so many values each takes a second
    check_samples({1, 8200, 8200, true, false, 3, 0, 0, dtype[0], dtype[1], false, false}, seed++);
    check_samples({8200, 1, 8200, false, true, 0, 0, 7, dtype[0], dtype[1], false, false}, seed++);
  }
}

void strided_operands(void**) {
  uint64_t seed = 1000;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const int64_t size : {5, 80}) {
      for (int form = 0; form < 32; ++form) {
        check_case({size, size + 3, size + 6, (form & 1) != 0, (form & 2) != 0, form & 4 ? 3 : 0,
                    form & 8 ? 5 : 0, form & 16 ? 7 : 0, dtype, dtype, (form & 8) == 0, false},
                   seed++);
      }
    }
  }
}

// Row strides beside one row, one column or both.
void single_rows_and_columns(void**) {
  uint64_t seed = 2000;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (int ones = 1; ones < 8; ++ones) {
      for (int form = 0; form < 128; ++form) {
        const auto size = [ones](int bit, int64_t other) { return ones & bit ? 1 : other; };
        check_case({size(1, 6), size(2, 60), size(4, 24), (form & 1) != 0, (form & 2) != 0,
                    form & 4 ? 3 : 0, form & 8 ? 5 : 0, form & 16 ? 7 : 0, dtype, dtype,
                    (form & 32) != 0, (form & 64) != 0},
                   seed++);
      }
    }
  }
}

void empty_sums(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (int form = 0; form < 4; ++form) {
      check_case({3, 5, 0, false, false, 0, 0, 2, dtype, dtype, (form & 1) != 0, (form & 2) != 0},
                 7);
    }
    check_case({0, 5, 4, false, false, 0, 0, 0, dtype, dtype, false, false}, 8);
    check_case({4, 0, 4, false, false, 0, 0, 0, dtype, dtype, false, false}, 9);
  }
}

// An output that is not accumulated into is not read: it may hold anything.
void overwrites_nan(void**) {
  Buffer a(NXD_DTYPE_F32, 9, 1);
  Buffer c(NXD_DTYPE_F32, 9);
  c.fill(NAN);
  GemmArgs args{.m = 3, .n = 3, .k = 3, .lda = 3, .ldb = 3, .ldc = 3};
  args.a = args.b = a.data();
  args.c = c.data();
  gemm(args);
  for (int64_t i = 0; i < 9; ++i) assert_false(std::isnan(c[i]));
}

void non_finite_values_spread(void**) {
  Buffer a(NXD_DTYPE_F32, 4);
  Buffer b(NXD_DTYPE_F32, 4);
  Buffer c(NXD_DTYPE_F32, 4);
  a.fill(1);
  b.fill(1);
  a.set(0, INFINITY);
  a.set(3, NAN);
  GemmArgs args{.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2};
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  gemm(args);
  assert_true(std::isinf(c[0]) && std::isinf(c[1]) && std::isnan(c[2]) && std::isnan(c[3]));
}

void batches(void**) {
  Buffer a(NXD_DTYPE_F32, 5 * 12, 3);
  Buffer b(NXD_DTYPE_F32, 8, 4);
  Buffer c(NXD_DTYPE_F32, 5 * 6);
  GemmArgs args{.m = 3, .n = 2, .k = 4, .lda = 4, .ldb = 2, .ldc = 2};
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  float_gemm_batched(args, 5, 12, 0, 6);
  std::vector<double> want;
  for (int64_t batch = 0; batch < 5; ++batch) {
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < 4; ++p) sum += a[batch * 12 + i * 4 + p] * b[p * 2 + j];
        want.push_back(sum);
      }
    }
  }
  check_close("c", c, want, 5e-6);
}

// More shapes than the cache keeps, then the first ones again.
void cache_evicts(void**) {
  for (int round = 0; round < 2; ++round) {
    for (int64_t m = 1; m < 30; ++m) {
      for (int64_t n = 1; n < 21; ++n) {
        check_case({m, n, 3, false, true, 0, 0, 0, NXD_DTYPE_F32, NXD_DTYPE_F32, false, false},
                   static_cast<uint64_t>(m * 100 + n));
      }
    }
  }
}

void threads_at_once(void**) {
  const int64_t n = 96;
  Buffer a(NXD_DTYPE_F32, n * n, 11);
  const auto product = [&](Buffer& out) {
    GemmArgs args{.m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n};
    args.a = args.b = a.data();
    args.c = out.data();
    for (int i = 0; i < 20; ++i) gemm(args);
  };
  Buffer want(NXD_DTYPE_F32, n * n);
  product(want);
  std::vector<Buffer> got(4, Buffer(NXD_DTYPE_F32, n * n));
  std::vector<std::thread> threads;
  for (auto& out : got) threads.emplace_back([&product, &out] { product(out); });
  for (auto& thread : threads) thread.join();
  for (const auto& out : got) assert_true(out == want);
}

// All threads compute the bits that one computes, though they divide the product.
void check_threads(const Case& c, uint64_t seed) {
  Buffer a(c.in, c.m * c.k, seed);
  Buffer b(c.in, c.n * c.k, seed + 1);
  Buffer bias(c.out, c.n, seed + 2);
  const Buffer before(c.out, c.m * c.n, seed + 3);
  GemmArgs args{.m = c.m, .n = c.n, .k = c.k, .in_dtype = c.in, .out_dtype = c.out};
  args.trans_a = c.trans_a ? Trans::kYes : Trans::kNo;
  args.trans_b = c.trans_b ? Trans::kYes : Trans::kNo;
  args.a = a.data(), args.lda = c.trans_a ? c.m : c.k;
  args.b = b.data(), args.ldb = c.trans_b ? c.k : c.n;
  args.ldc = c.n;
  args.accumulate = c.accumulate;
  if (c.bias) args.bias = bias.data();
  Buffer alone = before;
  for (const int threads : {1, 2, 3, 4, 8}) {
    omp_set_num_threads(threads);
    Buffer out = before;
    args.c = out.data();
    gemm(args);
    if (threads == 1) alone = out;
    if (out == alone) continue;
    std::fprintf(stderr, "%s -> %s %lld x %lld x %lld%s%s, %d threads: other bits\n",
                 dtype_name(c.in), dtype_name(c.out), static_cast<long long>(c.m),
                 static_cast<long long>(c.n), static_cast<long long>(c.k),
                 c.trans_a ? ", A transposed" : "", c.trans_b ? ", B transposed" : "", threads);
    fail();
  }
}

// Around the size from which products are large; ragged, wide and narrow ones; sums of many terms,
// of which sgemm takes some at a time; one whose tiles have few columns more than a unit; ones that
// sgemm for AVX2 copies, of which many threads divide rows and columns.
void threads_change_no_bit(void**) {
  const int64_t sizes[][3] = {
      {512, 512, 256},  {512, 512, 255}, {509, 517, 300}, {300, 260, 1100}, {1030, 600, 900},
      {64, 4096, 512},  {64, 8192, 160}, {1100, 96, 900}, {64, 65, 1000},   {257, 130, 70},
      {1000, 100, 333}, {64, 32768, 32}, {700, 515, 400}, {1700, 1300, 50}, {2900, 530, 100}};
  const nxd_dtype_t dtypes[][2] = {{NXD_DTYPE_F32, NXD_DTYPE_F32},
                                   {NXD_DTYPE_BF16, NXD_DTYPE_F32},
                                   {NXD_DTYPE_BF16, NXD_DTYPE_BF16}};
  const int before = omp_get_max_threads();
  uint64_t seed = 9000;
  for (const auto& size : sizes) {
    for (const auto& dtype : dtypes) {
      for (int form = 0; form < 12; form += kSanitized ? 5 : 1) {
        check_threads({size[0], size[1], size[2], (form & 1) != 0, (form & 2) != 0, 0, 0, 0,
                       dtype[0], dtype[1], form / 4 == 1, form / 4 == 2},
                      seed++);
      }
    }
  }
  omp_set_num_threads(before);
}

// The same thread with another team: primitives of one size must not serve the other.
void team_size_changes(void**) {
  const int before = omp_get_max_threads();
  for (const int team : {1, 2, 1}) {
    omp_set_num_threads(team);
    check_case({129, 65, 70, false, true, 0, 0, 0, NXD_DTYPE_F32, NXD_DTYPE_F32, false, false}, 5);
  }
  omp_set_num_threads(before);
}

// A sum longer than the work of a tile is one tile.
void long_sums(void**) {
  const int64_t k = int64_t{1} << 24;
  GemmArgs args{.m = 1, .n = 2, .k = k, .lda = k, .ldb = 2, .ldc = 2};
  args.in_dtype = args.out_dtype = NXD_DTYPE_F32;
  assert_int_equal(ProductTiles(Product(args), 0).count(), 1);
}

void bad_arguments_are_refused(void**) {
  float x[4] = {};
  GemmArgs args{.m = 2, .n = 2, .k = 2, .a = x, .lda = 2, .b = x, .ldb = 2, .c = x, .ldc = 2};
  const auto refused = [](const GemmArgs& bad) {
    try {
      gemm(bad);
    } catch (const Error& error) {
      return error.status() == NXD_ERROR_INVALID_ARGUMENT;
    }
    return false;
  };
  GemmArgs bad = args;
  bad.lda = 1;
  assert_true(refused(bad));
  bad = args;
  bad.m = -1;
  assert_true(refused(bad));
  bad = args;
  bad.in_dtype = NXD_DTYPE_F64;
  assert_true(refused(bad));
  bad = args;
  bad.out_dtype = NXD_DTYPE_BF16;
  assert_true(refused(bad));
  bad = args;
  bad.c = nullptr;
  assert_true(refused(bad));
  bad = args;
  bad.a = nullptr;
  assert_true(refused(bad));
}

}  // namespace

int main() {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr && !__builtin_cpu_supports("avx512f")) {
    std::puts(
        "skip: gemm without AVX-512: the processor has none, and test_gemm forms the same "
        "products; "
        "run it on one that has");
    return 77;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_forms),
      cmocka_unit_test(large_products),
      cmocka_unit_test(strided_operands),
      cmocka_unit_test(single_rows_and_columns),
      cmocka_unit_test(empty_sums),
      cmocka_unit_test(overwrites_nan),
      cmocka_unit_test(non_finite_values_spread),
      cmocka_unit_test(batches),
      cmocka_unit_test(cache_evicts),
      cmocka_unit_test(threads_at_once),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(team_size_changes),
      cmocka_unit_test(long_sums),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
