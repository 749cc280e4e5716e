#include "engine/tensor/host_copy.h"

#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/element_count.h"
#include "engine/device/device_tensor.h"
#include "engine/device/view_history.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

void check_bytes(const char* name, size_t count, size_t element, size_t bytes) {
  const size_t expected = count * element;
  check_argument(bytes == expected, name, ": expected ", expected, " bytes for ", count,
                 " elements of ", element, " bytes, got ", bytes);
}

void check_bytes(const char* name, const at::Tensor& tensor, size_t bytes) {
  check_bytes(name, static_cast<size_t>(tensor.numel()), tensor.element_size(), bytes);
}

}  // namespace

std::vector<int64_t> checked_shape(const int64_t* shape, int32_t ndim, size_t element_size) {
  check_argument(ndim >= 0 && ndim <= kMaxDimensions, "ndim: expected 0 to ", kMaxDimensions,
                 ", got ", ndim);
  check_argument(shape || ndim == 0, "shape: expected ", ndim, " sizes, got NULL");
  for (int32_t i = 0; i < ndim; ++i) {
    check_argument(shape[i] >= 0, "shape[", i, "]: expected 0 or more, got ", shape[i]);
  }
  const std::span<const int64_t> sizes(shape, static_cast<size_t>(ndim));
  const int64_t most = INT64_MAX / static_cast<int64_t>(element_size);
  check_argument(element_count(sizes, most).has_value(),
                 "shape: the product of the sizes exceeds int64");
  return {sizes.begin(), sizes.end()};
}

at::Tensor create_zeros(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype,
                        nxd_device_t device) {
  const at::ScalarType type = to_scalar_type(dtype);
  const auto options = at::TensorOptions().dtype(type).device(to_device(device));
  const std::vector<int64_t> sizes = checked_shape(shape, ndim, c10::elementSize(type));
  return device == NXD_DEVICE_META ? at::empty(sizes, options) : at::zeros(sizes, options);
}

at::Tensor create_from_data(const void* data, size_t bytes, const int64_t* shape, int32_t ndim,
                            nxd_dtype_t dtype) {
  const at::ScalarType type = to_scalar_type(dtype);
  const size_t element = c10::elementSize(type);
  const std::vector<int64_t> sizes = checked_shape(shape, ndim, element);
  // Before memory is taken, of which a wrong shape may want any amount.
  check_bytes("bytes", static_cast<size_t>(*element_count(sizes, INT64_MAX)), element, bytes);
  return host_values([&] {
    at::Tensor out = at::empty(sizes, at::TensorOptions().dtype(type).device(at::kCPU));
    copy_from_host(out, data, bytes);
    return out;
  });
}

at::Tensor host_values(const std::function<at::Tensor()>& make) {
  if (!is_tracing()) return make();
  at::Tensor made;
  bool needs_grad = false;
  {
    const TracingScope unwatched(nullptr);
    made = make();
    needs_grad = made.requires_grad();
    made = made.detach();
  }
  return call_opaque("host_values", {}, [made, needs_grad](const auto&) {
    return std::vector<at::Tensor>{made.clone().set_requires_grad(needs_grad)};
  })[0];
}

void check_host_memory(const at::Tensor& tensor, const char* what) {
  if (tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
      !tensor.is_conj() && !tensor.is_quantized()) {
    return;
  }
  fail(NXD_ERROR_UNSUPPORTED, what, ": expected a dense tensor in host memory, got one on device ",
       tensor.device().str(), " with layout ", tensor.layout());
}

at::Tensor moved_to(const at::Tensor& tensor, nxd_device_t device) {
  check_not_tracing("nxd_tensor_to_device");
  if (at::GradMode::is_enabled()) renew_history(tensor);
  return tensor.to(to_device(device));
}

void copy_to_host(const at::Tensor& tensor, void* buffer, size_t bytes) {
  check_access(tensor, CallTracer::Access::kRead, "nxd_tensor_copy_to_host");
  if (!is_recorded(tensor)) check_host_memory(tensor, "tensor");
  check_bytes("bytes", tensor, bytes);
  check_argument(buffer || bytes == 0, "buf: expected ", bytes, " bytes, got NULL");
  if (bytes == 0) return;
  at::NoGradGuard no_grad;
  const at::Tensor source = is_recorded(tensor) ? tensor.to(at::kCPU) : tensor.contiguous();
  std::memcpy(buffer, source.data_ptr(), bytes);
}

void copy_from_host(at::Tensor& tensor, const void* buffer, size_t bytes) {
  check_access(tensor, CallTracer::Access::kWrite, "nxd_tensor_copy_from_host");
  if (!is_recorded(tensor)) check_host_memory(tensor, "tensor");
  check_bytes("bytes", tensor, bytes);
  check_argument(buffer || bytes == 0, "data: expected ", bytes, " bytes, got NULL");
  if (bytes == 0) return;
  at::NoGradGuard no_grad;
  // Writing past autograd is what the caller asks for; the version still tells what was saved of
  // the old values that they are gone.
  const bool direct = tensor.is_contiguous() && !is_recorded(tensor);
  at::Tensor target =
      direct ? tensor : at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  std::memcpy(target.data_ptr(), buffer, bytes);
  normalise_bools(target);
  if (direct) {
    tensor.unsafeGetTensorImpl()->bump_version();
  } else {
    tensor.copy_(target);
  }
}

double item_of(const at::Tensor& tensor) {
  check_access(tensor, CallTracer::Access::kRead, "nxd_tensor_get_item");
  check_argument(tensor.numel() == 1, "tensor: expected one element, got ", tensor.numel());
  if (!is_recorded(tensor)) check_host_memory(tensor, "tensor");
  to_nxd_dtype(tensor.scalar_type());
  return tensor.item().toDouble();
}

void normalise_bools(at::Tensor& contiguous) {
  if (contiguous.scalar_type() != at::kBool) return;
  auto* bytes = static_cast<uint8_t*>(contiguous.data_ptr());
  for (int64_t i = 0; i < contiguous.numel(); ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

}  // namespace nxd
