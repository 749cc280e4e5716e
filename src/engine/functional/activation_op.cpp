#include "engine/functional/activation_op.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/elementwise.h"
#include "engine/autograd/gradients.h"
#include "engine/device/kernel_call.h"
#include "engine/ops/compute.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwiGluForward {
  static constexpr const char* kName = "nxd::swiglu";

  KernelParameters parameters() const { return {}; }
  variable_list results(const variable_list& in) const { return {kernel_result_like(in[0])}; }
  variable_list run(const variable_list& in) const {
    const at::Tensor gate = in[0].contiguous(), up = in[1].contiguous();
    at::Tensor y = pooled_empty_like(gate);
    kernels::swiglu_forward(to_nxd_dtype(gate.scalar_type()), gate.numel(), gate.data_ptr(),
                            up.data_ptr(), y.data_ptr());
    return {y};
  }
};

struct SwiGluBackward {
  static constexpr const char* kName = "nxd::swiglu_backward";

  KernelParameters parameters() const { return {}; }
  variable_list results(const variable_list& in) const {
    return {kernel_result_like(in[0]), kernel_result_like(in[1])};
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor gate = in[0].contiguous(), up = in[1].contiguous(), dy = in[2].contiguous();
    at::Tensor dgate = pooled_empty_like(gate), dup = pooled_empty_like(up);
    kernels::swiglu_backward(to_nxd_dtype(gate.scalar_type()), gate.numel(), gate.data_ptr(),
                             up.data_ptr(), dy.data_ptr(), dgate.data_ptr(), dup.data_ptr());
    return {dgate, dup};
  }
};

struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_input,
                            const at::Tensor& up_input) {
    const at::Tensor gate = gate_input.contiguous(), up = up_input.contiguous();
    ctx->save_for_backward({gate, up});
    return call_kernel(SwiGluForward{}, {gate, up})[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(SwiGluForward::kName);
    const variable_list saved = ctx->get_saved_variables();
    return call_kernel(SwiGluBackward{}, {saved[0], saved[1], grads[0]});
  }
};

kernels::Activation kernel_of(nxd_activation_t activation) {
  switch (activation) {
    case NXD_ACTIVATION_SILU: return kernels::Activation::kSilu;
    case NXD_ACTIVATION_GELU: return kernels::Activation::kGeluErf;
    case NXD_ACTIVATION_GELU_TANH: return kernels::Activation::kGeluTanh;
    default: return kernels::Activation::kRelu;
  }
}

struct ActivationForward {
  static constexpr const char* kName = "nxd::activation";
  nxd_activation_t activation;

  KernelParameters parameters() const { return {{"activation", activation}}; }
  variable_list results(const variable_list& in) const { return {kernel_result_like(in[0])}; }
  variable_list run(const variable_list& in) const {
    const at::Tensor x = in[0].contiguous();
    at::Tensor y = pooled_empty_like(x);
    kernels::activation_forward(kernel_of(activation), to_nxd_dtype(x.scalar_type()), x.numel(),
                                x.data_ptr(), y.data_ptr());
    return {y};
  }
};

struct ActivationBackward {
  static constexpr const char* kName = "nxd::activation_backward";
  nxd_activation_t activation;

  KernelParameters parameters() const { return {{"activation", activation}}; }
  variable_list results(const variable_list& in) const { return {kernel_result_like(in[0])}; }
  variable_list run(const variable_list& in) const {
    const at::Tensor x = in[0].contiguous(), dy = in[1].contiguous();
    at::Tensor dx = pooled_empty_like(x);
    kernels::activation_backward(kernel_of(activation), to_nxd_dtype(x.scalar_type()), x.numel(),
                                 x.data_ptr(), dy.data_ptr(), dx.data_ptr());
    return {dx};
  }
};

struct Activate : torch::autograd::Function<Activate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, int64_t activation) {
    const at::Tensor x = input.contiguous();
    ctx->saved_data["activation"] = activation;
    ctx->save_for_backward({x});
    return call_kernel(ActivationForward{static_cast<nxd_activation_t>(activation)}, {x})[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(ActivationForward::kName);
    const auto activation = static_cast<nxd_activation_t>(ctx->saved_data["activation"].toInt());
    const at::Tensor x = ctx->get_saved_variables()[0];
    return {call_kernel(ActivationBackward{activation}, {x, grads[0]})[0], at::Tensor()};
  }
};

at::Tensor reference_activation(nxd_activation_t activation, const at::Tensor& x) {
  switch (activation) {
    case NXD_ACTIVATION_SILU: return at::silu(x);
    case NXD_ACTIVATION_GELU: return at::gelu(x);
    case NXD_ACTIVATION_GELU_TANH: return at::gelu(x, "tanh");
    default: return at::relu(x);
  }
}

}  // namespace

void check_activation(nxd_activation_t activation) {
  check_argument(activation >= NXD_ACTIVATION_SILU && activation <= NXD_ACTIVATION_RELU,
                 "activation: expected an NXD_ACTIVATION_*, got ", activation);
}

at::Tensor activate(const Context& context, nxd_activation_t activation, const at::Tensor& x) {
  if (!use_fused(context, x)) return reference_activation(activation, x);
  return Activate::apply(x, static_cast<int64_t>(activation));
}

at::Tensor gated_activation(const Context& context, nxd_activation_t activation,
                            const at::Tensor& gate, const at::Tensor& up) {
  if (activation == NXD_ACTIVATION_SILU && use_fused(context, gate)) {
    return SwiGlu::apply(gate, up);
  }
  return reference_activation(activation, gate) * up;
}

}  // namespace nxd
