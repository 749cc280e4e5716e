#pragma once

#include <cstdint>

#include "core/base/philox.h"
#include "core/base/round_up.h"
#include "core/kernels/attention_plan.h"
#include "nxd.h"

// The products of attention and what happens to scores between them, tile by tile. A tile's sums
// stay in registers while the keys, values or queries of its panel stay in the first-level cache.
// Every element is summed in an order that depends on the shape alone, so any division of the work
// gives the same bits.
//
// Operands lie in words of 32 bits: one number of f32, or two of bf16 that a product multiplies and
// adds as a pair. Pairs follow each other along the dimension that is summed over: along head_dim
// in rows and panels, from row to row in pairs of rows. Operands whose rows a tile reads one after
// another are panels: each has a tile's columns of all rows, dense, so that it fits the sets of the
// first-level cache whatever head_dim is.
namespace nxd::kernels {

// Numbers of a word.
constexpr int64_t words_pack(nxd_dtype_t dtype) { return dtype == NXD_DTYPE_BF16 ? 2 : 1; }

// True if tiles multiply numbers of a dtype on this processor: always those of f32.
bool has_attention_tiles(nxd_dtype_t dtype);
// The dtype that tiles multiply for operands of a dtype: this one, or f32 where there are no tiles
// of it. Packing widens the operands then.
nxd_dtype_t attention_tile_dtype(nxd_dtype_t dtype);
// True if tiles are the fastest way for a dtype. A processor with instructions for bf16 that tiles
// do not use, such as matrix registers, forms that's products by oneDNN instead.
bool prefers_attention_tiles(nxd_dtype_t dtype);

// Rows of packed blocks are padded to these, which suit all widths of vectors.
constexpr int64_t kTileKeys = 96;  // keys in panels, and gradients of keys
constexpr int64_t kTileRows = 12;  // queries
constexpr int64_t kTileDims = 16;  // head_dim

// A key/value head as its queries see it.
struct AttentionHead : SeenKeys {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int64_t head_dim = 0;                 // width = round_up(head_dim, kTileDims)
  int64_t width = 0;                    // numbers of a packed row
  const float* key_panels = nullptr;    // of depth()
  const float* value_panels = nullptr;  // backward
  const float* key_pairs = nullptr;     // backward, panels of pairs()
  const float* value_pairs = nullptr;   // forward
  const float* bias = nullptr;  // [round_up(length, kTileKeys)]: 0 or -infinity; null: zeros
  float scale = 1;
  float exponent_scale = 1;  // scale log2(e): scores are exponents of 2
  const WeightDropout* dropout = nullptr;

  // Words of a row: those that hold head_dim, and all.
  int64_t depth() const { return round_up(head_dim, words_pack(dtype)) / words_pack(dtype); }
  int64_t row_words() const { return width / words_pack(dtype); }
  // Pairs of rows.
  int64_t pairs() const { return round_up(length, words_pack(dtype)) / words_pack(dtype); }
};

// Queries of a head, from first_row on, packed to rows.
struct AttentionRows {
  int64_t first_row = 0;
  int64_t rows = 0;
  const float* queries = nullptr;  // of round_up(rows, kTileRows) rows
  uint64_t first_weight = 0;       // number of the first row's first, with dropout
};

constexpr int64_t kForwardRows = 48;   // queries of a block, a multiple of kTileRows
constexpr int64_t kForwardKeys = 480;  // keys of a block, a multiple of kTileKeys

// Rows of scores are an odd number of cache lines apart: not all in the same sets.
constexpr int64_t kForwardPadding = 3 * kTileDims;
static_assert((kForwardKeys + kForwardPadding) / kTileDims % 2 == 1);

// Words of scratch that attention_tiles_forward needs.
constexpr int64_t kForwardScratch = kForwardRows * (kForwardKeys + kForwardPadding);

// sums [padded rows, width] = 2^(scores - max) values, with the rows' maxima and sums of
// exponentials: -infinity and 0 where a row sees nothing. In bf16 exponentials are rounded to it
// for the product with the values, and summed before.
void attention_tiles_forward(const AttentionHead& head, const AttentionRows& rows, float* scratch,
                             float* max, float* sum, float* sums);

constexpr int64_t kBackwardRows = 96;

// Queries with their gradients, and a block of scores.
struct AttentionGradients {
  AttentionRows rows;
  const float* grads = nullptr;        // of the outputs, packed as queries
  const float* query_pairs = nullptr;  // both again, in panels of pairs of padded rows
  const float* grad_pairs = nullptr;
  const float* maxima = nullptr;       // [padded rows], +infinity past the last
  const float* factors = nullptr;      // [padded rows], 0 past the last
  const float* delta = nullptr;        // [padded rows]
  int64_t first_key = 0;               // of the block, a multiple of kTileKeys
  int64_t stride = 0;                  // words of the rows below
  float* probability_pairs = nullptr;  // [padded rows / pack, keys of the block], pairs of rows
  float* score_grad_pairs = nullptr;
  float* score_grads = nullptr;  // pairs of keys; in f32 the same as score_grad_pairs
  float* kept = nullptr;         // [padded rows, keys of the block]: a dropout's factors, or null
};

// A row's gradient times its output, packed as queries are, summed in the order of products of
// gradients with values. Where the row's probability is all one key's, whose values are then the
// output, score gradients are exactly 0 with it.
float attention_tiles_delta(const AttentionHead& head, const float* grad, const float* out);

// Probabilities and score gradients of keys begin ... end of the head, multiples of kTileKeys.
void attention_tiles_scores(const AttentionHead& head, const AttentionGradients& block,
                            int64_t begin, int64_t end);

// dk += score gradients^T queries, dv += probabilities^T grads, of keys begin ... end, multiples of
// kTileRows. dk and dv are of the whole head, [round_up(length, kTileKeys), width].
void attention_tiles_keys(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                          int64_t end, float* dk, float* dv);

// dq [padded rows, width] += score gradients keys, of rows begin ... end of the block, multiples of
// kTileRows, over keys up to end_key.
void attention_tiles_queries(const AttentionHead& head, const AttentionGradients& block,
                             int64_t begin, int64_t end, int64_t end_key, float* dq);

}  // namespace nxd::kernels
