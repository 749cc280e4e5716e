#include "core/tensor_parallel/array.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/base/buffer_limit.h"
#include "core/base/dtype.h"
#include "core/base/element_count.h"
#include "core/tensor_parallel/array_overlap.h"

namespace nxd {
namespace {

nxd_dtype_t dtype_of(const DLDataType& type, const std::string& name) {
  const auto is = [&](int code, int bits) {
    return type.lanes == 1 && type.code == code && type.bits == bits;
  };
  if (is(kDLFloat, 32)) return NXD_DTYPE_F32;
  if (is(kDLFloat, 64)) return NXD_DTYPE_F64;
  if (is(kDLBfloat, 16)) return NXD_DTYPE_BF16;
  if (is(kDLFloat, 16)) return NXD_DTYPE_F16;
  if (is(kDLInt, 32)) return NXD_DTYPE_I32;
  if (is(kDLInt, 64)) return NXD_DTYPE_I64;
  if (is(kDLInt, 16)) return NXD_DTYPE_I16;
  if (is(kDLInt, 8)) return NXD_DTYPE_I8;
  if (is(kDLUInt, 8)) return NXD_DTYPE_U8;
  if (is(kDLBool, 8)) return NXD_DTYPE_BOOL;
  fail(NXD_ERROR_INVALID_ARGUMENT, name, ": expected elements of an NXD_DTYPE_*, got code ",
       static_cast<int>(type.code), " with ", static_cast<int>(type.bits), " bits and ", type.lanes,
       " lanes");
}

Array::Shape c_strides(const Array::Shape& shape) {
  Array::Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

Array::Shape sizes_of(const DLTensor& tensor, const std::string& name) {
  check_argument(tensor.ndim >= 0 && tensor.ndim <= kMostDims, name, ": expected 0 to ", kMostDims,
                 " dimensions, got ", tensor.ndim);
  check_argument(tensor.shape || tensor.ndim == 0, name, ": expected ", tensor.ndim,
                 " sizes, got NULL");
  Array::Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  const auto most = static_cast<int64_t>(kBufferLimit / sizeof(double));
  for (const int64_t size : shape) {
    check_argument(size >= 0, name, ": expected sizes of at least 0, got ", shape_text(shape));
  }
  check_argument(element_count(shape, most).has_value(), name,
                 ": expected an array that fits in memory, got the shape ", shape_text(shape));
  return shape;
}

void check_strides(const Array& array, const std::string& name) {
  const auto most = static_cast<int64_t>(kBufferLimit / sizeof(double)) / kMostDims;
  for (size_t d = 0; d < array.shape.size(); ++d) {
    if (array.shape[d] <= 1) continue;
    int64_t far = 0;
    const bool fits = array.strides[d] != INT64_MIN &&
                      !__builtin_mul_overflow(array.shape[d] - 1, array.strides[d], &far) &&
                      std::abs(far) <= most;
    check_argument(fits, name, ": expected strides within memory, got ", array.strides[d],
                   " in dimension ", d, " of the shape ", shape_text(array.shape));
  }
}

}  // namespace

Array Array::dense(nxd_dtype_t dtype, Shape shape, void* data) {
  Shape strides = c_strides(shape);
  return {dtype, std::move(shape), std::move(strides), static_cast<char*>(data)};
}

int64_t Array::count() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

bool Array::is_dense() const {
  if (count() == 0) return true;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != stride) return false;
    stride *= shape[d];
  }
  return true;
}

Array Array::part(int dim, int64_t begin, int64_t size) const {
  Array part = *this;
  const auto d = static_cast<size_t>(dim);
  part.shape[d] = size;
  // Nothing lies at the data of an empty array.
  if (data && count() > 0) {
    part.data += begin * strides[d] * static_cast<int64_t>(dtype_size(dtype));
  }
  return part;
}

Array read_array(const DLTensor* tensor, const std::string& name, Data data) {
  check_argument(tensor, name, ": expected an array, got NULL");
  Array array;
  array.dtype = dtype_of(tensor->dtype, name);
  array.shape = sizes_of(*tensor, name);
  check_argument(tensor->device.device_type == kDLCPU, name,
                 ": expected memory of the CPU, got the device type ",
                 static_cast<int>(tensor->device.device_type));
  array.strides = tensor->strides && tensor->ndim > 0
                      ? Array::Shape(tensor->strides, tensor->strides + tensor->ndim)
                      : c_strides(array.shape);
  check_strides(array, name);
  check_argument(tensor->byte_offset <= kBufferLimit, name,
                 ": expected a byte_offset within memory, got ", tensor->byte_offset);
  if (data == Data::kIgnored || array.count() == 0) return array;
  check_argument(tensor->data, name, ": expected the data of ", array.count(),
                 " elements, got NULL");
  array.data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  const size_t element = dtype_size(array.dtype);
  check_argument(reinterpret_cast<uintptr_t>(array.data) % element == 0, name,
                 ": expected data aligned to ", element, " bytes, got ",
                 static_cast<void*>(array.data));
  return array;
}

std::optional<Array> read_optional_array(const DLTensor* tensor, const std::string& name,
                                         Data data) {
  if (!tensor) return std::nullopt;
  return read_array(tensor, name, data);
}

void check_output(const Array& array, const std::string& name) {
  if (array.count() == 0) return;
  check_argument(!overlaps_itself(array), name,
                 ": expected a place of its own for each element, got strides of ",
                 shape_text(array.strides), " for the shape ", shape_text(array.shape));
}

void check_apart(const Array& output, const std::string& name, const Array& other,
                 const std::string& other_name) {
  check_argument(!overlap(output, other), name, ": expected memory apart from that of ", other_name,
                 ", got arrays that overlap");
}

std::optional<Matrix> as_matrix(const Array& array) {
  Matrix matrix;
  matrix.data = array.data;
  if (array.shape.empty()) return Matrix{array.data, 1, 1, 1, 1};
  matrix.cols = array.shape.back();
  matrix.rows = 1;
  matrix.row_stride = matrix.cols;
  for (size_t d = 0; d + 1 < array.shape.size(); ++d) matrix.rows *= array.shape[d];
  matrix.col_stride = matrix.cols == 1 ? 1 : array.strides.back();
  if (matrix.rows == 0 || matrix.cols == 0) {
    matrix.row_stride = matrix.cols;
    matrix.col_stride = 1;
    return matrix;
  }
  int64_t expected = 0;
  for (size_t d = array.shape.size() - 1; d-- > 0;) {
    if (array.shape[d] == 1) continue;
    if (expected == 0) {
      matrix.row_stride = array.strides[d];
    } else if (array.strides[d] != expected) {
      return std::nullopt;
    }
    expected = array.strides[d] * array.shape[d];
    if (expected == 0) return std::nullopt;  // one row for several, which a product cannot read
  }
  return matrix;
}

}  // namespace nxd
