#include <algorithm>
#include <cmath>

#include "core/base/profiler.h"
#include "core/base/round_up.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/parallel.h"

// The losses of rows from the statistics of all shards, and plain loops over logits in f64.
namespace nxd::kernels {
namespace {

template <class T>
void merge_shards(int64_t shards, int64_t rows, const T* statistics, int64_t stride, int64_t cols,
                  double smoothing, int64_t vocabulary, T* max, T* log_sum, T* loss) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  check_vocabulary(vocabulary);
  const auto at = [&](int64_t shard, int64_t which, int64_t row) {
    return static_cast<double>(statistics[shard * stride + which * rows + row]);
  };
  const double everywhere = smoothing / static_cast<double>(vocabulary);
  for (int64_t r = 0; r < rows; ++r) {
    double most = at(0, 0, r);
    for (int64_t i = 1; i < shards; ++i) most = std::max(most, at(i, 0, r));
    double exps = 0;
    double target = 0;
    double sum = 0;  // of logits less the largest
    for (int64_t i = 0; i < shards; ++i) {
      // Without a largest logit the sum is 0 or NaN already.
      const double own = at(i, 0, r);
      exps += at(i, 1, r) * (std::isinf(own) ? 1.0 : std::exp(own - most));
      target += at(i, 2, r);
      sum += at(i, 3, r);
      if (std::isinf(own)) continue;
      const int64_t real = std::clamp<int64_t>(vocabulary - cols * i, 0, cols);
      sum += static_cast<double>(real) * (own - most);
    }
    const double log_exps = std::log(exps);
    const double smooth = smoothing == 0 ? 0 : everywhere * sum;
    max[r] = static_cast<T>(most);
    log_sum[r] = static_cast<T>(log_exps);
    loss[r] = static_cast<T>((1 - smoothing) * (most - target) - smooth + log_exps);
  }
}

const double* row_of(const LogitShard& shard, int64_t row) {
  return static_cast<const double*>(shard.logits) + row * shard.ld;
}

}  // namespace

int64_t logit_block_rows(int64_t rows, int64_t cols) {
  constexpr int64_t kBlockBytes = int64_t{16} << 20;
  constexpr int64_t kLeast = 512, kMost = 4096, kUnit = 16;
  const int64_t fitting = kBlockBytes / (cols * static_cast<int64_t>(sizeof(float)));
  const int64_t most = std::clamp(fitting, kLeast, kMost);
  const int64_t blocks = std::max<int64_t>((rows + most - 1) / most, 1);
  const int64_t even = (rows + blocks - 1) / blocks;
  return std::max<int64_t>(round_up(even, kUnit), 1);
}

void cross_entropy_merge(int64_t shards, int64_t rows, const float* statistics, int64_t stride,
                         int64_t cols, double smoothing, int64_t vocabulary, float* max,
                         float* log_sum, float* loss) {
  merge_shards(shards, rows, statistics, stride, cols, smoothing, vocabulary, max, log_sum, loss);
}

void cross_entropy_merge(int64_t shards, int64_t rows, const double* statistics, int64_t stride,
                         int64_t cols, double smoothing, int64_t vocabulary, double* max,
                         double* log_sum, double* loss) {
  merge_shards(shards, rows, statistics, stride, cols, smoothing, vocabulary, max, log_sum, loss);
}

void cross_entropy_statistics(const LogitShard& shard, double* out) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  parallel_ranges(shard.rows, shard.cols * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = row_of(shard, r);
      double most = -HUGE_VAL;
      // NaN compares as not greater, so it is passed over.
      for (int64_t i = 0; i < shard.cols; ++i) most = x[i] > most ? x[i] : most;
      const double shift = most == -HUGE_VAL ? 0 : most;
      double exps = 0;
      double values = 0;
      for (int64_t i = 0; i < shard.cols; ++i) {
        exps += std::exp(x[i] - shift);
        values += x[i] - shift;
      }
      const int64_t target = shard.target_col(r);
      out[r] = most;
      out[shard.rows + r] = exps;
      out[2 * shard.rows + r] = target < 0 ? 0 : x[target];
      out[3 * shard.rows + r] = values;
    }
  });
}

void cross_entropy_backward(const LogitShard& shard, const double* max, const double* log_sum,
                            const double* grad_row, double smoothing, int64_t vocabulary,
                            double* out, int64_t out_ld) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  check_vocabulary(vocabulary);
  const double everywhere = smoothing / static_cast<double>(vocabulary);
  parallel_ranges(shard.rows, shard.cols * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      double* y = out + r * out_ld;
      if (grad_row[r] == 0) {
        std::fill(y, y + shard.cols, 0.0);
        continue;
      }
      const double* x = row_of(shard, r);
      const int64_t target = shard.target_col(r);
      for (int64_t i = 0; i < shard.cols; ++i) {
        const double power = x[i] - max[r] - log_sum[r];
        // 1 - p as a difference of exponentials, where p is all but 1, keeps its leading digits.
        const double p = i == target ? std::expm1(power) + smoothing : std::exp(power);
        y[i] = (p - everywhere) * grad_row[r];
      }
    }
  });
}

}  // namespace nxd::kernels
