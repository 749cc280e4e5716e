#include "core/kernel_support.h"
#include "core/kernels/cross_entropy.h"

#include "support/rejection.h"

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

struct Statistics {
  Buffer all;
  int64_t rows;
  explicit Statistics(const LogitShard& shard)
      : all(NXD_DTYPE_F32, kRowStatistics * shard.rows), rows(shard.rows) {
    all.fill(5);
    cross_entropy_statistics(shard, all.f32());
  }
  Buffer part(int64_t which) const {
    Buffer out(NXD_DTYPE_F32, rows);
    for (int64_t r = 0; r < rows; ++r) out.set(r, all[which * rows + r]);
    return out;
  }
};

void statistics(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const int64_t cols : {1, 7, 17, 129, 9000}) {
      const Problem p(dtype, 6, cols, 40, cols + 80);
      std::vector<double> want_max, want_exp, want_target, want_sum;
      for (int64_t r = 0; r < p.rows; ++r) {
        double m = -INFINITY;
        for (int64_t i = 0; i < cols; ++i) m = std::max(m, p.logits[r * p.ld + i]);
        double e = 0;
        double s = 0;
        for (int64_t i = 0; i < cols; ++i) {
          e += std::exp(p.logits[r * p.ld + i] - m);
          s += p.logits[r * p.ld + i] - m;
        }
        want_max.push_back(m);
        want_exp.push_back(e);
        want_sum.push_back(s);
        want_target.push_back(p.target(r) < 0 ? 0 : p.logits[r * p.ld + p.target(r)]);
      }
      Statistics got(p.shard);
      check_close("max", got.part(0), want_max, 0);
      check_close("sum_exp", got.part(1), want_exp, 1e-6);
      check_close("target", got.part(2), want_target, 0);
      check_close("sum_below", got.part(3), want_sum, 5e-6);
      assert_true(got.all.canaries_live());
    }
  }
}

void gradients(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const int64_t cols : {1, 7, 17, 129, 1000}) {
        const int64_t vocabulary = cols + 80;
        Problem p(dtype, 7, cols, 40, vocabulary);
        Buffer max(NXD_DTYPE_F32, p.rows, 5);
        Buffer log_sum(NXD_DTYPE_F32, p.rows, 7);
        Buffer grad(NXD_DTYPE_F32, p.rows, 6);
        grad.set(3, 0);
        for (int64_t i = 0; i < cols; ++i) p.logits.set(3 * p.ld + i, NAN);
        Buffer out(dtype, p.rows * cols);
        out.fill(NAN);
        std::vector<double> want;
        for (int64_t r = 0; r < p.rows; ++r) {
          max.set(r, 4 + max[r]);
          log_sum.set(r, 1 + log_sum[r]);
          for (int64_t i = 0; i < cols; ++i) {
            const double hit = i == p.target(r) ? 1 - smoothing : 0;
            const double d = std::exp(p.logits[r * p.ld + i] - max[r] - log_sum[r]) - hit -
                             smoothing / static_cast<double>(vocabulary);
            want.push_back(grad[r] == 0 ? 0 : d * grad[r]);
          }
        }
        cross_entropy_backward(p.shard, max.f32(), log_sum.f32(), grad.f32(), smoothing, vocabulary,
                               dtype, out.data(), cols);
        check_close("dlogits", out, want, test::tolerance(dtype, 1e-6));
        // Rounded to the other dtype, then in place.
        const nxd_dtype_t other = dtype == NXD_DTYPE_F32 ? NXD_DTYPE_BF16 : NXD_DTYPE_F32;
        Buffer converted(other, p.rows * cols);
        cross_entropy_backward(p.shard, max.f32(), log_sum.f32(), grad.f32(), smoothing, vocabulary,
                               other, converted.data(), cols);
        check_close("converted", converted, want, test::tolerance(other, 1e-6));
        cross_entropy_backward(p.shard, max.f32(), log_sum.f32(), grad.f32(), smoothing, vocabulary,
                               dtype, p.logits.data(), p.ld);
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
  const double smoothing = 0.1;
  struct Merged {
    Buffer max{NXD_DTYPE_F32, 9}, log_sum{NXD_DTYPE_F32, 9}, loss{NXD_DTYPE_F32, 9};
  };
  Merged one;
  Merged two;
  Statistics statistics(whole.shard);
  cross_entropy_merge(1, 9, statistics.all.f32(), 36, cols, smoothing, cols, one.max.f32(),
                      one.log_sum.f32(), one.loss.f32());
  Buffer both(NXD_DTYPE_F32, 2 * 40);  // with a gap between the shards
  for (const int64_t first : {0, 190}) {
    LogitShard shard = whole.shard;
    shard.first = first;
    shard.cols = first == 0 ? 190 : cols - 190;
    shard.logits = static_cast<const float*>(whole.shard.logits) + first;
    cross_entropy_statistics(shard, both.f32() + (first == 0 ? 0 : 40));
  }
  cross_entropy_merge(2, 9, both.f32(), 40, 190, smoothing, cols, two.max.f32(), two.log_sum.f32(),
                      two.loss.f32());
  std::vector<double> want_max, want_log_sum, want_loss;
  for (int64_t r = 0; r < 9; ++r) {
    double exps = 0;
    double sum = 0;
    want_max.push_back(statistics.all[r]);
    for (int64_t i = 0; i < cols; ++i) {
      const double x = whole.logits[r * whole.ld + i];
      exps += std::exp(x - statistics.all[r]);
      sum += x;
    }
    want_log_sum.push_back(std::log(exps));
    want_loss.push_back(statistics.all[r] + std::log(exps) -
                        (1 - smoothing) * whole.logits[r * whole.ld + whole.target(r)] -
                        smoothing / static_cast<double>(cols) * sum);
  }
  for (const Merged* merged : {&one, &two}) {
    check_close("max", merged->max, want_max, 0);
    check_close("log_sum", merged->log_sum, want_log_sum, 1e-6);
    check_close("loss", merged->loss, want_loss, 1e-6);
  }
  Buffer grad(NXD_DTYPE_F32, 9);
  grad.fill(1);
  Buffer out(NXD_DTYPE_F32, 9 * cols);
  cross_entropy_backward(whole.shard, one.max.f32(), one.log_sum.f32(), grad.f32(), smoothing, cols,
                         NXD_DTYPE_F32, out.data(), cols);
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
  Buffer max(NXD_DTYPE_F32, 1);
  Buffer log_sum(NXD_DTYPE_F32, 1);
  Buffer grad(NXD_DTYPE_F32, 1);
  double sum = 0;
  for (int64_t i = 0; i < cols; ++i) sum += std::exp(p.logits[i]);
  log_sum.set(0, std::log(sum));
  grad.set(0, 0.5);
  std::vector<double> want;
  for (int64_t i = 0; i < cols; ++i) want.push_back(0.5 * (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5);
  Buffer out(NXD_DTYPE_F32, cols);
  cross_entropy_backward(p.shard, max.f32(), log_sum.f32(), grad.f32(), smoothing, cols,
                         NXD_DTYPE_F32, out.data(), cols);
  check_close("dlogits", out, want, 1e-6);
}

// The loss of a row of three shards of one logit each, the first the target's.
double merged_loss(std::vector<float> logits) {
  std::vector<float> statistics;
  const int64_t target = 0;
  for (int64_t i = 0; i < 3; ++i) {
    float own[kRowStatistics];
    cross_entropy_statistics({NXD_DTYPE_F32, 1, 1, 1, &logits[place(i)], &target, i}, own);
    statistics.insert(statistics.end(), own, own + kRowStatistics);
  }
  float max = 0;
  float log_sum = 0;
  float loss = 0;
  cross_entropy_merge(3, 1, statistics.data(), kRowStatistics, 1, 0, 3, &max, &log_sum, &loss);
  return static_cast<double>(loss);
}

void non_finite_logits(void**) {
  Problem p(NXD_DTYPE_F32, 1, 50, 0, 50);
  p.logits.set(20, NAN);
  const Statistics got(p.shard);
  assert_true(std::isfinite(got.all[0]) && std::isnan(got.all[1]));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 3; ++i) {
    std::vector<float> logits{1, 2, 3};
    logits[place(i)] = NAN;
    assert_true(std::isnan(merged_loss(logits)));
    logits[place(i)] = kInf;
    assert_true(std::isnan(merged_loss(logits)));
  }
  assert_true(merged_loss({-kInf, 2, 3}) == INFINITY);
  assert_true(std::fabs(merged_loss({1, -kInf, 3}) - (3 + std::log1p(std::exp(-2)) - 1)) < 1e-6);
  assert_true(std::isnan(merged_loss({-kInf, -kInf, -kInf})));
}

void no_columns(void**) {
  const int64_t target = 3;
  const Statistics got({NXD_DTYPE_F32, 1, 0, 0, nullptr, &target, 0});
  assert_true(std::isinf(got.all[0]) && got.all[0] < 0);
  for (int64_t i = 1; i < kRowStatistics; ++i) assert_true(got.all[i] == 0);
}

// A row's loss in f64 from shards of so many columns each.
struct WideRow {
  WideRow(std::vector<double> values, int64_t each, int64_t label)
      : logits(std::move(values)), target(label), cols(each) {
    std::vector<double> statistics;
    for (int64_t first = 0; first < static_cast<int64_t>(logits.size()); first += cols) {
      double own[kRowStatistics];
      cross_entropy_statistics(shard(first), own);
      statistics.insert(statistics.end(), own, own + kRowStatistics);
    }
    const auto shards = static_cast<int64_t>(statistics.size()) / kRowStatistics;
    cross_entropy_merge(shards, 1, statistics.data(), kRowStatistics, cols, 0, 9, &max, &log_sum,
                        &loss);
  }
  LogitShard shard(int64_t first) const {
    return {NXD_DTYPE_F64, 1, cols, cols, logits.data() + first, &target, first};
  }
  std::vector<double> gradient(double of_loss) const {
    std::vector<double> out(logits.size(), 7.0);
    for (int64_t first = 0; first < static_cast<int64_t>(logits.size()); first += cols) {
      cross_entropy_backward(shard(first), &max, &log_sum, &of_loss, 0, 9, out.data() + first,
                             cols);
    }
    return out;
  }
  std::vector<double> logits;
  int64_t target, cols;
  double max = 0, log_sum = 0, loss = 0;
};

// As in f32: a shard that sees nothing changes nothing, and a row without a gradient has none
// whatever its logits are.
void rows_in_f64(void**) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const WideRow split({-kInf, -kInf, 1, 3}, 2, 2), whole({1, 3}, 2, 0);
  assert_true(std::fabs(split.loss - (2 + std::log1p(std::exp(-2.0)))) < 1e-14);
  assert_true(split.loss == whole.loss);
  const std::vector<double> gradient = split.gradient(1);
  assert_true(gradient[0] == 0 && gradient[1] == 0 && gradient[2] < 0 && gradient[3] > 0);
  for (const double none : WideRow({NAN, 1}, 2, 1).gradient(0)) assert_true(none == 0);
}

void no_vocabulary(void**) {
  check_vocabulary(1);
  for (const int64_t vocabulary : {0, -1}) {
    nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "expected a positive vocabulary, got",
                        [&] { check_vocabulary(vocabulary); });
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(statistics),        cmocka_unit_test(gradients),
      cmocka_unit_test(shards_add_up),     cmocka_unit_test(gradient_is_the_slope),
      cmocka_unit_test(non_finite_logits), cmocka_unit_test(no_columns),
      cmocka_unit_test(rows_in_f64),       cmocka_unit_test(no_vocabulary),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
