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

// A product as products of some rows or some columns of C each.
class ProductTiles {
 public:
  // As many as suit the threads; 0 threads: as suit the shape, whoever computes them.
  ProductTiles(const Product& product, int64_t threads);

  int64_t count() const { return count_; }
  Product at(int64_t index) const;

 private:
  void divide_for(int64_t threads);
  void divide_by_shape();
  void divide(bool by_columns, int64_t tiles, int64_t unit);

  const Product& product_;
  int64_t count_ = 1, units_ = 1, unit_ = 1;
  bool by_columns_ = false;
};

}  // namespace nxd::kernels
