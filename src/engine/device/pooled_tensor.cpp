#include "engine/device/pooled_tensor.h"

#include <ATen/ATen.h>

#include "core/kernels/memory_pool.h"

namespace nxd {

at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  void* data = kernels::pool_allocate(bytes);
  return at::from_blob(data, sizes, kernels::pool_free, at::TensorOptions().dtype(dtype));
}

at::Tensor pooled_empty_like(const at::Tensor& like) {
  if (like.is_meta()) return at::empty(like.sizes(), like.options());
  return pooled_empty(like.sizes(), like.scalar_type());
}

}  // namespace nxd
