#include "core/kernels/gemm_f64.h"

#include <algorithm>

#include "core/base/profiler.h"
#include "core/base/round_up.h"
#include "core/base/thread_own.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/gemm_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Products by the scheme of Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008). Panels of B, as wide as two vectors, and panels of A, six rows high, are
// copied into the order in which the innermost loop reads them. That loop keeps a tile of C, six
// rows of two vectors, in registers over one block of k.
#ifndef NXD_KERNELS_GEMM_F64_CPP
#define NXD_KERNELS_GEMM_F64_CPP
namespace nxd::kernels {
namespace {

// The rows of a tile: with twelve sums, two vectors of B and one of A, 15 of AVX2's 16 registers.
constexpr int64_t kTileRows = 6;
// A panel of B of this depth stays in the first cache, and this many rows of A in the second.
constexpr int64_t kBlockDepth = 256;
constexpr int64_t kBlockRows = 12 * kTileRows;
// Columns of B that are copied at a time bound the memory for the copy.
constexpr int64_t kBlockCols = 1024;

// One tile: a [depth][kTileRows] and b [depth][width] as copied, and the rows and columns of c that
// are there.
struct DoubleTile {
  const double* a;
  const double* b;
  int64_t depth;
  double* c;
  int64_t ldc, rows, cols;
};

}  // namespace
}  // namespace nxd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// The sums of a tile are an array of vectors, whose size the compiler knows.
using Wide = hn::ScalableTag<double>;
constexpr Wide kWide{};
constexpr int64_t kWideLanes = static_cast<int64_t>(hn::MaxLanes(kWide));

int64_t DoubleTileWidth() { return 2 * kWideLanes; }

// c += a b
void MultiplyDoubleTile(const DoubleTile& tile) {
  hn::Vec<Wide> low[kTileRows], high[kTileRows];
  for (int64_t i = 0; i < kTileRows; ++i) low[i] = high[i] = hn::Zero(kWide);
  const double *a = tile.a, *b = tile.b;
  for (int64_t p = 0; p < tile.depth; ++p, a += kTileRows, b += 2 * kWideLanes) {
    const auto b_low = hn::Load(kWide, b), b_high = hn::Load(kWide, b + kWideLanes);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const auto value = hn::Set(kWide, a[i]);
      low[i] = hn::MulAdd(value, b_low, low[i]);
      high[i] = hn::MulAdd(value, b_high, high[i]);
    }
  }
  if (tile.rows == kTileRows && tile.cols == 2 * kWideLanes) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      double* c = tile.c + i * tile.ldc;
      hn::StoreU(hn::Add(hn::LoadU(kWide, c), low[i]), kWide, c);
      hn::StoreU(hn::Add(hn::LoadU(kWide, c + kWideLanes), high[i]), kWide, c + kWideLanes);
    }
    return;
  }
  double sums[2 * kWideLanes];
  for (int64_t i = 0; i < tile.rows; ++i) {
    hn::StoreU(low[i], kWide, sums);
    hn::StoreU(high[i], kWide, sums + kWideLanes);
    double* c = tile.c + i * tile.ldc;
    for (int64_t j = 0; j < tile.cols; ++j) c[j] += sums[j];
  }
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(DoubleTileWidth);
HWY_EXPORT(MultiplyDoubleTile);

// A matrix of doubles, element (i, j) at i * row + j * col.
struct Doubles {
  const double* data;
  int64_t row, col;
  double at(int64_t i, int64_t j) const { return data[i * row + j * col]; }
};

Doubles doubles(const void* data, int64_t ld, Trans trans) {
  const auto* values = static_cast<const double*>(data);
  return trans == Trans::kYes ? Doubles{values, 1, ld} : Doubles{values, ld, 1};
}

// The panels of a matrix, each of lanes rows: to[panel][column][lane]. Lanes past the matrix are 0.
void copy_panels(const Doubles& from, int64_t rows, int64_t cols, int64_t lanes, double* to) {
  for (int64_t first = 0; first < rows; first += lanes, to += cols * lanes) {
    const int64_t there = std::min(lanes, rows - first);
    if (there < lanes) std::fill_n(to, cols * lanes, 0.0);
    for (int64_t p = 0; p < cols; ++p) {
      for (int64_t i = 0; i < there; ++i) to[p * lanes + i] = from.at(first + i, p);
    }
  }
}

void start_rows(const GemmArgs& args, int64_t begin, int64_t end) {
  const auto* bias = static_cast<const double*>(args.bias);
  for (int64_t i = begin; i < end; ++i) {
    double* c = static_cast<double*>(args.c) + i * args.ldc;
    if (!args.accumulate) std::fill_n(c, args.n, 0.0);
    for (int64_t j = 0; bias && j < args.n; ++j) c[j] += bias[j];
  }
}

// A thread's memory for panels of A, and for those of B when it leads a team.
struct RowSpace : Workspace {};
struct PanelSpace : Workspace {};

// Columns first_col ... first_col + cols of a product, whose panels of B are copied.
struct Columns {
  const GemmArgs& args;
  int64_t first_col, cols, width;
  double* panels;  // [block of k][panel][depth][width]

  double* block(int64_t first) const { return panels + first * round_up(cols, width); }

  void copy() const {
    const Doubles b = doubles(args.b, args.ldb, args.trans_b);
    const int64_t blocks = (args.k + kBlockDepth - 1) / kBlockDepth;
    parallel_ranges(blocks, kBlockDepth * cols, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin * kBlockDepth; p < std::min(end * kBlockDepth, args.k);
           p += kBlockDepth) {
        const Doubles columns{&b.data[p * b.row + first_col * b.col], b.col, b.row};
        copy_panels(columns, cols, std::min(kBlockDepth, args.k - p), width, block(p));
      }
    });
  }

  // Rows begin ... end of C += rows [p, p + depth) of B times these of A, at most kBlockRows.
  void add_block(int64_t begin, int64_t end, int64_t p, double* rows) const {
    const Doubles a = doubles(args.a, args.lda, args.trans_a);
    const int64_t depth = std::min(kBlockDepth, args.k - p);
    copy_panels({&a.data[begin * a.row + p * a.col], a.row, a.col}, end - begin, depth, kTileRows,
                rows);
    for (int64_t j = 0; j < cols; j += width) {
      for (int64_t i = begin; i < end; i += kTileRows) {
        HWY_DYNAMIC_DISPATCH(MultiplyDoubleTile)
        ({rows + (i - begin) * depth, block(p) + j * depth, depth,
          static_cast<double*>(args.c) + i * args.ldc + first_col + j, args.ldc,
          std::min(kTileRows, end - i), std::min(width, cols - j)});
      }
    }
  }

  void multiply(int64_t begin, int64_t end) const {
    auto* rows = ThreadOwn<RowSpace>::get().get<double>(kBlockRows * kBlockDepth * sizeof(double));
    for (int64_t p = 0; p < args.k; p += kBlockDepth) {
      for (int64_t i = begin; i < end; i += kBlockRows) {
        add_block(i, std::min(i + kBlockRows, end), p, rows);
      }
    }
  }
};

}  // namespace

void gemm_f64(const GemmArgs& args) {
  const PhaseScope phase(args.trans_a == Trans::kYes   ? NXD_PHASE_GEMM_WEIGHT_GRAD
                         : args.trans_b == Trans::kYes ? NXD_PHASE_GEMM_FORWARD
                                                       : NXD_PHASE_GEMM_INPUT_GRAD,
                         2.0 * static_cast<double>(args.m) * static_cast<double>(args.n) *
                             static_cast<double>(args.k));
  parallel_ranges(args.m, args.n,
                  [&](int64_t begin, int64_t end) { start_rows(args, begin, end); });
  if (args.k == 0) return;
  const int64_t width = HWY_DYNAMIC_DISPATCH(DoubleTileWidth)();
  const int64_t most = round_up(std::min(args.n, kBlockCols), width);
  auto* panels =
      ThreadOwn<PanelSpace>::get().get<double>(static_cast<size_t>(args.k * most) * sizeof(double));
  for (int64_t j = 0; j < args.n; j += kBlockCols) {
    const Columns columns{args, j, std::min(kBlockCols, args.n - j), width, panels};
    columns.copy();
    const int64_t tiles = (args.m + kTileRows - 1) / kTileRows;
    parallel_ranges(tiles, kTileRows * columns.cols * args.k, [&](int64_t begin, int64_t end) {
      columns.multiply(begin * kTileRows, std::min(end * kTileRows, args.m));
    });
  }
}

}  // namespace nxd::kernels
#endif
