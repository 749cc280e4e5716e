// Products of every dtype of floats against plain sums, of all transposes, strides and sizes about
// the blocks; and rows of arrays, moved and summed.
#include "core/kernels/float_gemm.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/kernels/strided_rows.h"

#include "core/base/dtype.h"
#include "core/base/half.h"

#include "support/check.h"

namespace {

using namespace nxd;
using namespace nxd::kernels;

// Numbers of a dtype, which are multiples of 1/8.
struct Values {
  nxd_dtype_t dtype;
  std::vector<char> bytes;

  Values(nxd_dtype_t type, int64_t count, int phase)
      : dtype(type), bytes(static_cast<size_t>(count) * dtype_size(type)) {
    for (int64_t i = 0; i < count; ++i)
      set(i, static_cast<double>((i * 5 + phase * 3) % 17 - 8) / 8);
  }
  template <class T>
  T& as(int64_t i) {
    return reinterpret_cast<T*>(bytes.data())[i];
  }
  void set(int64_t i, double x) {
    const auto narrow = static_cast<float>(x);
    if (dtype == NXD_DTYPE_F64) as<double>(i) = x;
    if (dtype == NXD_DTYPE_F32) as<float>(i) = narrow;
    if (dtype == NXD_DTYPE_F16) as<uint16_t>(i) = f32_to_f16(narrow);
    if (dtype == NXD_DTYPE_BF16) as<uint16_t>(i) = f32_to_bf16(narrow);
  }
  double get(int64_t i) {
    if (dtype == NXD_DTYPE_F64) return as<double>(i);
    if (dtype == NXD_DTYPE_F32) return static_cast<double>(as<float>(i));
    if (dtype == NXD_DTYPE_F16) return static_cast<double>(f16_to_f32(as<uint16_t>(i)));
    return static_cast<double>(bf16_to_f32(as<uint16_t>(i)));
  }
};

// Sums of so many products of eighths are exact; rounding them takes half of the last place.
double tolerance(nxd_dtype_t dtype, double value) {
  if (dtype == NXD_DTYPE_F16) return std::fabs(value) / 2048;
  if (dtype == NXD_DTYPE_BF16) return std::fabs(value) / 256;
  return 0;
}

void check_product(nxd_dtype_t in, nxd_dtype_t out, int64_t m, int64_t n, int64_t k, int variant) {
  const bool trans_a = variant & 1, trans_b = variant & 2, accumulate = variant & 4;
  const bool has_bias = variant & 8;
  const int64_t gap = variant & 16 ? 3 : 0;
  GemmArgs args{.trans_a = trans_a ? Trans::kYes : Trans::kNo,
                .trans_b = trans_b ? Trans::kYes : Trans::kNo,
                .m = m,
                .n = n,
                .k = k};
  args.lda = (trans_a ? m : k) + gap;
  args.ldb = (trans_b ? k : n) + gap;
  args.ldc = n + gap;
  Values a(in, (trans_a ? k : m) * args.lda + 1, 1), b(in, (trans_b ? n : k) * args.ldb + 1, 2);
  Values c(out, m * args.ldc + 1, 3), bias(out, n + 1, 4);
  Values before = c;
  args.a = a.bytes.data();
  args.b = b.bytes.data();
  args.c = c.bytes.data();
  args.bias = has_bias ? bias.bytes.data() : nullptr;
  args.in_dtype = in;
  args.out_dtype = out;
  args.accumulate = accumulate;
  float_gemm(args);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < args.ldc; ++j) {
      const int64_t at = i * args.ldc + j;
      double sum = j >= n || accumulate ? before.get(at) : 0;
      for (int64_t p = 0; j < n && p < k; ++p) {
        sum += a.get(trans_a ? p * args.lda + i : i * args.lda + p) *
               b.get(trans_b ? j * args.ldb + p : p * args.ldb + j);
      }
      if (j < n && has_bias) sum += bias.get(j);
      assert_true(std::fabs(c.get(at) - sum) <= tolerance(out, sum));
    }
  }
}

void products(void**) {
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {65, 257, 66}, {4, 300, 64},  {70, 1, 130},
                              {5, 6, 0}, {0, 4, 3}, {4, 0, 3},     {75, 40, 513}, {2, 1030, 5}};
  for (const auto& [m, n, k] : sizes) {
    for (int variant = 0; variant < 32; ++variant) {
      check_product(NXD_DTYPE_F64, NXD_DTYPE_F64, m, n, k, variant);
      check_product(NXD_DTYPE_F16, NXD_DTYPE_F16, m, n, k, variant);
      check_product(NXD_DTYPE_F16, NXD_DTYPE_F32, m, n, k, variant);
      check_product(NXD_DTYPE_F32, NXD_DTYPE_F32, m, n, k, variant);
    }
  }
}

// The bits of an element in f64 are those of its row and column alone.
void parts(void**) {
  constexpr int64_t kRows = 43, kCols = 1045, kInner = 300;
  Values a(NXD_DTYPE_F64, kRows * kInner, 1), b(NXD_DTYPE_F64, kInner * kCols, 2);
  Values c(NXD_DTYPE_F64, kRows * kCols, 3);
  for (int64_t i = 0; i < kRows * kInner; ++i) a.set(i, std::sin(static_cast<double>(i)));
  for (int64_t i = 0; i < kInner * kCols; ++i) b.set(i, std::cos(static_cast<double>(i)));
  GemmArgs args{.m = kRows, .n = kCols, .k = kInner, .lda = kInner, .ldb = kCols, .ldc = kCols};
  args.a = a.bytes.data();
  args.b = b.bytes.data();
  args.c = c.bytes.data();
  args.in_dtype = args.out_dtype = NXD_DTYPE_F64;
  float_gemm(args);
  args.m = args.n = 1;
  for (int64_t i = 0; i < kRows * kCols; i += 97) {
    double element = 0;
    args.a = &a.as<double>(i / kCols * kInner);
    args.b = &b.as<double>(i % kCols);
    args.c = &element;
    float_gemm(args);
    assert_true(element == c.get(i));
  }
}

// Rows that are moved between dtypes and strides, and their sum.
void check_rows(nxd_dtype_t in, nxd_dtype_t out, int64_t step) {
  const int64_t shape[] = {3, 4, 530};
  const int64_t dense[] = {4 * 530, 530, 1}, strided[] = {7, 21 * 530, 21};
  const int64_t room = 4 * 21 * 530 + 21;
  const int64_t* from_strides = step == 1 ? dense : strided;
  const int64_t* to_strides = step == 1 ? strided : dense;
  Values from(in, room, 1), to(out, room, 2), bias(out, 530, 3), sum(out, 530 * 2, 4);
  Values to_before = to, sum_before = sum;
  const auto place = [&](const int64_t* strides, int64_t a, int64_t b, int64_t c) {
    return a * strides[0] + b * strides[1] + c * strides[2];
  };
  const StridedRows source{in, 3, shape, from_strides, from.bytes.data()};
  move_rows(source, {out, 3, shape, to_strides, to.bytes.data()}, bias.bytes.data(), true);
  const int64_t step_of_sum = 2;
  sum_rows(source, {out, 1, shape + 2, &step_of_sum, sum.bytes.data()}, true);
  for (int64_t c = 0; c < shape[2]; ++c) {
    double column = sum_before.get(2 * c);
    for (int64_t a = 0; a < shape[0]; ++a) {
      for (int64_t b = 0; b < shape[1]; ++b) {
        const double x = from.get(place(from_strides, a, b, c));
        const int64_t at = place(to_strides, a, b, c);
        const double expected = x + bias.get(c) + to_before.get(at);
        assert_true(std::fabs(to.get(at) - expected) <= tolerance(out, expected));
        column += x;
      }
    }
    assert_true(std::fabs(sum.get(2 * c) - column) <= tolerance(out, column));
    assert_true(sum.get(2 * c + 1) == sum_before.get(2 * c + 1));
  }
  if (in != out) return;
  move_rows(source, {out, 3, shape, to_strides, to.bytes.data()});
  for (int64_t c = 0; c < shape[2]; ++c) {
    assert_true(to.get(place(to_strides, 2, 3, c)) == from.get(place(from_strides, 2, 3, c)));
  }
}

void rows(void**) {
  const std::pair<nxd_dtype_t, nxd_dtype_t> dtypes[] = {
      {NXD_DTYPE_F32, NXD_DTYPE_F32},   {NXD_DTYPE_F64, NXD_DTYPE_F64},
      {NXD_DTYPE_BF16, NXD_DTYPE_BF16}, {NXD_DTYPE_F16, NXD_DTYPE_F16},
      {NXD_DTYPE_F32, NXD_DTYPE_BF16},  {NXD_DTYPE_F32, NXD_DTYPE_F16},
      {NXD_DTYPE_BF16, NXD_DTYPE_F32},  {NXD_DTYPE_F16, NXD_DTYPE_F32}};
  for (const auto& [in, out] : dtypes) {
    check_rows(in, out, 1);
    check_rows(in, out, 2);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(parts),
                              cmocka_unit_test(rows)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
