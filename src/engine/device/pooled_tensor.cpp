#include "engine/device/pooled_tensor.h"

#include <ATen/ATen.h>

#include "core/comm/arena.h"
#include "core/kernels/memory_pool.h"

namespace nxd {
namespace {

// Collectives copy what is smaller, wherever it lies.
constexpr size_t kWorthAnArena = 4096;

size_t bytes_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
}

}  // namespace

at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  void* data = kernels::pool_allocate(bytes_of(sizes, dtype));
  return at::from_blob(data, sizes, kernels::pool_free, at::TensorOptions().dtype(dtype));
}

at::Tensor pooled_empty_like(const at::Tensor& like) {
  if (like.is_meta()) return at::empty(like.sizes(), like.options());
  return pooled_empty(like.sizes(), like.scalar_type());
}

at::Tensor exchanged_empty(const ProcessGroup& group, at::IntArrayRef sizes, at::ScalarType dtype) {
  const size_t bytes = bytes_of(sizes, dtype);
  const std::shared_ptr<Arena> arena = bytes > kWorthAnArena ? group.arena() : nullptr;
  void* data = arena ? arena->try_allocate(bytes) : nullptr;
  if (!data) return pooled_empty(sizes, dtype);
  return at::from_blob(
      data, sizes, [arena](void* block) { arena->free(block); }, at::TensorOptions().dtype(dtype));
}

}  // namespace nxd
