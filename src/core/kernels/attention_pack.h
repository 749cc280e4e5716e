#pragma once

#include <cstdint>

#include "core/kernels/attention_tiles.h"
#include "nxd.h"

// Operands of attention's tiles, packed.
namespace nxd::kernels {

// A matrix of f32 or bf16 where it lies: [rows, dims], row_stride elements from row to row. It is
// packed as numbers of tile_dtype: the same, or f32.
struct SourceRows {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  nxd_dtype_t tile_dtype = NXD_DTYPE_F32;
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t rows = 0;
  int64_t dims = 0;
};

// To rows of round_up(dims, kTileDims) numbers, dense; zeros in the rest, and up to padded_rows.
void pack_rows(const SourceRows& from, int64_t padded_rows, float* to);

// Rows in pairs, [all_pairs, round_up(dims, kTileDims)] words with zeros in the rest, to panels of
// a few columns each, [all_pairs][panel]. Here come the pairs from first_pair on that hold these
// rows, up to padded_rows, an even number in words of bf16.
void pack_row_pairs(const SourceRows& from, int64_t padded_rows, int64_t first_pair,
                    int64_t all_pairs, float* to);

// Packed rows, row_stride words apart, to panels for AttentionHead: of a few rows each, transposed,
// [round_up(rows, kTileKeys) / panel][depth][panel] words, zeros past the last row.
void pack_panels(const float* from, int64_t row_stride, int64_t rows, int64_t depth, float* to);

}  // namespace nxd::kernels
