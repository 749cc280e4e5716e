#include "core/tensor_parallel/matrix_product.h"

#include <algorithm>

#include "core/base/dtype.h"
#include "core/kernels/float_gemm.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {
namespace {

using kernels::Trans;

Trans trans(bool transposed) { return transposed ? Trans::kYes : Trans::kNo; }

// C = product, where C has rows, or columns, of consecutive elements.
void multiply(const Product& product, const Matrix& c, nxd_dtype_t dtype, const void* bias,
              bool accumulate) {
  const bool by_columns = !c.has_dense_rows();
  // The transpose of a product is that of the transposed operands, the other way round.
  const Operand a = by_columns ? product.b.t() : product.a;
  const Operand b = by_columns ? product.a.t() : product.b;
  kernels::GemmArgs args;
  args.m = by_columns ? c.cols : c.rows;
  args.n = by_columns ? c.rows : c.cols;
  args.k = product.inner;
  args.trans_a = trans(a.transposed);
  args.trans_b = trans(b.transposed);
  args.a = a.data;
  args.lda = a.ld;
  args.b = b.data;
  args.ldb = b.ld;
  args.c = c.data;
  args.ldc = std::max<int64_t>(by_columns ? c.col_stride : c.row_stride, args.n);
  args.in_dtype = product.dtype;
  args.out_dtype = dtype;
  args.accumulate = accumulate;
  args.bias = bias;
  kernels::float_gemm(args);
}

}  // namespace

Operand Operand::of_dense(const Array& array) { return {array.data, array.last(), false}; }

Operand Operand::from_row(int64_t row, nxd_dtype_t dtype) const {
  const int64_t elements = transposed ? row : row * ld;
  return {data + elements * static_cast<int64_t>(dtype_size(dtype)), ld, transposed};
}

MatrixInput::MatrixInput(const Array& array, Scratch& scratch) : array_(array) {
  const std::optional<Matrix> matrix = as_matrix(array);
  copies_ = !matrix || !(matrix->has_dense_rows() || matrix->has_dense_cols());
  if (copies_) {
    block_ = scratch.reserve(array.count(), 1, array.dtype, Scratch::Use::kOwn);
  } else if (matrix->has_dense_rows()) {
    operand_ = {matrix->data, matrix->row_stride, false};
  } else {
    operand_ = {matrix->data, matrix->col_stride, true};
  }
}

Operand MatrixInput::read(const Scratch& scratch) const {
  if (!copies_) return operand_;
  const Array copy = Array::dense(array_.dtype, array_.shape, scratch.at(block_));
  kernels::move_rows(array_.rows(), copy.rows());
  return Operand::of_dense(copy);
}

MatrixOutput::MatrixOutput(const Array& array, bool has_bias, Scratch& scratch) : array_(array) {
  const std::optional<Matrix> matrix = as_matrix(array);
  copies_ = !matrix || !(matrix->has_dense_rows() || (matrix->has_dense_cols() && !has_bias));
  if (!copies_) {
    direct_ = *matrix;
    return;
  }
  block_ = scratch.reserve(array.count(), 1, partial_sum_dtype(array.dtype), Scratch::Use::kOwn);
}

void MatrixOutput::write(const Product& product, const Scratch& scratch, const void* bias,
                         bool accumulate) const {
  if (!copies_) return multiply(product, direct_, array_.dtype, bias, accumulate);
  const Array sums =
      Array::dense(partial_sum_dtype(array_.dtype), array_.shape, scratch.at(block_));
  write_product(product, sums);
  kernels::move_rows(sums.rows(), array_.rows(), bias, accumulate);
}

void write_product(const Product& product, const Array& dense, const void* bias, bool accumulate) {
  multiply(product, *as_matrix(dense), dense.dtype, bias, accumulate);
}

}  // namespace nxd
