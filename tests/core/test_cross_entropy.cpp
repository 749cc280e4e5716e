#include "core/kernel_support.h"
#include "core/kernels/cross_entropy.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

constexpr nxd_dtype_t kDtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};

size_t place(int64_t i) { return static_cast<size_t>(i); }

// A shard [rows, cols] of a vocabulary, with a row stride.
struct Problem {
  int64_t rows, cols, ld;
  Buffer logits;
  std::vector<int64_t> targets;
  LogitShard shard;

  Problem(nxd_dtype_t dtype, int64_t rows_, int64_t cols_, int64_t first, int64_t vocabulary,
          double scale = 5)
      : rows(rows_), cols(cols_), ld(cols_ + 3), logits(dtype, rows_ * ld, 1, scale) {
    test::Random random(2);
    for (int64_t r = 0; r < rows; ++r) targets.push_back(random.below(vocabulary));
    shard = {dtype, rows, cols, ld, logits.data(), targets.data(), first};
  }
  int64_t target(int64_t r) const {
    const int64_t col = targets[place(r)] - shard.first;
    return col >= 0 && col < cols ? col : -1;
  }
};

void statistics(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const int64_t cols : {1, 7, 17, 129, 9000}) {
      const Problem p(dtype, 6, cols, 40, cols + 80);
      Buffer max(NXD_DTYPE_F32, p.rows);
      Buffer sum_exp(NXD_DTYPE_F32, p.rows);
      Buffer target(NXD_DTYPE_F32, p.rows);
      Buffer sum(NXD_DTYPE_F32, p.rows);
      std::vector<double> want_max, want_exp, want_target, want_sum;
      for (int64_t r = 0; r < p.rows; ++r) {
        double m = -INFINITY;
        for (int64_t i = 0; i < cols; ++i) m = std::max(m, p.logits[r * p.ld + i]);
        double e = 0;
        double s = 0;
        for (int64_t i = 0; i < cols; ++i) {
          e += std::exp(p.logits[r * p.ld + i] - m);
          s += p.logits[r * p.ld + i];
        }
        want_max.push_back(m);
        want_exp.push_back(e);
        want_sum.push_back(s);
        want_target.push_back(p.target(r) < 0 ? 0 : p.logits[r * p.ld + p.target(r)]);
      }
      cross_entropy_row_max(p.shard, max.f32());
      check_close("max", max, want_max, 0);
      cross_entropy_sums(p.shard, max.f32(), sum_exp.f32(), target.f32(), sum.f32());
      check_close("sum_exp", sum_exp, want_exp, 1e-6);
      check_close("target", target, want_target, 0);
      check_close("sum_logits", sum, want_sum, 5e-6);
      Buffer again(NXD_DTYPE_F32, p.rows);
      cross_entropy_sums(p.shard, max.f32(), again.f32(), target.f32(), nullptr);
      assert_true(again == sum_exp);
    }
  }
}

void gradients(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const int64_t cols : {1, 7, 17, 129, 1000}) {
        const int64_t vocabulary = cols + 80;
        Problem p(dtype, 7, cols, 40, vocabulary);
        Buffer lse(NXD_DTYPE_F32, p.rows, 5);
        Buffer grad(NXD_DTYPE_F32, p.rows, 6);
        grad.set(3, 0);
        for (int64_t i = 0; i < cols; ++i) p.logits.set(3 * p.ld + i, NAN);
        Buffer out(dtype, p.rows * cols);
        out.fill(NAN);
        std::vector<double> want;
        for (int64_t r = 0; r < p.rows; ++r) {
          lse.set(r, 5 + lse[r]);
          for (int64_t i = 0; i < cols; ++i) {
            const double hit = i == p.target(r) ? 1 - smoothing : 0;
            const double d = std::exp(p.logits[r * p.ld + i] - lse[r]) - hit -
                             smoothing / static_cast<double>(vocabulary);
            want.push_back(grad[r] == 0 ? 0 : d * grad[r]);
          }
        }
        cross_entropy_backward(p.shard, lse.f32(), grad.f32(), smoothing, vocabulary, out.data(),
                               cols);
        check_close("dlogits", out, want, test::tolerance(dtype, 1e-6));
        cross_entropy_backward(p.shard, lse.f32(), grad.f32(), smoothing, vocabulary,
                               p.logits.data(), p.ld);
        for (int64_t i = 0; i < p.rows * cols; ++i) {
          assert_true(p.logits[i / cols * p.ld + i % cols] == out[i]);
        }
        assert_true(p.logits.canaries_live());
      }
    }
  }
}

// Two shards together give what one holding all columns gives, and the gradient sums to zero.
void shards_add_up(void**) {
  const int64_t cols = 300;
  const Problem whole(NXD_DTYPE_F32, 9, cols, 0, cols);
  Buffer max(NXD_DTYPE_F32, 9);
  Buffer sum_exp(NXD_DTYPE_F32, 9);
  Buffer target(NXD_DTYPE_F32, 9);
  cross_entropy_row_max(whole.shard, max.f32());
  cross_entropy_sums(whole.shard, max.f32(), sum_exp.f32(), target.f32(), nullptr);
  std::vector<double> exps(9);
  std::vector<double> targets(9);
  std::vector<double> maxima(9, -INFINITY);
  for (const int64_t first : {0, 110}) {
    LogitShard shard = whole.shard;
    shard.first = first;
    shard.cols = first == 0 ? 110 : cols - 110;
    shard.logits = static_cast<const float*>(whole.shard.logits) + first;
    Buffer m(NXD_DTYPE_F32, 9);
    Buffer e(NXD_DTYPE_F32, 9);
    Buffer t(NXD_DTYPE_F32, 9);
    cross_entropy_row_max(shard, m.f32());
    cross_entropy_sums(shard, max.f32(), e.f32(), t.f32(), nullptr);
    for (int64_t r = 0; r < 9; ++r) {
      maxima[place(r)] = std::max(maxima[place(r)], m[r]);
      exps[place(r)] += e[r];
      targets[place(r)] += t[r];
    }
  }
  check_close("max", max, maxima, 0);
  check_close("sum_exp", sum_exp, exps, 1e-6);
  check_close("target", target, targets, 0);
  Buffer lse(NXD_DTYPE_F32, 9);
  Buffer grad(NXD_DTYPE_F32, 9);
  grad.fill(1);
  for (int64_t r = 0; r < 9; ++r) lse.set(r, max[r] + std::log(sum_exp[r]));
  Buffer out(NXD_DTYPE_F32, 9 * cols);
  cross_entropy_backward(whole.shard, lse.f32(), grad.f32(), 0.1, cols, out.data(), cols);
  for (int64_t r = 0; r < 9; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) sum += out[r * cols + i];
    assert_true(std::fabs(sum) < 2e-6);
  }
}

// The gradient is the loss's slope, by finite differences of a loss in double.
void gradient_is_the_slope(void**) {
  const int64_t cols = 20;
  const double smoothing = 0.2;
  Problem p(NXD_DTYPE_F32, 1, cols, 0, cols, 1);
  const auto loss = [&](int64_t moved, double by) {
    double sum = 0;
    double linear = 0;
    for (int64_t i = 0; i < cols; ++i) {
      const double x = p.logits[i] + (i == moved ? by : 0);
      sum += std::exp(x);
      linear += x * ((i == p.target(0) ? 1 - smoothing : 0) + smoothing / cols);
    }
    return std::log(sum) - linear;
  };
  Buffer lse(NXD_DTYPE_F32, 1);
  Buffer grad(NXD_DTYPE_F32, 1);
  double sum = 0;
  for (int64_t i = 0; i < cols; ++i) sum += std::exp(p.logits[i]);
  lse.set(0, std::log(sum));
  grad.set(0, 0.5);
  std::vector<double> want;
  for (int64_t i = 0; i < cols; ++i) want.push_back(0.5 * (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5);
  Buffer out(NXD_DTYPE_F32, cols);
  cross_entropy_backward(p.shard, lse.f32(), grad.f32(), smoothing, cols, out.data(), cols);
  check_close("dlogits", out, want, 1e-6);
}

void nan_shows_in_the_sum(void**) {
  Problem p(NXD_DTYPE_F32, 1, 50, 0, 50);
  p.logits.set(20, NAN);
  Buffer max(NXD_DTYPE_F32, 1);
  Buffer sum(NXD_DTYPE_F32, 1);
  Buffer target(NXD_DTYPE_F32, 1);
  cross_entropy_row_max(p.shard, max.f32());
  assert_true(std::isfinite(max[0]));
  cross_entropy_sums(p.shard, max.f32(), sum.f32(), target.f32(), nullptr);
  assert_true(std::isnan(sum[0]));
}

void no_columns(void**) {
  const int64_t target = 3;
  const LogitShard shard{NXD_DTYPE_F32, 1, 0, 0, nullptr, &target, 0};
  float max = 1;
  float sum = 1;
  float logit = 1;
  cross_entropy_row_max(shard, &max);
  cross_entropy_sums(shard, &max, &sum, &logit, nullptr);
  assert_true(std::isinf(max) && max < 0 && sum == 0 && logit == 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(statistics),           cmocka_unit_test(gradients),
      cmocka_unit_test(shards_add_up),        cmocka_unit_test(gradient_is_the_slope),
      cmocka_unit_test(nan_shows_in_the_sum), cmocka_unit_test(no_columns),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
