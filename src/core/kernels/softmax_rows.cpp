#include "core/kernels/softmax_rows.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/softmax_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

// The columns that a row sees: [begin, end).
struct Visible {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

HWY_INLINE Visible visible_cols(const ScoreBlock& block, int64_t row) {
  const int64_t end = block.first_visible + row;
  const int64_t begin =
      block.window == 0 ? 0 : std::clamp<int64_t>(end - block.window, 0, block.cols);
  return {begin, std::clamp<int64_t>(end, begin, block.cols)};
}

// Zeros where the row [cols] has nothing to see.
HWY_INLINE void fill_hidden(const ScoreBlock& block, const Visible& visible, Bf16* row) {
  std::fill(row, row + visible.begin, Bf16{});
  std::fill(row + visible.end, row + block.cols, Bf16{});
}

HWY_INLINE void scale_row(float* x, int64_t n, float factor) {
  const V f = set(factor);
  sweep(n,
        [&](int64_t i, auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(x + i), f), x + i); });
}

// Score times scale plus bias.
template <bool kBias, class Lanes>
HWY_INLINE V logit(const Lanes& lanes, const float* scores, const float* bias, int64_t i, V scale,
                   V offset) {
  const V x = hn::MulAdd(lanes.load(scores + i), scale, offset);
  if constexpr (kBias) return hn::Add(x, lanes.load(bias + i));
  return x;
}

// A vector of a dropout's factors, times value.
template <bool kDropout, class Lanes>
HWY_INLINE V dropped(const Lanes& lanes, V value, const float* kept, int64_t i) {
  if constexpr (kDropout) return hn::Mul(value, lanes.load(kept + i));
  return value;
}

template <bool kBias, bool kDropout>
void Step(const ScoreBlock& block, int64_t head_dim, float* max, float* sum, float* accumulator) {
  const V scale = set(block.exponent_scale);
  for (int64_t r = 0; r < block.rows; ++r) {
    const Visible visible = visible_cols(block, r);
    const float* scores = block.scores + r * block.cols + visible.begin;
    const float* bias = kBias ? block.bias + visible.begin : nullptr;
    Bf16* row = block.probabilities + r * block.cols;
    Bf16* out = row + visible.begin;
    const float* kept = kDropout ? block.kept + r * block.cols + visible.begin : nullptr;
    Accumulators largest(-HUGE_VALF);
    sweep4(visible.size(), [&](auto part, int64_t i, auto lanes) HWY_ATTR {
      const V x = logit<kBias>(lanes, scores, bias, i, scale, hn::Zero(kD));
      largest.v[part()] = hn::Max(lanes.fill(x, -HUGE_VALF), largest.v[part()]);
    });
    const float before = max[r];
    const float now = std::max(before, largest.max());
    // Without a finite score so far 0 serves as maximum: every exponential is 0 then.
    const V offset = set(now == -HUGE_VALF ? 0.0F : -now);
    if (before != now && before != -HUGE_VALF) {
      const float shrink = std::exp2(before - now);
      sum[r] *= shrink;
      scale_row(accumulator + r * head_dim, head_dim, shrink);
    }
    max[r] = now;
    Accumulators sums(0);
    sweep4(visible.size(), [&](auto part, int64_t i, auto lanes) HWY_ATTR {
      const V p = exp2_below<4>(logit<kBias>(lanes, scores, bias, i, scale, offset));
      sums.v[part()] = hn::Add(sums.v[part()], lanes.fill(p, 0));
      lanes.store(dropped<kDropout>(lanes, p, kept, i), out + i);
    });
    sum[r] += sums.sum();
    fill_hidden(block, visible, row);
  }
}

template <bool kBias, bool kDropout>
void StepBackward(const ScoreBlock& block, const float* dprobabilities, const float* maxima,
                  const float* factors, const float* delta, Bf16* score_grads) {
  const V scale = set(block.scale), exponent_scale = set(block.exponent_scale);
  for (int64_t r = 0; r < block.rows; ++r) {
    const Visible visible = visible_cols(block, r);
    const int64_t row = r * block.cols, start = row + visible.begin;
    const float* scores = block.scores + start;
    const float* bias = kBias ? block.bias + visible.begin : nullptr;
    const float* dp = dprobabilities + start;
    const float* kept = kDropout ? block.kept + start : nullptr;
    Bf16* p_out = block.probabilities + start;
    Bf16* ds_out = score_grads + start;
    const V offset = set(-maxima[r]);
    const V factor = set(factors[r]);
    const V shift = set(delta[r]);
    sweep(visible.size(), [&](int64_t i, auto lanes) HWY_ATTR {
      const V x = logit<kBias>(lanes, scores, bias, i, exponent_scale, offset);
      const V p = hn::Mul(exp2_below<4>(x), factor);
      const V grad = dropped<kDropout>(lanes, lanes.load(dp + i), kept, i);
      const V ds = hn::Mul(hn::Mul(p, hn::Sub(grad, shift)), scale);
      lanes.store(dropped<kDropout>(lanes, p, kept, i), p_out + i);
      lanes.store(ds, ds_out + i);
    });
    fill_hidden(block, visible, block.probabilities + row);
    fill_hidden(block, visible, score_grads + row);
  }
}

// body(has a bias, has a dropout) with compile-time constants.
template <class Body>
HWY_INLINE void with_form(const ScoreBlock& block, const Body& body) {
  const auto with_dropout = [&](auto bias) HWY_ATTR {
    if (block.kept) {
      body(bias, std::true_type{});
    } else {
      body(bias, std::false_type{});
    }
  };
  if (block.bias) {
    with_dropout(std::true_type{});
  } else {
    with_dropout(std::false_type{});
  }
}

void SoftmaxStep(const ScoreBlock& block, int64_t head_dim, float* max, float* sum,
                 float* accumulator) {
  with_form(block, [&](auto bias, auto dropout) HWY_ATTR {
    Step<bias(), dropout()>(block, head_dim, max, sum, accumulator);
  });
}

void SoftmaxStepBackward(const ScoreBlock& block, const float* dprobabilities, const float* maxima,
                         const float* factors, const float* delta, Bf16* score_grads) {
  with_form(block, [&](auto bias, auto dropout) HWY_ATTR {
    StepBackward<bias(), dropout()>(block, dprobabilities, maxima, factors, delta, score_grads);
  });
}

void SoftmaxFinish(nxd_dtype_t dtype, int64_t rows, int64_t head_dim, const float* max,
                   const float* sum, const float* accumulator, int64_t accumulator_stride,
                   void* out, int64_t out_stride, float* maxima, float* factors) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = static_cast<T*>(out) + r * out_stride;
      if (sum[r] == 0.0F) {
        maxima[r] = HUGE_VALF;
        factors[r] = 0;
        std::fill(row, row + head_dim, T{});
        continue;
      }
      maxima[r] = max[r];
      factors[r] = 1.0F / sum[r];
      const V factor = set(factors[r]);
      const float* from = accumulator + r * accumulator_stride;
      sweep(head_dim, [&](int64_t i, auto lanes) HWY_ATTR {
        lanes.store(hn::Mul(lanes.load(from + i), factor), row + i);
      });
    }
  });
}

void RowDots(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* a, int64_t a_stride,
             const void* b, int64_t b_stride, float* out) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = static_cast<const T*>(a) + r * a_stride;
      const T* y = static_cast<const T*>(b) + r * b_stride;
      Accumulators sums(0);
      sweep4(cols, [&](auto part, int64_t i, auto lanes) HWY_ATTR {
        sums.v[part()] = hn::MulAdd(lanes.load(x + i), lanes.load(y + i), sums.v[part()]);
      });
      out[r] = sums.sum();
    }
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(SoftmaxStep);
HWY_EXPORT(SoftmaxStepBackward);
HWY_EXPORT(SoftmaxFinish);
HWY_EXPORT(RowDots);

}  // namespace

void softmax_step(const ScoreBlock& block, int64_t head_dim, float* max, float* sum,
                  float* accumulator) {
  HWY_DYNAMIC_DISPATCH(SoftmaxStep)(block, head_dim, max, sum, accumulator);
}

void softmax_step_backward(const ScoreBlock& block, const float* dprobabilities,
                           const float* maxima, const float* factors, const float* delta,
                           Bf16* score_grads) {
  HWY_DYNAMIC_DISPATCH(SoftmaxStepBackward)
  (block, dprobabilities, maxima, factors, delta, score_grads);
}

void softmax_finish(nxd_dtype_t dtype, int64_t rows, int64_t head_dim, const float* max,
                    const float* sum, const float* accumulator, int64_t accumulator_stride,
                    void* out, int64_t out_stride, float* maxima, float* factors) {
  HWY_DYNAMIC_DISPATCH(SoftmaxFinish)
  (dtype, rows, head_dim, max, sum, accumulator, accumulator_stride, out, out_stride, maxima,
   factors);
}

void row_dots(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* a, int64_t a_stride,
              const void* b, int64_t b_stride, float* out) {
  HWY_DYNAMIC_DISPATCH(RowDots)(dtype, rows, cols, a, a_stride, b, b_stride, out);
}

}  // namespace nxd::kernels
#endif
