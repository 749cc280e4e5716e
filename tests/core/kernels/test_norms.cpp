#include <omp.h>

#include "core/kernel_support.h"
#include "core/kernels/norms.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  int64_t rows, cols;
};
constexpr Sizes kSizes[] = {{1, 1}, {3, 7}, {5, 17}, {2, 129}, {300, 65}, {7, 512}};
constexpr nxd_dtype_t kDtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};

size_t place(int64_t i) { return static_cast<size_t>(i); }

// Both norms in double; rms when centered is false.
struct Reference {
  std::vector<double> y, mean, inv, dx, dweight, dbias;

  Reference(const Buffer& x, const Buffer& w, const Buffer* bias, const Buffer& dy, int64_t cols,
            bool centered)
      : dweight(place(cols)), dbias(place(cols)) {
    const auto n = static_cast<double>(cols);
    for (int64_t start = 0; start < x.size(); start += cols) {
      double m = 0;
      for (int64_t i = 0; i < cols; ++i) m += centered ? x[start + i] / n : 0;
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += (x[start + i] - m) * (x[start + i] - m);
      const double r = 1 / std::sqrt(squares / n + kEps);
      mean.push_back(m);
      inv.push_back(r);
      double mean_g = 0;
      double mean_gn = 0;
      for (int64_t i = 0; i < cols; ++i) {
        const double normal = (x[start + i] - m) * r;
        const double d = dy[start + i];
        y.push_back(normal * w[i] + (bias ? (*bias)[i] : 0));
        dweight[place(i)] += d * normal;
        dbias[place(i)] += d;
        mean_g += centered ? d * w[i] / n : 0;
        mean_gn += d * w[i] * normal / n;
      }
      for (int64_t i = 0; i < cols; ++i) {
        const double normal = (x[start + i] - m) * r;
        dx.push_back(r * (dy[start + i] * w[i] - mean_g - normal * mean_gn));
      }
    }
  }
};

void rms_norm(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const auto& [rows, cols] : kSizes) {
      Buffer x(dtype, rows * cols, 1, 3);
      Buffer w(dtype, cols, 2);
      Buffer dy(dtype, rows * cols, 3);
      Buffer past(dtype, rows * cols, 4);
      Buffer y(dtype, rows * cols);
      Buffer dx(dtype, rows * cols);
      Buffer inv(NXD_DTYPE_F32, rows);
      Buffer dw(NXD_DTYPE_F32, cols);
      dw.fill(NAN);
      Reference want(x, w, nullptr, dy, cols, false);
      rms_norm_forward(dtype, rows, cols, x.data(), w.data(), kEps, y.data(), inv.f32());
      check_close("y", y, want.y, test::tolerance(dtype, 2e-6));
      check_close("inv_rms", inv, want.inv, 2e-6);
      rms_norm_backward(dtype, rows, cols, x.data(), w.data(), inv.f32(), dy.data(), dx.data(),
                        dw.f32());
      if (cols > 1) check_close("dx", dx, want.dx, test::tolerance(dtype, 1e-5));
      check_close("dweight", dw, want.dweight, 5e-6);
      rms_norm_backward(dtype, rows, cols, x.data(), w.data(), inv.f32(), dy.data(), dx.data(),
                        dw.f32(), past.data());
      for (int64_t i = 0; i < rows * cols; ++i) want.dx[place(i)] += past[i];
      check_close("dx", dx, want.dx, test::tolerance(dtype, 1e-5));
      // In place.
      Buffer same = dy;
      rms_norm_backward(dtype, rows, cols, x.data(), w.data(), inv.f32(), same.data(), same.data(),
                        dw.f32(), past.data());
      assert_true(same == dx);
      rms_norm_forward(dtype, rows, cols, x.data(), w.data(), kEps, x.data(), inv.f32());
      assert_true(x == y);
    }
  }
}

void add_rms_norm(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const auto& [rows, cols] : kSizes) {
      Buffer x(dtype, rows * cols, 1);
      Buffer residual(dtype, rows * cols, 2);
      Buffer w(dtype, cols, 3);
      Buffer sum(dtype, rows * cols);
      Buffer y(dtype, rows * cols);
      Buffer inv(NXD_DTYPE_F32, rows);
      std::vector<double> sums;
      for (int64_t i = 0; i < rows * cols; ++i) sums.push_back(x[i] + residual[i]);
      add_rms_norm_forward(dtype, rows, cols, x.data(), residual.data(), w.data(), kEps, sum.data(),
                           y.data(), inv.f32());
      check_close("sum", sum, sums, test::tolerance(dtype, 1e-6));
      const Reference want(sum, w, nullptr, x, cols, false);
      check_close("y", y, want.y, test::tolerance(dtype, 2e-6));
      Buffer y2(dtype, rows * cols);
      add_rms_norm_forward(dtype, rows, cols, x.data(), residual.data(), w.data(), kEps,
                           residual.data(), y2.data(), inv.f32());
      assert_true(residual == sum && y2 == y);
    }
  }
}

void layer_norm(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const auto& [rows, cols] : kSizes) {
      if (cols == 1) continue;
      Buffer x(dtype, rows * cols, 1, 3);
      Buffer w(dtype, cols, 2);
      Buffer b(dtype, cols, 5);
      Buffer dy(dtype, rows * cols, 3);
      Buffer y(dtype, rows * cols);
      Buffer dx(dtype, rows * cols);
      Buffer mean(NXD_DTYPE_F32, rows);
      Buffer inv(NXD_DTYPE_F32, rows);
      Buffer dw(NXD_DTYPE_F32, cols);
      Buffer db(NXD_DTYPE_F32, cols);
      const Reference want(x, w, &b, dy, cols, true);
      layer_norm_forward(dtype, rows, cols, x.data(), w.data(), b.data(), kEps, y.data(),
                         mean.f32(), inv.f32());
      check_close("y", y, want.y, test::tolerance(dtype, 3e-6));
      check_close("mean", mean, want.mean, 5e-6);
      check_close("inv_std", inv, want.inv, 3e-6);
      layer_norm_backward(dtype, rows, cols, x.data(), w.data(), mean.f32(), inv.f32(), dy.data(),
                          dx.data(), dw.f32(), db.f32());
      check_close("dx", dx, want.dx, test::tolerance(dtype, 1e-5));
      check_close("dweight", dw, want.dweight, 5e-6);
      check_close("dbias", db, want.dbias, 5e-6);
      layer_norm_forward(dtype, rows, cols, x.data(), w.data(), nullptr, kEps, y.data(), mean.f32(),
                         inv.f32());
      const Reference plain(x, w, nullptr, dy, cols, true);
      check_close("y without bias", y, plain.y, test::tolerance(dtype, 3e-6));
      layer_norm_backward(dtype, rows, cols, x.data(), w.data(), mean.f32(), inv.f32(), dy.data(),
                          dx.data(), dw.f32(), nullptr);
      check_close("dweight without dbias", dw, want.dweight, 5e-6);
      Buffer past(dtype, rows * cols, 4);
      std::vector<double> both = want.dx;
      for (int64_t i = 0; i < rows * cols; ++i) both[place(i)] += past[i];
      layer_norm_backward(dtype, rows, cols, x.data(), w.data(), mean.f32(), inv.f32(), dy.data(),
                          dx.data(), dw.f32(), db.f32(), past.data());
      check_close("dx and what passes the norm", dx, both, test::tolerance(dtype, 1e-5));
      check_close("dbias", db, want.dbias, 5e-6);
      layer_norm_backward(dtype, rows, cols, x.data(), w.data(), mean.f32(), inv.f32(), dy.data(),
                          past.data(), dw.f32(), db.f32(), past.data());
      assert_true(past == dx);
    }
  }
}

void add_layer_norm(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const auto& [rows, cols] : kSizes) {
      if (cols == 1) continue;
      Buffer x(dtype, rows * cols, 1);
      Buffer residual(dtype, rows * cols, 2);
      Buffer w(dtype, cols, 3);
      Buffer b(dtype, cols, 4);
      Buffer sum(dtype, rows * cols);
      Buffer y(dtype, rows * cols);
      Buffer mean(NXD_DTYPE_F32, rows);
      Buffer inv(NXD_DTYPE_F32, rows);
      std::vector<double> sums;
      for (int64_t i = 0; i < rows * cols; ++i) sums.push_back(x[i] + residual[i]);
      add_layer_norm_forward(dtype, rows, cols, x.data(), residual.data(), w.data(), b.data(), kEps,
                             sum.data(), y.data(), mean.f32(), inv.f32());
      check_close("sum", sum, sums, test::tolerance(dtype, 1e-6));
      const Reference want(sum, w, &b, x, cols, true);
      check_close("y", y, want.y, test::tolerance(dtype, 3e-6));
      check_close("mean", mean, want.mean, 5e-6);
      check_close("inv_std", inv, want.inv, 3e-6);
      // In place, and as the norm of the sum gives it.
      Buffer y2(dtype, rows * cols);
      add_layer_norm_forward(dtype, rows, cols, x.data(), residual.data(), w.data(), b.data(), kEps,
                             residual.data(), y2.data(), mean.f32(), inv.f32());
      assert_true(residual == sum && y2 == y);
      layer_norm_forward(dtype, rows, cols, sum.data(), w.data(), b.data(), kEps, y2.data(),
                         mean.f32(), inv.f32());
      assert_true(y2 == y);
    }
  }
}

// A mean far above the spread must not cancel the variance away.
void layer_norm_far_from_zero(void**) {
  const int64_t cols = 257;
  Buffer x(NXD_DTYPE_F32, cols, 1);
  for (int64_t i = 0; i < cols; ++i) x.set(i, 1000 + x[i]);
  Buffer w(NXD_DTYPE_F32, cols);
  w.fill(1);
  Buffer y(NXD_DTYPE_F32, cols);
  Buffer mean(NXD_DTYPE_F32, 1);
  Buffer inv(NXD_DTYPE_F32, 1);
  const Reference want(x, w, nullptr, x, cols, true);
  layer_norm_forward(NXD_DTYPE_F32, 1, cols, x.data(), w.data(), nullptr, kEps, y.data(),
                     mean.f32(), inv.f32());
  check_close("y", y, want.y, 1e-3);
}

void non_finite_stays_in_its_row(void**) {
  Buffer x(NXD_DTYPE_F32, 3 * 20, 1);
  x.set(25, NAN);
  x.set(45, INFINITY);
  Buffer w(NXD_DTYPE_F32, 20, 2);
  Buffer y(NXD_DTYPE_F32, 60);
  Buffer inv(NXD_DTYPE_F32, 3);
  rms_norm_forward(NXD_DTYPE_F32, 3, 20, x.data(), w.data(), kEps, y.data(), inv.f32());
  for (int64_t i = 0; i < 20; ++i) {
    assert_true(std::isfinite(y[i]) && std::isnan(y[20 + i]));
    assert_true(i == 5 ? std::isnan(y[40 + i]) : y[40 + i] == 0);
  }
}

void threads_change_no_bit(void**) {
  const int64_t rows = 1100;
  const int64_t cols = 300;
  Buffer x(NXD_DTYPE_F32, rows * cols, 1);
  Buffer w(NXD_DTYPE_F32, cols, 2);
  const int before = omp_get_max_threads();
  std::vector<Buffer> all;
  for (const int team : {1, 2}) {
    omp_set_num_threads(team);
    Buffer y(NXD_DTYPE_F32, rows * cols);
    Buffer dx(NXD_DTYPE_F32, rows * cols);
    Buffer inv(NXD_DTYPE_F32, rows);
    Buffer dw(NXD_DTYPE_F32, cols);
    rms_norm_forward(NXD_DTYPE_F32, rows, cols, x.data(), w.data(), kEps, y.data(), inv.f32());
    rms_norm_backward(NXD_DTYPE_F32, rows, cols, x.data(), w.data(), inv.f32(), y.data(), dx.data(),
                      dw.f32());
    for (auto* result : {&y, &dx, &dw}) all.push_back(*result);
  }
  omp_set_num_threads(before);
  for (size_t i = 0; i < 3; ++i) assert_true(all[i] == all[i + 3]);
}

void no_rows_and_bad_arguments(void**) {
  Buffer w(NXD_DTYPE_F32, 4, 1);
  Buffer dw(NXD_DTYPE_F32, 4);
  dw.fill(5);
  rms_norm_backward(NXD_DTYPE_F32, 0, 4, nullptr, w.data(), nullptr, nullptr, nullptr, dw.f32());
  for (int64_t i = 0; i < 4; ++i) assert_true(dw[i] == 0);
  try {
    rms_norm_forward(NXD_DTYPE_I32, 1, 4, nullptr, nullptr, kEps, nullptr, nullptr);
  } catch (const Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    return;
  }
  fail_msg("a norm of integers was accepted");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rms_norm),
      cmocka_unit_test(add_rms_norm),
      cmocka_unit_test(layer_norm),
      cmocka_unit_test(add_layer_norm),
      cmocka_unit_test(layer_norm_far_from_zero),
      cmocka_unit_test(non_finite_stays_in_its_row),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(no_rows_and_bad_arguments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
