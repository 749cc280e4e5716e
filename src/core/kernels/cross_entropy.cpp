#include "core/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "core/base/phase_clock.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// f32 sums run over this many columns at most, then go on in f64.
constexpr int64_t kSumCols = 4096;

template <class T>
HWY_INLINE const T* row_of(const LogitShard& shard, int64_t row) {
  return static_cast<const T*>(shard.logits) + row * shard.ld;
}

// The column of the row's target, or -1 when this shard does not have it.
HWY_INLINE int64_t target_col(const LogitShard& shard, int64_t row) {
  const int64_t col = shard.targets[row] - shard.first;
  return col >= 0 && col < shard.cols ? col : -1;
}

void RowMax(const LogitShard& shard, int64_t begin, int64_t end, float* out) {
  with_dtype(shard.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(shard, r);
      Accumulators largest(-HUGE_VALF);
      sweep4(shard.cols, [&](auto part, int64_t i, auto lanes) HWY_ATTR {
        // NaN compares as not greater, so it is passed over.
        const V v = lanes.fill(lanes.load(x + i), -HUGE_VALF);
        largest.v[part()] = hn::IfThenElse(hn::Gt(v, largest.v[part()]), v, largest.v[part()]);
      });
      out[r] = largest.max();
    }
  });
}

template <class T>
void RowSums(const T* x, int64_t cols, float max, double& sum_exp, double& sum) {
  const V shift = set(max);
  for (int64_t start = 0; start < cols; start += kSumCols) {
    const T* part_x = x + start;
    Accumulators exps(0);
    Accumulators values(0);
    sweep4(std::min(kSumCols, cols - start), [&](auto part, int64_t i, auto lanes) HWY_ATTR {
      const V v = lanes.load(part_x + i);
      const V e = lanes.fill(exp_below(hn::Sub(v, shift)), 0);
      exps.v[part()] = hn::Add(exps.v[part()], e);
      values.v[part()] = hn::Add(values.v[part()], v);
    });
    sum_exp += static_cast<double>(exps.sum());
    sum += static_cast<double>(values.sum());
  }
}

HWY_INLINE float as_float(float x) { return x; }
HWY_INLINE float as_float(Bf16 x) { return to_float(x); }
HWY_INLINE void assign(float& to, float x) { to = x; }
HWY_INLINE void assign(Bf16& to, float x) { to = to_bf16(x); }

void Sums(const LogitShard& shard, int64_t begin, int64_t end, const float* max, float* sum_exp,
          float* target_logit, float* sum_logits) {
  with_dtype(shard.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(shard, r);
      double exps = 0;
      double values = 0;
      RowSums(x, shard.cols, max[r], exps, values);
      const int64_t target = target_col(shard, r);
      sum_exp[r] = static_cast<float>(exps);
      target_logit[r] = target < 0 ? 0.0F : as_float(x[target]);
      if (sum_logits) sum_logits[r] = static_cast<float>(values);
    }
  });
}

void Backward(const LogitShard& shard, int64_t begin, int64_t end, const float* lse,
              const float* grad_row, float hit, float everywhere, void* out, int64_t out_ld) {
  with_dtype(shard.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(shard, r);
      T* y = static_cast<T*>(out) + r * out_ld;
      const float grad = grad_row[r];
      if (grad == 0.0F) {
        std::fill(y, y + shard.cols, T{});
        continue;
      }
      // Set by itself, from the logit, so that bf16 rounds once; read before it is overwritten.
      const int64_t target = target_col(shard, r);
      const float logit = target < 0 ? 0.0F : as_float(x[target]);
      const V shift = set(lse[r]);
      const V less = set(everywhere);
      const V factor = set(grad);
      sweep(shard.cols, [&](int64_t i, auto lanes) HWY_ATTR {
        const V p = exp_below(hn::Sub(lanes.load(x + i), shift));
        lanes.store(hn::Mul(hn::Sub(p, less), factor), y + i);
      });
      if (target >= 0) {
        assign(y[target], (std::exp(logit - lse[r]) - everywhere - hit) * grad);
      }
    }
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(RowMax);
HWY_EXPORT(Sums);
HWY_EXPORT(Backward);

constexpr int64_t kExpWork = 4;

}  // namespace

void cross_entropy_row_max(const LogitShard& shard, float* out_max) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  parallel_ranges(shard.rows, shard.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RowMax)(shard, begin, end, out_max);
  });
}

void cross_entropy_sums(const LogitShard& shard, const float* max, float* sum_exp,
                        float* target_logit, float* sum_logits) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  parallel_ranges(shard.rows, shard.cols * kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Sums)(shard, begin, end, max, sum_exp, target_logit, sum_logits);
  });
}

void cross_entropy_backward(const LogitShard& shard, const float* lse, const float* grad_row,
                            double smoothing, int64_t vocabulary, void* out, int64_t out_ld) {
  const PhaseScope phase(NXD_PHASE_CROSS_ENTROPY);
  check_argument(vocabulary > 0, "cross entropy: expected a positive vocabulary, got ", vocabulary);
  const auto hit = static_cast<float>(1.0 - smoothing);
  const auto everywhere = static_cast<float>(smoothing / static_cast<double>(vocabulary));
  parallel_ranges(shard.rows, shard.cols * kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Backward)
    (shard, begin, end, lse, grad_row, hit, everywhere, out, out_ld);
  });
}

}  // namespace nxd::kernels
#endif
