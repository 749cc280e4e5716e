#include "core/kernels/stochastic_rounding.h"

#include <bit>
#include <cmath>

#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/stochastic_rounding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

void CastStochastic(const RoundingSource& source, int64_t begin, int64_t end, const float* in,
                    Bf16* out) {
  sweep_random(source, begin, end, [&](int64_t i, auto lanes, auto words) HWY_ATTR {
    store_stochastic(lanes.load(in + i), words, lanes, out + i);
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(CastStochastic);

constexpr int64_t kCastWork = 4;

}  // namespace

Bf16 round_stochastic(float value, uint16_t word) {
  if (std::isnan(value)) return to_bf16(value);
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + word) >> 16U)};
}

void check_rounding_source(const RoundingSource& source, int64_t n) {
  check_argument(source.cols >= 0 && (source.cols == 0 || n % source.cols == 0),
                 "stochastic rounding: cols: expected a divisor of the ", n,
                 " elements, or 0 for one row, got ", source.cols);
  check_argument(source.cols == 0 || source.row_stride >= source.cols,
                 "stochastic rounding: row_stride: expected at least the ", source.cols,
                 " columns, got ", source.row_stride);
}

void cast_stochastic(const RoundingSource& source, int64_t n, const float* in, void* out) {
  check_rounding_source(source, n);
  parallel_ranges(n, kCastWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CastStochastic)(source, begin, end, in, static_cast<Bf16*>(out));
  });
}

}  // namespace nxd::kernels
#endif
