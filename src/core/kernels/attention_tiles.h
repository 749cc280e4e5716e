#pragma once

#include <cstdint>

// The products of f32 attention and what happens to scores between them, tile by tile. A tile's
// sums stay in registers while the keys, values or queries of its panel stay in the first-level
// cache. Every element is summed in an order that depends on the shape alone, so any division of
// the work gives the same bits.
namespace nxd::kernels {

// Rows of packed blocks are padded to these, which suit all widths of vectors.
constexpr int64_t kTileKeys = 96;  // keys in panels, and gradients of keys
constexpr int64_t kTileRows = 12;  // queries
constexpr int64_t kTileDims = 16;  // head_dim

constexpr int64_t padded(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

// [rows, dims] with element stride row_stride to panels for AttentionHead: of a few rows each,
// transposed, [padded(rows, kTileKeys) / panel][dims][panel], zeros past the last row.
void pack_panels(const float* from, int64_t row_stride, int64_t rows, int64_t dims, float* to);

// The same to rows of padded(dims, kTileDims), dense; zeros in the rest, and up to padded_rows.
void pack_rows(const float* from, int64_t row_stride, int64_t rows, int64_t dims,
               int64_t padded_rows, float* to);

// A key/value head as its queries see it. Query row r sees the keys of [begin(r), end(r)).
struct AttentionHead {
  int64_t length = 0;    // keys
  int64_t head_dim = 0;  // width = padded(head_dim, kTileDims)
  int64_t width = 0;
  const float* key_panels = nullptr;
  const float* value_panels = nullptr;  // backward
  const float* keys = nullptr;          // backward, rows
  const float* values = nullptr;        // forward, rows
  const float* bias = nullptr;          // [padded(length, kTileKeys)]: 0 or -infinity; null: zeros
  float scale = 1;
  bool causal = false;
  int64_t offset = 0;
  int64_t window = 0;

  int64_t end(int64_t row) const {
    if (!causal) return length;
    const int64_t limit = row + offset + 1;
    return limit < 0 ? 0 : limit < length ? limit : length;
  }
  int64_t begin(int64_t row) const {
    const int64_t limit = window == 0 ? 0 : row + offset + 1 - window;
    return limit < 0 ? 0 : limit < length ? limit : length;
  }
};

// Queries of a head, from first_row on, packed to rows.
struct AttentionRows {
  int64_t first_row = 0;
  int64_t rows = 0;
  const float* queries = nullptr;  // [padded(rows, kTileRows), width]
};

constexpr int64_t kForwardRows = 48;   // queries of a block, a multiple of kTileRows
constexpr int64_t kForwardKeys = 480;  // keys of a block, a multiple of kTileKeys

// Floats of scratch that attention_tiles_forward needs.
constexpr int64_t kForwardScratch = kForwardRows * (kForwardKeys + 2 * kTileDims);

// sums [padded rows, width] = exp(scores - max) values, with the rows' maxima and sums of
// exponentials: -infinity and 0 where a row sees nothing.
void attention_tiles_forward(const AttentionHead& head, const AttentionRows& rows, float* scratch,
                             float* max, float* sum, float* sums);

constexpr int64_t kBackwardRows = 96;

// Queries with their gradients, and a block of scores.
struct AttentionGradients {
  AttentionRows rows;
  const float* grads = nullptr;    // of the outputs, packed as queries
  const float* maxima = nullptr;   // [padded rows], +infinity past the last
  const float* factors = nullptr;  // [padded rows], 0 past the last
  const float* delta = nullptr;    // [padded rows]
  int64_t first_key = 0;           // of the block, a multiple of kTileKeys
  int64_t stride = 0;              // of the rows below
  float* probabilities = nullptr;  // [padded rows, keys of the block]
  float* score_grads = nullptr;
};

// Probabilities and score gradients of keys begin ... end of the head, multiples of kTileKeys.
void attention_tiles_scores(const AttentionHead& head, const AttentionGradients& block,
                            int64_t begin, int64_t end);

// dk += score gradients^T queries, dv += probabilities^T grads, of keys begin ... end, multiples of
// kTileRows. dk and dv are of the whole head, [padded(length, kTileKeys), width].
void attention_tiles_keys(const AttentionHead& head, const AttentionGradients& block, int64_t begin,
                          int64_t end, float* dk, float* dv);

// dq [padded rows, width] += score gradients keys, of rows begin ... end of the block, multiples of
// kTileRows, over keys up to end_key.
void attention_tiles_queries(const AttentionHead& head, const AttentionGradients& block,
                             int64_t begin, int64_t end, int64_t end_key, float* dq);

}  // namespace nxd::kernels
