#include "core/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "core/base/profiler.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/two_vectors-inl.h"
#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// f32 sums run over this many columns at most, then go on in f64.
constexpr int64_t kSumCols = 4096;

template <class T>
HWY_INLINE const T* row_of(const LogitShard& shard, int64_t row) {
  return static_cast<const T*>(shard.logits) + row * shard.ld;
}

template <class T>
float row_max(const T* x, int64_t cols) {
  Accumulators largest(-HUGE_VALF);
  sweep_two_sums<T>(cols, [&](auto part, int64_t i, auto lanes) NXD_INLINE_LAMBDA {
    const auto group = lanes.load(x + i);
    for (int k = 0; k < lanes.kVectors; ++k) {
      // NaN compares as not greater, so it is passed over.
      const V v = lanes.fill(group.v[k], -HUGE_VALF), so_far = largest.v[part + k];
      largest.v[part + k] = hn::IfThenElse(hn::Gt(v, so_far), v, so_far);
    }
  });
  return largest.max();
}

template <class T>
void row_sums(const T* x, int64_t cols, float max, double& sum_exp, double& sum) {
  const V shift = set(max);
  for (int64_t start = 0; start < cols; start += kSumCols) {
    const T* part_x = x + start;
    Accumulators exps(0);
    Accumulators values(0);
    const int64_t count = std::min(kSumCols, cols - start);
    sweep_two_sums<T>(count, [&](auto part, int64_t i, auto lanes) NXD_INLINE_LAMBDA {
      const auto v = lanes.load(part_x + i);
      for (int k = 0; k < lanes.kVectors; ++k) {
        const V e = lanes.fill(exp_below<float>(hn::Sub(v.v[k], shift)), 0);
        exps.v[part + k] = hn::Add(exps.v[part + k], e);
        const V below = lanes.fill(hn::Sub(v.v[k], shift), 0);
        values.v[part + k] = hn::Add(values.v[part + k], below);
      }
    });
    sum_exp += static_cast<double>(exps.sum());
    sum += static_cast<double>(values.sum());
  }
}

HWY_INLINE float as_float(float x) { return x; }
HWY_INLINE float as_float(Bf16 x) { return to_float(x); }
HWY_INLINE void assign(float& to, float x) { to = x; }
HWY_INLINE void assign(Bf16& to, float x) { to = to_bf16(x); }

void Statistics(const LogitShard& shard, int64_t begin, int64_t end, float* out) {
  with_dtype(shard.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(shard, r);
      const float max = row_max(x, shard.cols);
      double exps = 0;
      double values = 0;
      row_sums(x, shard.cols, max == -HUGE_VALF ? 0.0F : max, exps, values);
      const int64_t target = shard.target_col(r);
      out[r] = max;
      out[shard.rows + r] = static_cast<float>(exps);
      out[2 * shard.rows + r] = target < 0 ? 0.0F : as_float(x[target]);
      out[3 * shard.rows + r] = static_cast<float>(values);
    }
  });
}

// Values that the gradient of a row needs besides its logits.
struct RowGradient {
  float max, log_sum, grad;
  float hit, everywhere;  // 1 - s and s/V
  int64_t target;         // -1: in another shard
};

template <class T, class Out>
HWY_INLINE void backward_row(const RowGradient& row, int64_t cols, const T* x, Out* y) {
  // Set by itself, from the logit, so that bf16 rounds once; read before it is overwritten.
  const float logit = row.target < 0 ? 0.0F : as_float(x[row.target]);
  const V max = set(row.max);
  const V log_sum = set(row.log_sum);
  const V less = set(row.everywhere);
  const V factor = set(row.grad);
  sweep_two<T>(cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
    const auto gradient = [&](V v) NXD_INLINE_LAMBDA {
      const V p = exp_below<Out>(hn::Sub(hn::Sub(v, max), log_sum));
      return hn::Mul(hn::Sub(p, less), factor);
    };
    lanes.store(each(gradient, lanes.load(x + i)), y + i);
  });
  if (row.target < 0) return;
  // 1 - p as a difference of exponentials, where p is all but 1, keeps its leading digits.
  const double p_less_one =
      std::expm1(static_cast<double>(logit - row.max) - static_cast<double>(row.log_sum));
  const double rest = 1.0 - static_cast<double>(row.hit) - static_cast<double>(row.everywhere);
  assign(y[row.target], static_cast<float>((p_less_one + rest) * static_cast<double>(row.grad)));
}

void Backward(const LogitShard& shard, int64_t begin, int64_t end, const float* max,
              const float* log_sum, const float* grad_row, float hit, float everywhere,
              nxd_dtype_t out_dtype, void* out, int64_t out_ld) {
  with_dtype(shard.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    with_dtype(out_dtype, [&](auto result) HWY_ATTR {
      using Out = decltype(result);
      for (int64_t r = begin; r < end; ++r) {
        Out* y = static_cast<Out*>(out) + r * out_ld;
        if (grad_row[r] == 0.0F) {
          std::fill(y, y + shard.cols, Out{});
          continue;
        }
        const RowGradient row{max[r], log_sum[r], grad_row[r],
                              hit,    everywhere, shard.target_col(r)};
        backward_row(row, shard.cols, row_of<T>(shard, r), y);
      }
    });
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(Statistics);
HWY_EXPORT(Backward);

}  // namespace

void check_vocabulary(int64_t vocabulary) {
  check_argument(vocabulary > 0, "cross entropy: expected a positive vocabulary, got ", vocabulary);
}

void cross_entropy_statistics(const LogitShard& shard, float* out) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  parallel_ranges(shard.rows, shard.cols * kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Statistics)(shard, begin, end, out);
  });
}

void cross_entropy_backward(const LogitShard& shard, const float* max, const float* log_sum,
                            const float* grad_row, double smoothing, int64_t vocabulary,
                            nxd_dtype_t out_dtype, void* out, int64_t out_ld) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  check_vocabulary(vocabulary);
  const auto hit = static_cast<float>(1.0 - smoothing);
  const auto everywhere = static_cast<float>(smoothing / static_cast<double>(vocabulary));
  parallel_ranges(shard.rows, shard.cols * kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Backward)
    (shard, begin, end, max, log_sum, grad_row, hit, everywhere, out_dtype, out, out_ld);
  });
}

}  // namespace nxd::kernels
#endif
