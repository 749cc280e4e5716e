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

// The threshold of oneDNN on one thread, FORCE_NOCOPY_THRESH of its src/cpu/x64/gemm/
// gemm_driver.cpp. Elements of C of a tile from which on a thread gets several; the most columns of
// a tile where there is a choice, as the copies take memory; and how many rows or columns take as
// long to compute as one takes to copy.
constexpr double kCopiedBelow = 0.0038;
constexpr int64_t kCopiedTile = 1 << 20;
constexpr int64_t kCopiedMost = 2048;
constexpr double kCopyCost = 1.0 / 100;

double inverse(int64_t size) { return 1 / static_cast<double>(size); }
int64_t least_parts(int64_t size) { return (size + kCopiedMost - 1) / kCopiedMost; }

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
  Parts& parts = by_columns ? columns_ : rows_;
  parts.unit = unit;
  parts.units = std::max<int64_t>((by_columns ? product_.n : product_.m) / unit, 1);
  parts.count = std::clamp<int64_t>(tiles, 1, parts.units);
}

bool ProductTiles::is_copied_for_avx2(const Product& product) {
  return product.large && inverse(product.m) + inverse(product.n) < kCopiedBelow;
}

// Each tile copies its part of both operands, so that as few as there are threads, or some more of
// large ones, are best. Columns of C are no dense matrix, which an inner product with a bias needs.
ProductTiles ProductTiles::copied_for_avx2(const Product& product, int64_t threads) {
  const int64_t m = product.m, n = product.n;
  const int64_t of_each = std::clamp<int64_t>(m * n / (kCopiedTile * threads), 1, kTilesPerThread);
  const int64_t wanted = threads > 1 ? threads * of_each : 1;
  ProductTiles tiles(product);
  double least = 0;
  const int64_t least_rows = least_parts(m), least_columns = least_parts(n);
  for (int64_t rows = 1; rows <= std::min(std::max(wanted, least_rows), m / kShapeUnit); ++rows) {
    // The least parts of as many rows leave so much for the columns.
    const double left = kCopiedBelow - inverse(m / kShapeUnit / rows * kShapeUnit);
    if (left <= inverse(n)) break;
    const auto units = static_cast<int64_t>(1 / (left * kShapeUnit)) + 1;
    const int64_t most = product.bias ? 1 : std::max<int64_t>(n / kShapeUnit / units, 1);
    const int64_t columns = std::min(std::max((wanted + rows - 1) / rows, least_columns), most);
    // The time, in copies for each of the product's operations.
    const int64_t rounds = (rows * columns + threads - 1) / threads;
    const double share = static_cast<double>(rounds) / static_cast<double>(rows * columns);
    const double cost = share * (kCopyCost + inverse(m / rows) + inverse(n / columns));
    if (rows > least_rows && cost >= least) continue;
    least = cost;
    tiles.divide(false, rows, kShapeUnit);
    tiles.divide(true, columns, kShapeUnit);
  }
  return tiles;
}

Product ProductTiles::at(int64_t index) const {
  Product tile = product_;
  const auto in_size = static_cast<int64_t>(dtype_size(tile.in_dtype));
  const auto out_size = static_cast<int64_t>(dtype_size(tile.out_dtype));
  const bool trans_a = tile.trans_a == Trans::kYes, trans_b = tile.trans_b == Trans::kYes;
  if (columns_.count > 1) {
    const int64_t part = index % columns_.count, begin = columns_.begin(part);
    tile.n = (part + 1 < columns_.count ? columns_.begin(part + 1) : product_.n) - begin;
    // Rows that are dense as a whole are made so again.
    if (!trans_b && tile.ldb == product_.n) tile.copies_b = true;
    if (tile.ldc == product_.n) tile.copies_c = true;
    tile.b = static_cast<const char*>(tile.b) + begin * (trans_b ? tile.ldb : 1) * in_size;
    tile.c = static_cast<char*>(tile.c) + begin * out_size;
    if (tile.bias) tile.bias = static_cast<const char*>(tile.bias) + begin * out_size;
  }
  if (rows_.count > 1) {
    const int64_t part = index / columns_.count, begin = rows_.begin(part);
    tile.m = (part + 1 < rows_.count ? rows_.begin(part + 1) : product_.m) - begin;
    if (trans_a && tile.lda == product_.m) tile.copies_a = true;
    tile.a = static_cast<const char*>(tile.a) + begin * (trans_a ? 1 : tile.lda) * in_size;
    tile.c = static_cast<char*>(tile.c) + begin * tile.ldc * out_size;
  }
  return tile;
}

}  // namespace nxd::kernels
