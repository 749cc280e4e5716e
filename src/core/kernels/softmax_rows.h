#pragma once

#include <cstdint>

#include "core/kernels/bf16.h"
#include "nxd.h"

// The row work of blocked attention: what happens to a block of scores between two products.
namespace nxd::kernels {

// Scores of rows queries with cols keys, dense [rows, cols]. Row r sees the columns below
// first_visible + r (which may be negative or past the end), with a window the last of these.
struct ScoreBlock {
  int64_t rows = 0;
  int64_t cols = 0;
  float* scores = nullptr;
  const float* bias = nullptr;  // [cols], added to the scaled scores: 0 or -infinity; null: zeros
  int64_t first_visible = 0;
  int64_t window = 0;  // columns that a row sees at most; 0: all
  float scale = 1;
  float exponent_scale = 1;       // scale log2(e)
  Bf16* probabilities = nullptr;  // [rows, cols], written; times the factors of kept
  const float* kept = nullptr;    // [rows, cols]: a dropout's factors; null: ones
};

// Online softmax (Milakov and Gimelshein 2018, as in FlashAttention): probabilities relative to the
// largest score so far. max and sum [rows] start as -infinity and 0; where a maximum grows, its sum
// and its row of the accumulator [rows, head_dim] shrink accordingly.
void softmax_step(const ScoreBlock& block, int64_t head_dim, float* max, float* sum,
                  float* accumulator);

// out = accumulator / sum in dtype, rows their strides apart; maxima = max and factors =
// 1 / sum, for softmax_step_backward. Rows that saw nothing give 0, and +infinity and 0, without
// the accumulator being read.
void softmax_finish(nxd_dtype_t dtype, int64_t rows, int64_t head_dim, const float* max,
                    const float* sum, const float* accumulator, int64_t accumulator_stride,
                    void* out, int64_t out_stride, float* maxima, float* factors);

// p = 2^(scores exponent_scale - maxima) factors; score_grads = p (dprobabilities kept - delta)
// scale, and probabilities = p kept, [rows, cols].
void softmax_step_backward(const ScoreBlock& block, const float* dprobabilities,
                           const float* maxima, const float* factors, const float* delta,
                           Bf16* score_grads);

// out[r] = a[r] . b[r] in f32; rows of a and b lie their strides apart.
void row_dots(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* a, int64_t a_stride,
              const void* b, int64_t b_stride, float* out);

}  // namespace nxd::kernels
