#include "engine/tensor/pooled_tensor.h"

#include <ATen/ATen.h>

#include "core/comm/exchanged_buffer.h"
#include "core/comm/memory/arena.h"
#include "core/kernels/memory_pool.h"

namespace nxd {
namespace {

size_t bytes_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
}

}  // namespace

at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  void* data = kernels::pool_allocate(bytes_of(sizes, dtype));
  return at::for_blob(data, sizes)
      .context(data, &kernels::pool_free)
      .options(at::TensorOptions().dtype(dtype).device(at::kCPU))
      .target_device(at::Device(at::kCPU))
      .make_tensor();
}

at::Tensor pooled_empty_like(const at::Tensor& like) {
  if (!like.is_cpu()) return at::empty(like.sizes(), like.options());
  return pooled_empty(like.sizes(), like.scalar_type());
}

at::Tensor exchanged_empty(const ProcessGroup& group, at::IntArrayRef sizes, at::ScalarType dtype) {
  ExchangedBuffer buffer(group, bytes_of(sizes, dtype));
  const std::shared_ptr<Arena> arena = buffer.arena();
  const auto options = at::TensorOptions().dtype(dtype);
  if (!arena) return at::from_blob(buffer.release(), sizes, kernels::pool_free, options);
  return at::from_blob(
      buffer.release(), sizes, [arena](void* block) { arena->free(block); }, options);
}

}  // namespace nxd
