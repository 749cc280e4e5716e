// Custom calls of XLA over libnxd_core: the two tensor-parallel linear layers, forward and
// backward, and the optimizer's step. XLA owns every array, and plans its memory; each call
// describes the arrays where they lie. nxd_jax.py registers the symbols and gives them their
// gradients.
//
//   HEADERS=$(python3 -c 'import jax; print(jax.ffi.include_dir())')
//   c++ -std=c++17 -O2 -shared -fPIC nxd_jax.cpp -o libnxd_jax.so -I"$HEADERS"
//     $(pkg-config --cflags --libs nxd-core)            (in one line)
#include <cstdint>
#include <vector>

#include "nxd.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using ffi::AnyBuffer;
using ffi::DataType;
using Out = ffi::Result<AnyBuffer>;

DLDataType type_of(DataType type) {
  switch (type) {
    case DataType::F32: return {kDLFloat, 32, 1};
    case DataType::F64: return {kDLFloat, 64, 1};
    case DataType::F16: return {kDLFloat, 16, 1};
    case DataType::BF16: return {kDLBfloat, 16, 1};
    default: return {kDLOpaqueHandle, 0, 1};  // which the library rejects by name
  }
}

// The shape stays XLA's. Custom calls get arrays in C order unless they ask for another layout.
DLTensor describe(AnyBuffer buffer) {
  const auto shape = buffer.dimensions();
  return {buffer.untyped_data(),
          {kDLCPU, 0},
          static_cast<int32_t>(shape.size()),
          type_of(buffer.element_type()),
          const_cast<int64_t*>(shape.begin()),
          nullptr,
          0};
}

template <class Handle>
Handle* handle(int64_t address) {
  return reinterpret_cast<Handle*>(address);
}

// An error ends the program on this rank; the library has told the other ranks of it.
ffi::Error result_of(nxd_status_t status) {
  if (status == NXD_OK) return ffi::Error::Success();
  const auto code = status == NXD_ERROR_INVALID_ARGUMENT ? ffi::ErrorCode::kInvalidArgument
                    : status == NXD_ERROR_PEER_LOST      ? ffi::ErrorCode::kUnavailable
                    : status == NXD_ERROR_TIMEOUT        ? ffi::ErrorCode::kDeadlineExceeded
                                                         : ffi::ErrorCode::kInternal;
  return {code, nxd_last_error()};
}

ffi::Error column_forward(int64_t context, AnyBuffer x, AnyBuffer weight, AnyBuffer bias, Out y) {
  const DLTensor in[] = {describe(x), describe(weight), describe(bias)};
  DLTensor out = describe(*y);
  return result_of(nxd_column_linear_forward(handle<nxd_context_t>(context), &in[0], &in[1], &in[2],
                                             nullptr, &out));
}

ffi::Error row_forward(int64_t context, AnyBuffer x, AnyBuffer weight, AnyBuffer bias, Out y) {
  const DLTensor in[] = {describe(x), describe(weight), describe(bias)};
  DLTensor out = describe(*y);
  return result_of(nxd_row_linear_forward(handle<nxd_context_t>(context), &in[0], &in[1], &in[2],
                                          nullptr, &out));
}

ffi::Error column_backward(int64_t context, AnyBuffer x, AnyBuffer weight, AnyBuffer grad_y,
                           Out grad_x, Out grad_weight, Out grad_bias) {
  const DLTensor in[] = {describe(x), describe(weight), describe(grad_y)};
  DLTensor out[] = {describe(*grad_x), describe(*grad_weight), describe(*grad_bias)};
  return result_of(nxd_column_linear_backward(handle<nxd_context_t>(context), &in[0], &in[1],
                                              &in[2], nullptr, &out[0], &out[1], &out[2]));
}

ffi::Error row_backward(int64_t context, AnyBuffer x, AnyBuffer weight, AnyBuffer grad_y,
                        Out grad_x, Out grad_weight, Out grad_bias) {
  const DLTensor in[] = {describe(x), describe(weight), describe(grad_y)};
  DLTensor out[] = {describe(*grad_x), describe(*grad_weight), describe(*grad_bias)};
  return result_of(nxd_row_linear_backward(handle<nxd_context_t>(context), &in[0], &in[1], &in[2],
                                           nullptr, &out[0], &out[1], &out[2]));
}

// Parameters, then their gradients. Each result has the memory of the argument in its place, so
// that parameters are updated and gradients reduced where they lie. XLA may move them between
// steps.
ffi::Error bind(int64_t ddp, ffi::RemainingRets results) {
  const size_t count = results.size() / 2;
  for (size_t i = 0; i < count; ++i) {
    auto value = results.get<AnyBuffer>(i), grad = results.get<AnyBuffer>(count + i);
    if (!value || !grad) return ffi::Error::InvalidArgument("expected an array for each parameter");
    DLTensor param = describe(**value), sum = describe(**grad);
    const nxd_status_t status = nxd_ddp_rebind(handle<nxd_ddp_t>(ddp), i, &param, &sum);
    if (status != NXD_OK) return result_of(status);
  }
  return ffi::Error::Success();
}

ffi::Error optimizer_step(int64_t context, int64_t ddp, int64_t optimizer, ffi::RemainingArgs,
                          ffi::RemainingRets results) {
  ffi::Error bound = bind(ddp, results);
  if (!bound.success()) {
    // The peers wait in the step. This rank cannot reject it there, since the arrays of the step
    // before may be gone.
    nxd_context_abort(handle<nxd_context_t>(context));
    return bound;
  }
  return result_of(nxd_optimizer_step(handle<nxd_optimizer_t>(optimizer), nullptr, nullptr));
}

auto linear_forward() {
  return ffi::Ffi::Bind()
      .Attr<int64_t>("context")
      .Arg<AnyBuffer>()   // x
      .Arg<AnyBuffer>()   // weight
      .Arg<AnyBuffer>()   // bias
      .Ret<AnyBuffer>();  // y
}

auto linear_backward() {
  return ffi::Ffi::Bind()
      .Attr<int64_t>("context")
      .Arg<AnyBuffer>()   // x
      .Arg<AnyBuffer>()   // weight
      .Arg<AnyBuffer>()   // gradient of y
      .Ret<AnyBuffer>()   // of x
      .Ret<AnyBuffer>()   // of weight
      .Ret<AnyBuffer>();  // of bias
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(nxd_jax_column_linear_forward, column_forward, linear_forward());
XLA_FFI_DEFINE_HANDLER_SYMBOL(nxd_jax_column_linear_backward, column_backward, linear_backward());
XLA_FFI_DEFINE_HANDLER_SYMBOL(nxd_jax_row_linear_forward, row_forward, linear_forward());
XLA_FFI_DEFINE_HANDLER_SYMBOL(nxd_jax_row_linear_backward, row_backward, linear_backward());
XLA_FFI_DEFINE_HANDLER_SYMBOL(nxd_jax_optimizer_step, optimizer_step,
                              ffi::Ffi::Bind()
                                  .Attr<int64_t>("context")
                                  .Attr<int64_t>("ddp")
                                  .Attr<int64_t>("optimizer")
                                  .RemainingArgs()
                                  .RemainingRets());
