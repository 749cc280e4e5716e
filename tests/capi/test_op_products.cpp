// Products of matrices by ATen's operators, which the library's kernels form: values and gradients
// against plain sums, in every form that autograd asks for, and errors as libtorch has them.
#include <cmath>

#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

struct Matrix {
  int64_t batch, rows, cols;  // batch 0: of two dimensions
  std::vector<double> values;

  std::vector<int64_t> shape() const {
    return batch == 0 ? std::vector<int64_t>{rows, cols} : std::vector<int64_t>{batch, rows, cols};
  }
  double& at(int64_t b, int64_t i, int64_t j) {
    return values[static_cast<size_t>((b * rows + i) * cols + j)];
  }
};

Matrix zeros(int64_t batch, int64_t rows, int64_t cols) {
  const int64_t count = std::max<int64_t>(batch, 1) * rows * cols;
  return {batch, rows, cols, std::vector<double>(static_cast<size_t>(count))};
}

// Multiples of 1/8, which every dtype holds, and whose sums are exact.
Matrix eighths(int64_t batch, int64_t rows, int64_t cols, int phase) {
  Matrix out = zeros(batch, rows, cols);
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = static_cast<double>((static_cast<int>(i) * 5 + phase * 3) % 17 - 8) / 8;
  }
  return out;
}

Matrix transposed(Matrix x) {
  Matrix out = zeros(x.batch, x.cols, x.rows);
  for (int64_t b = 0; b < std::max<int64_t>(x.batch, 1); ++b) {
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t j = 0; j < x.cols; ++j) out.at(b, j, i) = x.at(b, i, j);
    }
  }
  return out;
}

Matrix product(Matrix a, Matrix b) {
  Matrix out = zeros(a.batch, a.rows, b.cols);
  for (int64_t n = 0; n < std::max<int64_t>(a.batch, 1); ++n) {
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t p = 0; p < a.cols; ++p) {
        for (int64_t j = 0; j < b.cols; ++j) out.at(n, i, j) += a.at(n, i, p) * b.at(n, p, j);
      }
    }
  }
  return out;
}

// The matrix as a leaf, or as the transpose of one.
struct Leaf {
  Tensor leaf, view;
};
Leaf leaf_of(const Matrix& x, nxd_dtype_t dtype, bool by_transpose) {
  const Matrix stored = by_transpose ? transposed(x) : x;
  Tensor own = leaf(from_doubles(stored.values, stored.shape()), dtype, true);
  if (!by_transpose) return {own, own};
  Tensor view = op("transpose", "int", {{"self", own}, {"dim0", -2}, {"dim1", -1}});
  return {own, view};
}

void check_near(const char* what, const Tensor& got, const Matrix& want) {
  const double tolerance = got.dtype() == NXD_DTYPE_BF16 ? 1.0 / 256 : 0;
  const std::vector<double> given = values(got);
  assert_int_equal(given.size(), want.values.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const double expected = want.values[i];
    if (std::fabs(given[i] - expected) <= tolerance * std::fabs(expected)) continue;
    fail_msg("%s[%zu]: expected %g, got %g", what, i, expected, given[i]);
  }
}

uint64_t kernel_calls() {
  uint64_t calls = 0;
  for (const nxd_phase_t phase :
       {NXD_PHASE_GEMM_FORWARD, NXD_PHASE_GEMM_INPUT_GRAD, NXD_PHASE_GEMM_WEIGHT_GRAD}) {
    nxd_phase_stats_t stats{};
    stats.struct_size = sizeof stats;
    NXD_TEST_OK(nxd_profile_get_phase(phase, &stats));
    calls += stats.calls;
  }
  return calls;
}

// a b, or self + a b, and its gradients for a gradient of eighths.
void check_product(nxd_dtype_t dtype, int64_t batch, int64_t m, int64_t n, int64_t k, int variant) {
  const Matrix a = eighths(batch, m, k, 1), b = eighths(batch, k, n, 2),
               dy = eighths(batch, m, n, 3);
  const Leaf left = leaf_of(a, dtype, variant & 1), right = leaf_of(b, dtype, variant & 2);
  NXD_TEST_OK(nxd_profile_start());
  const Tensor y = op("matmul", {{"self", left.view}, {"other", right.view}});
  check_near("product", y, product(a, b));
  const Tensor grad = to(from_doubles(dy.values, dy.shape()), dtype);
  nxd_tensor_t *outputs = y.get(), *grads = grad.get();
  NXD_TEST_OK(nxd_backward(&outputs, &grads, 1, 0));
  const Matrix da = product(dy, transposed(b)), db = product(transposed(a), dy);
  check_near("left gradient", left.leaf.grad(), variant & 1 ? transposed(da) : da);
  check_near("right gradient", right.leaf.grad(), variant & 2 ? transposed(db) : db);
  NXD_TEST_OK(nxd_profile_stop());
  assert_true(kernel_calls() >= 3);
}

void values_and_gradients(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
    for (int variant = 0; variant < 4; ++variant) {
      check_product(dtype, 0, 33, 20, 17, variant);
      check_product(dtype, 3, 12, 31, 9, variant);
      check_product(dtype, 5, 40, 8, 64, variant);
    }
  }
}

// In each order of the operands' memory: bf16 is rounded once in all of them.
void sums_with_products(void**) {
  const Matrix a = eighths(0, 24, 16, 1), b = eighths(0, 16, 30, 2);
  const auto check = [&](nxd_dtype_t dtype, const Matrix& self, int beta, int variant) {
    const Tensor left = leaf_of(a, dtype, variant & 1).view;
    const Tensor right = leaf_of(b, dtype, variant & 2).view;
    Tensor added = to(from_doubles(self.values, self.shape()), dtype);
    if (self.rows == 1)
      added = op("reshape", {{"self", added}, {"shape", std::vector<int64_t>{30}}});
    Matrix want = product(a, b);
    for (int64_t i = 0; i < 24; ++i) {
      for (int64_t j = 0; j < 30; ++j) {
        want.at(0, i, j) += beta * Matrix(self).at(0, self.rows == 1 ? 0 : i, j);
      }
    }
    check_near("addmm",
               op("addmm", {{"self", added}, {"mat1", left}, {"mat2", right}, {"beta", beta}}),
               want);
    const Tensor out =
        to(from_doubles(std::vector<double>(want.values.size(), 7), want.shape()), dtype);
    const Tensor a_alone = op("detach", {{"self", left}}),
                 b_alone = op("detach", {{"self", right}});
    op("addmm", "out",
       {{"self", added}, {"mat1", a_alone}, {"mat2", b_alone}, {"beta", beta}, {"out", out}});
    check_near("addmm.out", out, want);
    if (self.rows == 1) return;
    op("addmm_", {{"self", added}, {"mat1", left}, {"mat2", right}, {"beta", beta}});
    check_near("addmm_", added, want);
  };
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
    for (const Matrix& self : {eighths(0, 1, 30, 4), eighths(0, 24, 30, 5)}) {
      for (const int beta : {1, 2}) {
        for (int variant = 0; variant < 4; ++variant) check(dtype, self, beta, variant);
      }
    }
  }
}

// A view that outlives a graph of the recorded device has dense memory after it.
void a_view_that_is_kept(void**) {
  const Matrix a = eighths(0, 24, 16, 1), b = eighths(0, 16, 30, 2), row = eighths(0, 1, 30, 4);
  const Tensor left = leaf_of(a, NXD_DTYPE_BF16, false).leaf;
  const Tensor right = leaf_of(b, NXD_DTYPE_BF16, true).view;
  const Tensor self = to(from_doubles(row.values, {30}), NXD_DTYPE_BF16);
  const auto sum = [&] {
    return values(op("addmm", {{"self", self}, {"mat1", left}, {"mat2", right}, {"beta", 2}}));
  };
  const std::vector<double> first = sum(), second = sum();
  assert_memory_equal(first.data(), second.data(), first.size() * sizeof(double));
}

void batches_with_sums(void**) {
  const Matrix a = eighths(3, 24, 16, 1), b = eighths(3, 16, 30, 2);
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
    const Tensor left = leaf_of(a, dtype, false).leaf, right = leaf_of(b, dtype, true).view;
    for (const int64_t batch : {1, 3}) {
      Matrix self = eighths(batch, 24, 30, 5), want = product(a, b);
      for (int64_t n = 0; n < 3; ++n) {
        for (int64_t i = 0; i < 24; ++i) {
          for (int64_t j = 0; j < 30; ++j) want.at(n, i, j) += self.at(n % batch, i, j);
        }
      }
      const Tensor added = to(from_doubles(self.values, self.shape()), dtype);
      check_near("baddbmm", op("baddbmm", {{"self", added}, {"batch1", left}, {"batch2", right}}),
                 want);
      const Tensor out =
          to(from_doubles(std::vector<double>(want.values.size(), 7), want.shape()), dtype);
      const Tensor a_alone = op("detach", {{"self", left}}),
                   b_alone = op("detach", {{"self", right}});
      op("baddbmm", "out",
         {{"self", added}, {"batch1", a_alone}, {"batch2", b_alone}, {"out", out}});
      check_near("baddbmm.out", out, want);
      if (batch == 1) continue;
      op("baddbmm_", {{"self", added}, {"batch1", left}, {"batch2", right}});
      check_near("baddbmm_", added, want);
    }
  }
}

// With a beta of 0 what is to be added is ignored, and so is what its memory held.
void ignored_sums(void**) {
  for (const int64_t size : {2, 3, 24}) {
    const Matrix a = eighths(2, size, size, 1), b = eighths(2, size, size, 2);
    Matrix want = product(a, b);
    for (double& x : want.values) x *= 2;
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
      const Tensor left = leaf_of(a, dtype, false).leaf, right = leaf_of(b, dtype, false).leaf;
      const std::vector<double> nans(want.values.size(), NAN);
      const auto call = [&](const char* name) {
        const Tensor ignored = to(from_doubles(nans, want.shape()), dtype);
        return op(
            name,
            {{"self", ignored}, {"batch1", left}, {"batch2", right}, {"beta", 0}, {"alpha", 2}});
      };
      for (const char* name : {"baddbmm", "baddbmm_"}) {
        for (int i = 0; i < 20; ++i) check_near(name, call(name), want);
      }
      const Tensor ignored = to(from_doubles({NAN}, {1}), dtype);
      check_near(
          "baddbmm of one value",
          op("baddbmm",
             {{"self", ignored}, {"batch1", left}, {"batch2", right}, {"beta", 0.0}, {"alpha", 2}}),
          want);
    }
  }
}

// A sum of so many ones stays at 256 where each partial sum is rounded to bf16.
void small_products(void**) {
  const auto ones = [](std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return from_doubles(std::vector<double>(static_cast<size_t>(count), 1), shape, NXD_DTYPE_BF16);
  };
  for (const int64_t k : {300, 1000}) {
    const Tensor a = ones({1, k}), b = ones({k, 1}), row = ones({1, k});
    const Tensor sum = from_doubles({0}, {1, 1}, NXD_DTYPE_BF16);
    const Tensor want = to(from_doubles({static_cast<double>(k)}, {1, 1}), NXD_DTYPE_BF16);
    NXD_TEST_CLOSE("mm", op("mm", {{"self", a}, {"mat2", b}}), want, 0);
    NXD_TEST_CLOSE("linear", op("linear", {{"input", a}, {"weight", row}}), want, 0);
    NXD_TEST_CLOSE("addmm", op("addmm", {{"self", sum}, {"mat1", a}, {"mat2", b}}), want, 0);
    const Tensor batch = op("bmm", {{"self", ones({1, 1, k})}, {"mat2", ones({1, k, 1})}});
    NXD_TEST_CLOSE("bmm", op("select", "int", {{"self", batch}, {"dim", 0}, {"index", 0}}), want,
                   0);
  }
}

// Operands that do not fit each other are libtorch's to reject; empty ones are its own, too.
void what_is_not_ours(void**) {
  const Tensor a = from_doubles(std::vector<double>(64 * 32, 1), {64, 32});
  const Tensor b = from_doubles(std::vector<double>(64 * 32, 1), {64, 32});
  nxd_op_t* call = nullptr;
  NXD_TEST_OK(nxd_op_create("mm", nullptr, &call));
  NXD_TEST_OK(nxd_op_set_tensor(call, "self", a.get()));
  NXD_TEST_OK(nxd_op_set_tensor(call, "mat2", b.get()));
  assert_int_equal(nxd_op_run(call), NXD_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(nxd_last_error(), "64x32"));
  const Tensor f32 = to(b, NXD_DTYPE_F32);
  const Tensor turned = op("t", {{"self", f32}});
  NXD_TEST_OK(nxd_op_set_tensor(call, "mat2", turned.get()));
  assert_true(nxd_op_run(call) != NXD_OK);
  nxd_op_destroy(call);
  const Tensor empty = from_doubles({}, {0, 32});
  assert_true(op("mm", {{"self", empty}, {"mat2", op("t", {{"self", b}})}}).shape() ==
              (std::vector<int64_t>{0, 64}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(values_and_gradients), cmocka_unit_test(sums_with_products),
      cmocka_unit_test(a_view_that_is_kept),  cmocka_unit_test(batches_with_sums),
      cmocka_unit_test(ignored_sums),         cmocka_unit_test(small_products),
      cmocka_unit_test(what_is_not_ours)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
