#include "engine/device/device_copy.h"

#include <ATen/ATen.h>

#include <limits>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/kernels/memory_pool.h"

namespace nxd {
namespace {

// Stands between a storage and its memory, as the storage's deleter.
struct CopiedMemory {
  c10::DataPtr memory{};
  std::mutex mutex{};  // guards what follows
  DeviceCopyPtr copy{};
  bool is_newer = false;
};

void release(void* context) { delete static_cast<CopiedMemory*>(context); }

CopiedMemory* copied_memory(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  return memory.get_deleter() == &release ? static_cast<CopiedMemory*>(memory.get_context())
                                          : nullptr;
}

CopiedMemory& made_copied_memory(const at::Tensor& tensor) {
  if (CopiedMemory* const known = copied_memory(tensor)) return *known;
  check_internal(may_have_device_copy(tensor), "a tensor that shares its memory has no copy");
  auto own = std::make_unique<CopiedMemory>();
  CopiedMemory& result = *own;
  const c10::Storage& storage = tensor.storage();
  void* const data = storage.data_ptr().get();
  result.memory = storage.set_data_ptr(c10::DataPtr(data, own.get(), &release, at::kCPU));
  own.release();
  return result;
}

void update(const at::Tensor& tensor, CopiedMemory& memory) {
  if (!memory.is_newer) return;
  at::Tensor host = tensor.detach();
  memory.copy->copy_to(host);
  memory.is_newer = false;  // not before: a copy that fails leaves the memory out of date
}

}  // namespace

bool may_have_device_copy(const at::Tensor& tensor) {
  if (copied_memory(tensor)) return true;
  const c10::Storage& storage = tensor.storage();
  const bool is_allocated =
      storage.allocator() != nullptr || storage.data_ptr().get_deleter() == &kernels::pool_free;
  return is_allocated && tensor.numel() != 0 && tensor.is_contiguous() &&
         storage.use_count() == 1 && storage.nbytes() == tensor.nbytes();
}

at::Tensor over_shared_memory(void* memory, std::shared_ptr<void> owner, at::IntArrayRef sizes,
                              at::ScalarType dtype) {
  auto held = std::make_unique<std::shared_ptr<void>>(std::move(owner));
  auto own = std::make_unique<CopiedMemory>();
  own->memory = c10::DataPtr(
      memory, held.get(), [](void* owned) { delete static_cast<std::shared_ptr<void>*>(owned); },
      at::kCPU);
  held.release();
  CopiedMemory* const context = own.release();
  return at::for_blob(memory, sizes)
      .context(context, &release)
      .options(at::TensorOptions().dtype(dtype).device(at::kCPU))
      .target_device(at::Device(at::kCPU))
      .make_tensor();
}

void set_device_copy(const at::Tensor& tensor, DeviceCopyPtr copy, bool is_newer) {
  CopiedMemory& memory = made_copied_memory(tensor);
  const std::lock_guard<std::mutex> lock(memory.mutex);
  memory.copy.swap(copy);
  memory.is_newer = is_newer;
}

DeviceCopyPtr device_copy_of(const at::Tensor& tensor) {
  CopiedMemory* const memory = copied_memory(tensor);
  if (!memory) return nullptr;
  const std::lock_guard<std::mutex> lock(memory->mutex);
  return memory->copy;
}

void lose_device_copy(const at::Tensor& tensor) {
  CopiedMemory* const memory = copied_memory(tensor);
  if (!memory) return;
  const std::lock_guard<std::mutex> lock(memory->mutex);
  memory->copy.reset();
  if (!std::exchange(memory->is_newer, false)) return;
  at::Tensor host = tensor.detach();
  if (host.is_floating_point()) {
    host.fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    host.zero_();
  }
}

void read_from_device(const at::Tensor& tensor) {
  CopiedMemory* const memory = copied_memory(tensor);
  if (!memory) return;
  const std::lock_guard<std::mutex> lock(memory->mutex);
  update(tensor, *memory);
}

const at::Tensor& on_host(const at::Tensor& tensor) {
  CopiedMemory* const memory = copied_memory(tensor);
  if (!memory) return tensor;
  const std::lock_guard<std::mutex> lock(memory->mutex);
  update(tensor, *memory);
  memory->copy.reset();
  return tensor;
}

}  // namespace nxd
