#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/strided_rows.h"
#include "core/layout/shard_spec.h"
#include "nxd/dlpack.h"

namespace nxd {

// An array in memory of the CPU, of a caller's or of the library's own. It owns nothing.
struct Array {
  using Shape = ShardSpec::Shape;

  nxd_dtype_t dtype = NXD_DTYPE_F32;
  Shape shape;
  Shape strides;  // in elements
  char* data = nullptr;

  // In C order.
  static Array dense(nxd_dtype_t dtype, Shape shape, void* data);

  int dims() const { return static_cast<int>(shape.size()); }
  int64_t size(int dim) const { return shape[static_cast<size_t>(dim)]; }
  int64_t last() const { return shape.back(); }
  int64_t count() const;
  bool is_dense() const;

  // A range of one dimension.
  Array part(int dim, int64_t begin, int64_t size) const;

  kernels::StridedRows rows() const { return {dtype, dims(), shape.data(), strides.data(), data}; }
};

// An array's data must be there, or are not looked at.
enum class Data { kNeeded, kIgnored };

// Takes a caller's tensor, once all of it has been found good; INVALID_ARGUMENT names it.
Array read_array(const DLTensor* tensor, const std::string& name, Data data);
std::optional<Array> read_optional_array(const DLTensor* tensor, const std::string& name,
                                         Data data);

// Checks that no two elements of an output have one place.
void check_output(const Array& array, const std::string& name);
// Checks that an output and another array share no memory.
void check_apart(const Array& output, const std::string& name, const Array& other,
                 const std::string& other_name);

// All dimensions but the last as one: the element (i, j) lies at i * row_stride + j * col_stride.
struct Matrix {
  char* data = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 0;

  bool has_dense_rows() const { return col_stride == 1 && row_stride >= cols; }
  bool has_dense_cols() const { return row_stride == 1 && col_stride >= rows; }
};

// Nothing when the rows are not equally far apart.
std::optional<Matrix> as_matrix(const Array& array);

}  // namespace nxd
