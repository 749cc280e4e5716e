// nxd/tensor.h: tensors.
#include "capi/engine_handles.h"
#include "engine/tensor/aten_pool.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dlpack_exchange.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/host_copy.h"

using namespace nxd;

namespace {

// The last part of nxd_tensor_get_shape and nxd_tensor_get_strides.
void give_list(at::IntArrayRef values, int64_t* out, size_t cap, size_t& out_count,
               const char* name) {
  check_argument(out || cap == 0, name, ": expected room for ", cap, " values, got NULL");
  out_count = values.size();
  check_argument(cap == 0 || values.size() <= cap, "cap: expected at least ", values.size(),
                 ", got ", cap);
  if (cap > 0) std::copy(values.begin(), values.end(), out);
}

}  // namespace

nxd_status_t nxd_memory_set_aten_pool(int32_t on) {
  return guard([&] {
    flag(on, "on");
    set_aten_pool(on == 1);
  });
}

nxd_status_t nxd_memory_get_aten_pool(int32_t* out_on) {
  return guard([&] { output(out_on, "out_on") = aten_pool_is_on() ? 1 : 0; });
}

nxd_status_t nxd_tensor_create(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype,
                               nxd_device_t device, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(create_zeros(shape, ndim, dtype, device));
  });
}

nxd_status_t nxd_tensor_from_data(const void* data, size_t bytes, const int64_t* shape,
                                  int32_t ndim, nxd_dtype_t dtype, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(create_from_data(data, bytes, shape, ndim, dtype));
  });
}

nxd_status_t nxd_tensor_from_dltensor(const DLTensor* source, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = wrap(copy_dltensor(required(source, "source")));
  });
}

nxd_status_t nxd_tensor_from_dlpack(DLManagedTensor* managed, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    auto handle = std::make_unique<nxd_tensor>();
    handle->value = import_dlpack(&required(managed, "managed"));
    out = handle.release();
  });
}

nxd_status_t nxd_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed,
                                              nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    auto handle = std::make_unique<nxd_tensor>();
    handle->value = import_dlpack(&required(managed, "managed"));
    out = handle.release();
  });
}

nxd_status_t nxd_tensor_to_dlpack(nxd_tensor_t* tensor, DLManagedTensor** out_managed) {
  return guard([&] {
    auto& out = output(out_managed, "out_managed");
    export_dlpack(unwrap(tensor, "tensor"), out);
  });
}

nxd_status_t nxd_tensor_to_dlpack_versioned(nxd_tensor_t* tensor,
                                            struct DLManagedTensorVersioned** out_managed) {
  return guard([&] {
    auto& out = output(out_managed, "out_managed");
    export_dlpack(unwrap(tensor, "tensor"), out);
  });
}

nxd_status_t nxd_tensor_retain(nxd_tensor_t* tensor, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    std::unique_ptr<nxd_tensor> handle(wrap(unwrap(tensor, "tensor")));
    handle->retained_from =
        tensor->parameter ? tensor->parameter->weak_from_this() : tensor->retained_from;
    out = handle.release();
  });
}

void nxd_tensor_destroy(nxd_tensor_t* tensor) {
  const Uncancelled whole_call;
  delete tensor;
}

nxd_status_t nxd_tensor_get_ndim(nxd_tensor_t* tensor, int32_t* out_ndim) {
  return guard([&] {
    auto& out = output(out_ndim, "out_ndim");
    out = static_cast<int32_t>(unwrap(tensor, "tensor").dim());
  });
}

nxd_status_t nxd_tensor_get_shape(nxd_tensor_t* tensor, int64_t* shape, size_t cap,
                                  size_t* out_ndim) {
  return guard([&] {
    auto& out = output(out_ndim, "out_ndim");
    give_list(unwrap(tensor, "tensor").sizes(), shape, cap, out, "shape");
  });
}

nxd_status_t nxd_tensor_get_strides(nxd_tensor_t* tensor, int64_t* strides, size_t cap,
                                    size_t* out_ndim) {
  return guard([&] {
    auto& out = output(out_ndim, "out_ndim");
    give_list(unwrap(tensor, "tensor").strides(), strides, cap, out, "strides");
  });
}

nxd_status_t nxd_tensor_get_dtype(nxd_tensor_t* tensor, nxd_dtype_t* out_dtype) {
  return guard([&] {
    auto& out = output(out_dtype, "out_dtype");
    out = to_nxd_dtype(unwrap(tensor, "tensor").scalar_type());
  });
}

nxd_status_t nxd_tensor_get_device(nxd_tensor_t* tensor, nxd_device_t* out_device) {
  return guard([&] {
    auto& out = output(out_device, "out_device");
    out = from_device(unwrap(tensor, "tensor").device());
  });
}

nxd_status_t nxd_tensor_get_element_count(nxd_tensor_t* tensor, int64_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(tensor, "tensor").numel();
  });
}

nxd_status_t nxd_tensor_get_data(nxd_tensor_t* tensor, void** out_data) {
  return guard([&] {
    auto& out = output(out_data, "out_data");
    at::Tensor& value = unwrap(tensor, "tensor");
    check_access(value, CallTracer::Access::kWrite, "nxd_tensor_get_data");
    check_host_memory(value, "tensor");
    out = value.data_ptr();
  });
}

nxd_status_t nxd_tensor_mark_modified(nxd_tensor_t* tensor) {
  return guard([&] { unwrap(tensor, "tensor").unsafeGetTensorImpl()->bump_version(); });
}

nxd_status_t nxd_tensor_copy_to_host(nxd_tensor_t* tensor, void* buf, size_t bytes) {
  return guard([&] { copy_to_host(unwrap(tensor, "tensor"), buf, bytes); });
}

nxd_status_t nxd_tensor_copy_from_host(nxd_tensor_t* tensor, const void* buf, size_t bytes) {
  return guard([&] { copy_from_host(unwrap(tensor, "tensor"), buf, bytes); });
}

nxd_status_t nxd_tensor_get_item(nxd_tensor_t* tensor, double* out_value) {
  return guard([&] {
    auto& out = output(out_value, "out_value");
    out = item_of(unwrap(tensor, "tensor"));
  });
}
