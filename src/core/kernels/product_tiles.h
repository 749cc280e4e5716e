#pragma once

#include <cstdint>

#include "core/kernels/gemm.h"

namespace nxd::kernels {

// A product, or a tile of one, and how it is computed: the whole product decides for its tiles.
struct Product : GemmArgs {
  // args: checked, no size 0, strides of single rows normalized.
  explicit Product(const GemmArgs& args);

  // f32 through dnnl_sgemm.
  bool takes_sgemm() const { return large && in_dtype == NXD_DTYPE_F32 && !bias; }

  bool large;                         // operands leave the cache: blocks of them are copied
  bool sums_fit;                      // f32 sums of the whole result may be held
  bool copies_a, copies_b, copies_c;  // made dense where they are not
};

// A product as products of some rows and some columns of C each.
class ProductTiles {
 public:
  // As many as suit the threads; 0 threads: as suit the shape, whoever computes them.
  ProductTiles(const Product& product, int64_t threads);

  // oneDNN's sgemm for AVX2 copies blocks of both operands where 1 / rows + 1 / columns is less
  // than a threshold, and else reads them where they lie, which is half as fast. Tiles of a product
  // that is copied are copied too, as many as suit the threads if the product has so many.
  static bool is_copied_for_avx2(const Product& product);
  static ProductTiles copied_for_avx2(const Product& product, int64_t threads);

  int64_t count() const { return rows_.count * columns_.count; }
  Product at(int64_t index) const;

 private:
  // Parts of one dimension: they begin at multiples of the unit, and the last one has the rest too.
  struct Parts {
    int64_t begin(int64_t index) const { return units * index / count * unit; }
    int64_t count = 1, units = 1, unit = 1;
  };

  explicit ProductTiles(const Product& product) : product_(product) {}
  void divide_for(int64_t threads);
  void divide_by_shape();
  void divide(bool by_columns, int64_t tiles, int64_t unit);

  const Product& product_;
  Parts rows_, columns_;
};

}  // namespace nxd::kernels
