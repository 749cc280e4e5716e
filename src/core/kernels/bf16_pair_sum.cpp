#include "core/kernels/bf16_pair_sum.h"

#if defined(__x86_64__)
#include <immintrin.h>

// GCC takes the undefined operand of its own intrinsics for a mistake of their caller.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

// Highway 1.0 has no target with this instruction set.
#define NXD_TARGET_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))

namespace nxd::kernels {
namespace {

constexpr size_t kStep = 32;  // elements in a vector

// As in reduce.cpp: even elements in the lower halves of words, odd ones in the upper.
struct Pair {
  __m512 even, odd;
};

NXD_TARGET_BF16 inline __m512i upper_halves() {
  return _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
}

NXD_TARGET_BF16 inline Pair load_pair(const uint16_t* p) {
  const __m512i bits = _mm512_loadu_si512(p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(bits, upper_halves()))};
}

NXD_TARGET_BF16 inline __m512i round_words(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
  const __m512i rounded =
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), is_odd);
  // The lower half of a NaN is 0 here: it has come from bf16 or from an addition.
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits);
}

NXD_TARGET_BF16 __m512i round_exactly(const Pair& sum) {
  return _mm512_or_si512(_mm512_srli_epi32(round_words(sum.even), 16),
                         _mm512_and_si512(round_words(sum.odd), upper_halves()));
}

// The conversion makes zeros of subnormal numbers, so that wherever there is a zero it is made
// again without it.
NXD_TARGET_BF16 inline __m512i round_pair(const Pair& sum, __m512i turns) {
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(sum.odd, sum.even));
  const __m512i packed = _mm512_permutexvar_epi16(turns, halves);
  const bool has_zero = _mm512_testn_epi16_mask(packed, _mm512_set1_epi16(0x7FFF)) != 0;
  return __builtin_expect(has_zero, 0) ? round_exactly(sum) : packed;
}

NXD_TARGET_BF16 size_t sum_vectors(const uint16_t* a, const uint16_t* b, uint16_t* out_0,
                                   uint16_t* out_1, size_t count) {
  alignas(64) static constexpr uint16_t kTurns[kStep] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                         21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                         11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i turns = _mm512_load_si512(kTurns);
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const Pair x = load_pair(a + i), y = load_pair(b + i);
    const Pair sum{_mm512_add_ps(x.even, y.even), _mm512_add_ps(x.odd, y.odd)};
    const __m512i packed = round_pair(sum, turns);
    _mm512_storeu_si512(out_0 + i, packed);
    _mm512_storeu_si512(out_1 + i, packed);
  }
  return i;
}

}  // namespace

size_t sum_bf16_pair(const uint16_t* a, const uint16_t* b, uint16_t* out_0, uint16_t* out_1,
                     size_t count) noexcept {
  static const bool has_conversion =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512bf16");
  return has_conversion ? sum_vectors(a, b, out_0, out_1, count) : 0;
}

}  // namespace nxd::kernels

#else

namespace nxd::kernels {

size_t sum_bf16_pair(const uint16_t*, const uint16_t*, uint16_t*, uint16_t*, size_t) noexcept {
  return 0;
}

}  // namespace nxd::kernels
#endif
