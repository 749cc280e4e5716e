#pragma once

#include <cstdint>

#include "nxd.h"

// Arrays with any strides, as rows: the last dimension is a row, the others number the rows. An
// array without dimensions is one row of one element. No result depends on the number of threads.
namespace nxd::kernels {

struct StridedRows {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int dims = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // in elements
  const void* data = nullptr;
};

// Rows that there are, elements of a row, and how far these are apart.
struct RowExtent {
  int64_t rows = 1, cols = 1, stride = 1;
};
RowExtent extent_of(const StridedRows& array);
// Elements from the array's first one to that of a row.
int64_t row_place(const StridedRows& array, int64_t row);
template <class T>
T* row_at(const StridedRows& array, int64_t row) {
  return static_cast<T*>(const_cast<void*>(array.data)) + row_place(array, row);
}

// to = from [+ bias] [+ to], rounded once; the two have one shape. bias: [row], dense, of the dtype
// of to; may be null. Any dtype without bias and accumulate, where the dtypes are equal; else
// floats, of equal dtypes or F32 and a 16-bit one. from may be to, with the same strides; the two
// may not overlap otherwise.
void move_rows(const StridedRows& from, const StridedRows& to, const void* bias = nullptr,
               bool accumulate = false);

// to = from factor where keep is not 0, else from 0: the factor and the product are rounded to the
// dtype, which both have and is a float's. keep is of one byte per element; all have one shape.
// from may be to, with the same strides.
void scale_kept(const StridedRows& from, const StridedRows& keep, double factor,
                const StridedRows& to);

// to = 0.
void zero_rows(const StridedRows& to);

// out = the sum of all rows [+ out]; out has one dimension, and the dtype of in, or F32 for a
// 16-bit one. Sums are formed in f64, row after row.
void sum_rows(const StridedRows& in, const StridedRows& out, bool accumulate);

}  // namespace nxd::kernels
