#include "core/optim/dense_order.h"

#include <algorithm>
#include <numeric>

#include "core/base/hash.h"
#include "core/kernels/strided_rows.h"

namespace nxd {
namespace {

using Shape = DenseOrder::Shape;

// True if the dimensions, from the outermost on, are as far apart as without gaps. The strides of
// dimensions with one element are of no concern.
bool is_dense(const std::vector<int>& dims, const Shape& shape, const int64_t* strides) {
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(dims[i]);
    if (shape[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

std::vector<int> c_order(size_t dims) {
  std::vector<int> order(dims);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

std::optional<DenseOrder> DenseOrder::of(const Shape& shape, const int64_t* strides) {
  std::vector<int> dims = c_order(shape.size());
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (!strides || empty || is_dense(dims, shape, strides)) return DenseOrder();
  std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    if ((shape[i] == 1) != (shape[j] == 1)) return shape[i] != 1;
    return shape[i] != 1 && strides[i] > strides[j];
  });
  if (!is_dense(dims, shape, strides)) return std::nullopt;
  DenseOrder order;
  order.dims_ = std::move(dims);
  return order;
}

uint32_t DenseOrder::digest() const {
  Hash hash;
  for (const int dim : dims_) hash.add(static_cast<uint64_t>(dim));
  return hash.folded();
}

Shape DenseOrder::in_memory(const Shape& shape) const {
  if (is_c()) return shape;
  Shape sizes;
  for (const int dim : dims_) sizes.push_back(shape[static_cast<size_t>(dim)]);
  return sizes;
}

int DenseOrder::place_of(int dim) const {
  if (is_c()) return dim;
  return static_cast<int>(std::find(dims_.begin(), dims_.end(), dim) - dims_.begin());
}

Shape DenseOrder::strides_of(const Shape& shape) const {
  const std::vector<int> dims = is_c() ? c_order(shape.size()) : dims_;
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(dims[i]);
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

void DenseOrder::copy_to_c(nxd_dtype_t dtype, const Shape& shape, const void* from,
                           void* to) const {
  const Shape mine = strides_of(shape), plain = DenseOrder().strides_of(shape);
  const auto dims = static_cast<int>(shape.size());
  kernels::move_rows({dtype, dims, shape.data(), mine.data(), from},
                     {dtype, dims, shape.data(), plain.data(), to});
}

void DenseOrder::copy_from_c(nxd_dtype_t dtype, const Shape& shape, const void* from,
                             void* to) const {
  const Shape mine = strides_of(shape), plain = DenseOrder().strides_of(shape);
  const auto dims = static_cast<int>(shape.size());
  kernels::move_rows({dtype, dims, shape.data(), plain.data(), from},
                     {dtype, dims, shape.data(), mine.data(), to});
}

}  // namespace nxd
