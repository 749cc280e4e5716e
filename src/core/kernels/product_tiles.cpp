#include "core/kernels/product_tiles.h"

#include <algorithm>

#include "core/base/dtype.h"

namespace nxd::kernels {
namespace {

// oneDNN takes its slow path when a row stride is not the row's length. Copying pays from about
// this many multiplications per copied element on.
constexpr int64_t kCopyPays = 48;

// oneDNN's matmul reads operands where they lie. From about this many multiplications on they leave
// the cache, and copying blocks of them into the order of the inner loop pays; rows that are no
// multiple of the vector's length then cost nothing.
constexpr int64_t kPackingPays = 1 << 26;

// The most memory for sums that cannot be split.
constexpr int64_t kMostSumBytes = 64 << 20;

// A team divides products from this many multiplications on, into tiles of some rows or columns:
// of at least a unit, and of at least the size where each thread gets several. Each tile copies all
// of the other operand, so few are better; but where other programs run a thread that gets less of
// its core then takes fewer of them.
constexpr int64_t kWorthSplitting = 1 << 20;
constexpr int64_t kTileUnit = 64;
constexpr int64_t kTileSize = 512;
constexpr int64_t kTilesPerThread = 4;

// Tiles that one thread forms too, so that they must cost it nothing. sgemm copies a transposed B
// slowly, so that few tiles shall copy it: they are then of columns if there are enough, unless an
// inner product adds a bias, which needs a dense C. Its innermost loop takes a unit of columns.
constexpr int64_t kShapeUnit = 48;
constexpr int64_t kShapeRows = 256, kShapeColumns = 384;
constexpr int64_t kTransposedRows = 512, kTransposedColumns = 1024;
// Multiplications of a tile of a product that is not large.
constexpr int64_t kShapeWork = 1 << 23;

}  // namespace

Product::Product(const GemmArgs& args)
    : GemmArgs(args),
      large(m * n >= kPackingPays / k),
      sums_fit(m * n * static_cast<int64_t>(sizeof(float)) <= kMostSumBytes),
      copies_a(n >= kCopyPays),
      copies_b(m >= kCopyPays),
      copies_c(k >= kCopyPays) {}

ProductTiles::ProductTiles(const Product& product, int64_t threads) : product_(product) {
  if (threads == 0) {
    divide_by_shape();
  } else if (threads > 1 && product.m * product.n >= kWorthSplitting / product.k) {
    divide_for(threads);
  }
}

// Columns of C are no dense matrix.
void ProductTiles::divide_for(int64_t threads) {
  const bool few_rows = product_.m < kTileUnit * threads;
  const bool by_columns =
      few_rows || (product_.in_dtype == NXD_DTYPE_F32 && product_.n > 2 * product_.m);
  const int64_t size = by_columns ? product_.n : product_.m;
  const int64_t per_thread = std::clamp<int64_t>(size / (kTileSize * threads), 1, kTilesPerThread);
  divide(by_columns, per_thread * threads, kTileUnit);
}

void ProductTiles::divide_by_shape() {
  const int64_t m = product_.m, n = product_.n;
  const auto parts = [](int64_t size, int64_t tile) { return (size + tile / 2) / tile; };
  if (!product_.large) {
    const int64_t tiles = m * n / std::max<int64_t>(kShapeWork / product_.k, 1);
    divide(m < 2 * kTileUnit, tiles, kShapeUnit);
  } else if (product_.trans_b == Trans::kNo) {
    const bool by_columns = m < 2 * kShapeRows;
    divide(by_columns, by_columns ? parts(n, kShapeColumns) : parts(m, kShapeRows), kShapeUnit);
  } else if (product_.bias && m >= kTransposedRows / 2) {
    divide(false, std::max<int64_t>(parts(m, kTransposedRows), 2), kShapeUnit);
  } else if (n >= 2 * kTransposedColumns || m < 2 * kTransposedRows) {
    divide(true, std::max<int64_t>(parts(n, kTransposedColumns), 2), kShapeUnit);
  } else {
    divide(false, parts(m, kTransposedRows), kShapeUnit);
  }
}

void ProductTiles::divide(bool by_columns, int64_t tiles, int64_t unit) {
  by_columns_ = by_columns;
  unit_ = unit;
  units_ = std::max<int64_t>((by_columns ? product_.n : product_.m) / unit, 1);
  count_ = std::clamp<int64_t>(tiles, 1, units_);
}

// Tiles begin at a multiple of the unit; the last one has the rest too.
Product ProductTiles::at(int64_t index) const {
  Product tile = product_;
  if (count_ == 1) return tile;
  const auto in_size = static_cast<int64_t>(dtype_size(tile.in_dtype));
  const auto out_size = static_cast<int64_t>(dtype_size(tile.out_dtype));
  const bool trans_a = tile.trans_a == Trans::kYes, trans_b = tile.trans_b == Trans::kYes;
  int64_t& size = by_columns_ ? tile.n : tile.m;
  const int64_t begin = units_ * index / count_ * unit_;
  if (index + 1 < count_) size = units_ * (index + 1) / count_ * unit_;
  size -= begin;
  if (by_columns_) {
    // Rows that are dense as a whole are made so again.
    if (!trans_b && tile.ldb == product_.n) tile.copies_b = true;
    if (tile.ldc == product_.n) tile.copies_c = true;
    tile.b = static_cast<const char*>(tile.b) + begin * (trans_b ? tile.ldb : 1) * in_size;
    tile.c = static_cast<char*>(tile.c) + begin * out_size;
    if (tile.bias) tile.bias = static_cast<const char*>(tile.bias) + begin * out_size;
  } else {
    if (trans_a && tile.lda == product_.m) tile.copies_a = true;
    tile.a = static_cast<const char*>(tile.a) + begin * (trans_a ? 1 : tile.lda) * in_size;
    tile.c = static_cast<char*>(tile.c) + begin * tile.ldc * out_size;
  }
  return tile;
}

}  // namespace nxd::kernels
