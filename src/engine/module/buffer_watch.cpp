#include "engine/module/buffer_watch.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "engine/device/device_tensor.h"

namespace nxd {
namespace {

uint32_t write_count(const at::Tensor& tensor) { return static_cast<uint32_t>(tensor._version()); }

std::shared_ptr<const at::Tensor> watched_copy_of(Buffer& buffer) {
  const at::Tensor& value = buffer.value;
  std::shared_ptr<const at::Tensor> copy = buffer.copy.lock();
  if (value.is_cpu() && copy && copy->is_cpu() && copy->scalar_type() == value.scalar_type() &&
      at::equal(*copy, value)) {
    return copy;
  }
  const at::NoGradGuard no_grad;
  copy = std::make_shared<const at::Tensor>(value.detach().clone());
  buffer.copy = copy;
  return copy;
}

// Copies of the buffers that lie in one piece of memory: a copy of that, with the values found.
class AliasedCopies {
 public:
  at::Tensor of(const BufferWatch& found) {
    const at::Tensor& tensor = found.tensor();
    if (!tensor.is_cpu() || !tensor.has_storage() || tensor.numel() == 0) {
      at::Tensor& copy = of_tensor_[tensor.unsafeGetTensorImpl()];
      if (!copy.defined()) copy = found.copy().clone();
      return copy;
    }
    const Key key{tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()};
    at::Tensor& all = of_storage_[key];
    if (!all.defined()) {
      const auto count =
          static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
      all = at::empty({0}, tensor.options()).set_(tensor.storage(), 0, {count}, {1}).clone();
    }
    at::Tensor copy =
        all.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()).detach();
    copy.copy_(found.copy());
    return copy;
  }

 private:
  using Key = std::pair<const c10::StorageImpl*, at::ScalarType>;
  std::map<Key, at::Tensor> of_storage_;
  std::map<const c10::TensorImpl*, at::Tensor> of_tensor_;
};

}  // namespace

BufferWatch::BufferWatch(std::shared_ptr<Buffer> buffer)
    : buffer_(std::move(buffer)),
      tensor_(buffer_->value),
      copy_(watched_copy_of(*buffer_)),
      version_(write_count(tensor_)) {
  if (!is_recorded(tensor_)) return;
  id_ = device_value(tensor_).id;
  data_ = device_value(tensor_).data;
}

// A batch norm's running statistics change without a new version.
bool BufferWatch::is_as_found() const {
  const at::Tensor& now = buffer_->value;
  if (!now.is_same(tensor_) || write_count(now) != version_) return false;
  if (!is_recorded(now)) return at::equal(now, *copy_);
  const DeviceValue& value = device_value(now);
  return value.id == id_ && (id_ != 0 || value.data.is_same(data_));
}

// All copies come first: making one may fail.
CopiesOfBuffers::CopiesOfBuffers(const std::vector<BufferWatch>& found) {
  const at::NoGradGuard no_grad;
  AliasedCopies copies;
  std::vector<at::Tensor> made;
  kept_.reserve(found.size());
  for (const BufferWatch& each : found) made.push_back(copies.of(each));
  for (size_t i = 0; i < found.size(); ++i) {
    const std::shared_ptr<Buffer>& buffer = found[i].buffer();
    kept_.emplace_back(buffer, std::exchange(buffer->value, std::move(made[i])));
  }
}

// A buffer of two names is there twice.
CopiesOfBuffers::~CopiesOfBuffers() {
  for (auto each = kept_.rbegin(); each != kept_.rend(); ++each) {
    each->first->value = std::move(each->second);
  }
}

}  // namespace nxd
