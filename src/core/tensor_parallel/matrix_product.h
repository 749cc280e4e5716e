#pragma once

#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

// A matrix as a product reads it: rows ld elements apart, of the matrix or of its transpose.
struct Operand {
  const char* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;

  Operand t() const { return {data, ld, !transposed}; }
  // From a row of the matrix on.
  Operand from_row(int64_t row, nxd_dtype_t dtype) const;
  static Operand of_dense(const Array& array);
};

// An array that a product reads where it lies if it can, else from a dense copy.
class MatrixInput {
 public:
  MatrixInput(const Array& array, Scratch& scratch);
  // Makes the copy, if there is one; to be called once.
  Operand read(const Scratch& scratch) const;

 private:
  Array array_;
  Operand operand_;
  bool copies_;
  size_t block_ = 0;
};

// A sum of products, [rows, inner] by [inner, cols], of one dtype.
struct Product {
  nxd_dtype_t dtype;
  Operand a, b;
  int64_t inner;
};

// An array that a product is written to: where it lies if that can be, else by way of a dense
// block.
class MatrixOutput {
 public:
  // has_bias: a bias will be added to its rows.
  MatrixOutput(const Array& array, bool has_bias, Scratch& scratch);
  // array = product [+ bias] [+ array]; bias: dense, of the array's dtype; may be null.
  void write(const Product& product, const Scratch& scratch, const void* bias = nullptr,
             bool accumulate = false) const;

 private:
  Array array_;
  Matrix direct_;
  bool copies_;
  size_t block_ = 0;
};

// A dense block of any dtype that a product may have = product [+ bias] [+ block].
void write_product(const Product& product, const Array& dense, const void* bias = nullptr,
                   bool accumulate = false);

}  // namespace nxd
