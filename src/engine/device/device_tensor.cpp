#include "engine/device/device_tensor.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <typeinfo>
#include <utility>

#include "core/base/error.h"

namespace nxd {
namespace {

namespace functional = at::functionalization::impl;

// Has sizes and a value, and no memory.
class DeviceTensorImpl final : public c10::TensorImpl {
 public:
  explicit DeviceTensorImpl(DeviceValuePtr value)
      : c10::TensorImpl(c10::DispatchKeySet{kRecordedKey, c10::getAutogradKeyFromBackend(
                                                              c10::BackendComponent::XLABit)},
                        value->meta.dtype(), c10::Device(kRecordedDeviceType, 0)),
        value_(std::move(value)) {
    set_sizes_contiguous(value_->meta.sizes());
  }

  DeviceValue& value() const { return *value_; }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override {
    auto copy = c10::make_intrusive<DeviceTensorImpl>(value_);
    copy_tensor_metadata(this, copy.get(), version, allow_change);
    return copy;
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override {
    auto copy = c10::make_intrusive<DeviceTensorImpl>(value_);
    copy_tensor_metadata(this, copy.get(), std::move(version), allow_change);
    return copy;
  }
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override {
    auto* from = static_cast<DeviceTensorImpl*>(other.get());
    copy_tensor_metadata(from, this, version_counter(), allow_tensor_metadata_change());
    value_ = from->value_;
  }

 private:
  DeviceValuePtr value_;
};

bool makes_wrappers() {
  return !c10::impl::tls_local_dispatch_key_set().excluded_.has(c10::DispatchKey::Functionalize);
}

DeviceTensorImpl& impl_in(c10::TensorImpl* impl) {
  // The device's name is a string: made for every operator it would cost more than the check.
  if (typeid(*impl) != typeid(DeviceTensorImpl)) {
    check_internal(false, "a tensor on ", impl->device().str(), " that the device did not make");
  }
  return static_cast<DeviceTensorImpl&>(*impl);
}

DeviceTensorImpl& impl_of(const at::Tensor& tensor) {
  if (!functional::isFunctionalTensor(tensor)) return impl_in(tensor.unsafeGetTensorImpl());
  at::FunctionalTensorWrapper& wrapper = *functional::unsafeGetFunctionalWrapper(tensor);
  wrapper.sync_();
  return impl_in(wrapper.value().unsafeGetTensorImpl());
}

}  // namespace

at::Tensor plain_device_tensor(DeviceValuePtr value) {
  return at::Tensor(c10::make_intrusive<DeviceTensorImpl>(std::move(value)));
}

at::Tensor device_tensor(DeviceValuePtr value) {
  at::Tensor tensor = plain_device_tensor(std::move(value));
  return makes_wrappers() ? functional::to_functional_tensor(tensor) : tensor;
}

bool is_plain(const at::Tensor& tensor) { return !functional::isFunctionalTensor(tensor); }

bool reads_a_base(const at::Tensor& tensor) {
  namespace functional = at::functionalization;
  if (!functional::impl::isFunctionalTensor(tensor)) return false;
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const at::Tensor& base = static_cast<functional::FunctionalStorageImpl*>(storage)->base();
  return !functional::impl::unsafeGetFunctionalWrapper(tensor)->value().is_same(base);
}

DeviceValue& device_value(const at::Tensor& tensor) { return impl_of(tensor).value(); }

void set_device_value(const at::Tensor& tensor, at::Tensor data) {
  DeviceTensorImpl& impl = impl_of(tensor);
  const std::vector<int64_t> sizes = data.sizes().vec();
  Recording::replace(impl.value(), std::move(data));
  impl.set_sizes_contiguous(sizes);
}

template <class Number>
DeviceValuePtr vector_on_device(const std::vector<Number>& numbers) {
  const at::Tensor out =
      at::empty({static_cast<int64_t>(numbers.size())}, c10::CppTypeToScalarType<Number>::value);
  std::memcpy(out.data_ptr(), numbers.data(), numbers.size() * sizeof(Number));
  return Recording::current()->known(out);
}
template DeviceValuePtr vector_on_device(const std::vector<double>& numbers);
template DeviceValuePtr vector_on_device(const std::vector<int32_t>& numbers);

at::Tensor on_recorded_device(at::Tensor data) {
  return device_tensor(Recording::current()->known(std::move(data)));
}

at::Tensor host_memory(const at::Tensor& tensor, const std::string& reason) {
  if (!is_recorded(tensor)) return tensor;
  Recording::current()->sync(reason);
  return Recording::value_of(device_value(tensor), reason);
}

}  // namespace nxd
