#include "engine/functional/norm_op.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/norms.h"
#include "engine/autograd/gradients.h"
#include "engine/device/kernel_call.h"
#include "engine/ops/autocast.h"
#include "engine/ops/compute.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Shape {
  nxd_dtype_t dtype;
  int64_t rows, cols;
};

Shape shape_of(const at::Tensor& x) {
  return {to_nxd_dtype(x.scalar_type()), x.size(-1) == 0 ? 0 : x.numel() / x.size(-1), x.size(-1)};
}

// Custom functions take a tensor that may be missing in this form only.
using Optional = c10::optional<at::Tensor>;

Optional optional(const at::Tensor& x) { return x.defined() ? Optional(x) : c10::nullopt; }

at::Tensor statistics(int64_t rows) { return pooled_empty({rows}, at::kFloat); }
at::Tensor statistics_shape(int64_t rows) { return kernel_result({rows}, at::kFloat); }

// Takes x, weight, and a residual or none. Gives the norm of x, or of the sum of x and the
// residual, the inverse root of the mean square, and the sum where there is a residual.
struct RmsNormForward {
  static constexpr const char* kName = "nxd::rms_norm";
  double eps;

  KernelParameters parameters() const { return {{"eps", eps}}; }
  variable_list results(const variable_list& in) const {
    variable_list out{kernel_result_like(in[0]), statistics_shape(shape_of(in[0]).rows)};
    if (in[2].defined()) out.push_back(kernel_result_like(in[0]));
    return out;
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor x = in[0].contiguous(), weight = in[1].contiguous();
    const Shape s = shape_of(x);
    at::Tensor y = pooled_empty_like(x), inv_rms = statistics(s.rows);
    if (!in[2].defined()) {
      kernels::rms_norm_forward(s.dtype, s.rows, s.cols, x.data_ptr(), weight.data_ptr(), eps,
                                y.data_ptr(), inv_rms.data_ptr<float>());
      return {y, inv_rms};
    }
    const at::Tensor residual = in[2].contiguous();
    at::Tensor sum = pooled_empty_like(x);
    kernels::add_rms_norm_forward(s.dtype, s.rows, s.cols, x.data_ptr(), residual.data_ptr(),
                                  weight.data_ptr(), eps, sum.data_ptr(), y.data_ptr(),
                                  inv_rms.data_ptr<float>());
    return {y, inv_rms, sum};
  }
};

// Takes x, weight, inverse root of the mean square, dy, and the gradient of the sum or none; gives
// {dx, dweight}.
struct RmsNormBackward {
  static constexpr const char* kName = "nxd::rms_norm_backward";

  KernelParameters parameters() const { return {}; }
  variable_list results(const variable_list& in) const {
    return {kernel_result_like(in[0]), kernel_result_like(in[1])};
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor x = in[0].contiguous(), weight = in[1].contiguous();
    const at::Tensor dy = in[3].contiguous();
    const at::Tensor dsum = in[4].defined() ? in[4].contiguous() : in[4];
    const Shape s = shape_of(x);
    at::Tensor dx = pooled_empty_like(x), dweight = pooled_empty({s.cols}, at::kFloat);
    kernels::rms_norm_backward(s.dtype, s.rows, s.cols, x.data_ptr(), weight.data_ptr(),
                               in[2].data_ptr<float>(), dy.data_ptr(), dx.data_ptr(),
                               dweight.data_ptr<float>(),
                               dsum.defined() ? dsum.data_ptr() : nullptr);
    return {dx, dweight.to(weight.scalar_type())};
  }
};

struct FusedRmsNorm : torch::autograd::Function<FusedRmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight,
                            double eps) {
    const at::Tensor x = input.contiguous();
    const variable_list out = call_kernel(RmsNormForward{eps}, {x, weight, at::Tensor()});
    ctx->save_for_backward({x, weight, out[1]});
    return out[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(RmsNormForward::kName);
    const variable_list saved = ctx->get_saved_variables();
    const variable_list out =
        call_kernel(RmsNormBackward{}, {saved[0], saved[1], saved[2], grads[0], at::Tensor()});
    return {out[0], out[1], at::Tensor()};
  }
};

// A sum has the history of what it was added up from, not that of the weights. Where one of the two
// results is not used its gradient stays undefined, and so do those of weights without the norm.
void separate_sum(AutogradContext* ctx, const at::Tensor& sum, const at::Tensor& input,
                  const at::Tensor& residual) {
  ctx->set_materialize_grads(false);
  if (!input.requires_grad() && !residual.requires_grad()) ctx->mark_non_differentiable({sum});
}

struct FusedAddRmsNorm : torch::autograd::Function<FusedAddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& input,
                               const Optional& residual_input, const at::Tensor& weight,
                               double eps) {
    const at::Tensor x = input.contiguous(), residual = residual_input.value_or(at::Tensor());
    const variable_list out = call_kernel(RmsNormForward{eps}, {x, weight, residual});
    const at::Tensor sum = residual.defined() ? out[2] : x.view_as(x);
    ctx->saved_data["residual"] = residual.defined();
    ctx->save_for_backward({residual.defined() ? out[2] : x, weight, out[1]});
    separate_sum(ctx, sum, input, residual);
    return {sum, out[0]};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    at::Tensor dx = grads[0], dweight;
    if (grads[1].defined()) {
      check_unrecorded_pass(RmsNormForward::kName);
      const variable_list saved = ctx->get_saved_variables();
      const variable_list out =
          call_kernel(RmsNormBackward{}, {saved[0], saved[1], saved[2], grads[1], grads[0]});
      dx = out[0];
      dweight = out[1];
    }
    const bool has_residual = ctx->saved_data["residual"].toBool();
    return {dx, has_residual ? dx : at::Tensor(), dweight, at::Tensor()};
  }
};

// Takes x, weight, bias or none, residual or none; gives {norm, mean, inverse deviation}, and the
// sum where there is a residual.
struct LayerNormForward {
  static constexpr const char* kName = "nxd::layer_norm";
  double eps;

  KernelParameters parameters() const { return {{"eps", eps}}; }
  variable_list results(const variable_list& in) const {
    const int64_t rows = shape_of(in[0]).rows;
    variable_list out{kernel_result_like(in[0]), statistics_shape(rows), statistics_shape(rows)};
    if (in[3].defined()) out.push_back(kernel_result_like(in[0]));
    return out;
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor x = in[0].contiguous(), weight = in[1].contiguous();
    const at::Tensor bias = in[2].defined() ? in[2].contiguous() : in[2];
    const void* const added = bias.defined() ? bias.data_ptr() : nullptr;
    const Shape s = shape_of(x);
    at::Tensor y = pooled_empty_like(x), mean = statistics(s.rows), inv_std = statistics(s.rows);
    if (!in[3].defined()) {
      kernels::layer_norm_forward(s.dtype, s.rows, s.cols, x.data_ptr(), weight.data_ptr(), added,
                                  eps, y.data_ptr(), mean.data_ptr<float>(),
                                  inv_std.data_ptr<float>());
      return {y, mean, inv_std};
    }
    const at::Tensor residual = in[3].contiguous();
    at::Tensor sum = pooled_empty_like(x);
    kernels::add_layer_norm_forward(s.dtype, s.rows, s.cols, x.data_ptr(), residual.data_ptr(),
                                    weight.data_ptr(), added, eps, sum.data_ptr(), y.data_ptr(),
                                    mean.data_ptr<float>(), inv_std.data_ptr<float>());
    return {y, mean, inv_std, sum};
  }
};

// Takes x, weight, mean, inverse deviation, dy, and the gradient of the sum or none; gives {dx,
// dweight, dbias or none}.
struct LayerNormBackward {
  static constexpr const char* kName = "nxd::layer_norm_backward";
  bool has_bias;

  KernelParameters parameters() const { return {{"bias", has_bias}}; }
  variable_list results(const variable_list& in) const {
    return {kernel_result_like(in[0]), kernel_result_like(in[1]),
            has_bias ? kernel_result_like(in[1]) : at::Tensor()};
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor x = in[0].contiguous(), weight = in[1].contiguous();
    const at::Tensor dy = in[4].contiguous();
    const at::Tensor dsum = in[5].defined() ? in[5].contiguous() : in[5];
    const Shape s = shape_of(x);
    at::Tensor dx = pooled_empty_like(x), dweight = pooled_empty({s.cols}, at::kFloat), dbias;
    if (has_bias) dbias = pooled_empty({s.cols}, at::kFloat);
    kernels::layer_norm_backward(
        s.dtype, s.rows, s.cols, x.data_ptr(), weight.data_ptr(), in[2].data_ptr<float>(),
        in[3].data_ptr<float>(), dy.data_ptr(), dx.data_ptr(), dweight.data_ptr<float>(),
        has_bias ? dbias.data_ptr<float>() : nullptr, dsum.defined() ? dsum.data_ptr() : nullptr);
    return {dx, dweight.to(weight.scalar_type()),
            has_bias ? dbias.to(weight.scalar_type()) : at::Tensor()};
  }
};

variable_list layer_norm_gradients(AutogradContext* ctx, const at::Tensor& grad,
                                   const at::Tensor& grad_sum) {
  check_unrecorded_pass(LayerNormForward::kName);
  const variable_list saved = ctx->get_saved_variables();
  return call_kernel(LayerNormBackward{ctx->saved_data["bias"].toBool()},
                     {saved[0], saved[1], saved[2], saved[3], grad, grad_sum});
}

struct FusedLayerNorm : torch::autograd::Function<FusedLayerNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight,
                            const Optional& bias, double eps) {
    const at::Tensor x = input.contiguous();
    const variable_list out =
        call_kernel(LayerNormForward{eps}, {x, weight, bias.value_or(at::Tensor()), at::Tensor()});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->save_for_backward({x, weight, out[1], out[2]});
    return out[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list out = layer_norm_gradients(ctx, grads[0], {});
    return {out[0], out[1], out[2], at::Tensor()};
  }
};

struct FusedAddLayerNorm : torch::autograd::Function<FusedAddLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& input,
                               const at::Tensor& residual, const at::Tensor& weight,
                               const Optional& bias, double eps) {
    const variable_list out =
        call_kernel(LayerNormForward{eps}, {input, weight, bias.value_or(at::Tensor()), residual});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->save_for_backward({out[3], weight, out[1], out[2]});
    separate_sum(ctx, out[3], input, residual);
    return {out[3], out[0]};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[1].defined()) {
      return {grads[0], grads[0], at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const variable_list out = layer_norm_gradients(ctx, grads[1], grads[0]);
    return {out[0], out[0], out[1], out[2], at::Tensor()};
  }
};

at::Tensor reference_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(partial_sum_dtype(x.scalar_type()));
  const at::Tensor y = wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps);
  return (weight.defined() ? y * weight.to(wide.scalar_type()) : y).to(x.scalar_type());
}

// Spelled out: libtorch 1.13 has no layer norm for the meta device without Python.
at::Tensor reference_layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, double eps) {
  const at::Tensor wide = x.to(partial_sum_dtype(x.scalar_type()));
  const at::Tensor centred = wide - wide.mean(-1, true);
  at::Tensor y = centred * at::rsqrt(centred.pow(2).mean(-1, true) + eps);
  if (weight.defined()) y = y * weight.to(wide.scalar_type());
  if (bias.defined()) y = y + bias.to(wide.scalar_type());
  return y.to(x.scalar_type());
}

at::Tensor rms_norm_of(const Context& context, const at::Tensor& input,
                       const at::Tensor& given_weight, double eps) {
  const at::Tensor x = cast_float(input), weight = cast_float(given_weight);
  if (!use_fused(context, x) || !weight.defined()) return reference_rms_norm(x, weight, eps);
  return FusedRmsNorm::apply(x, weight, eps);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm_of(const Context& context, const at::Tensor& input,
                                                  const at::Tensor& residual_input,
                                                  const at::Tensor& given_weight, double eps) {
  const at::Tensor x = cast_float(input), residual = cast_float(residual_input);
  if (!residual.defined()) return {x, rms_norm_of(context, x, given_weight, eps)};
  const at::Tensor weight = cast_float(given_weight);
  if (!use_fused(context, x) || !weight.defined()) {
    const at::Tensor sum = x + residual;
    return {sum, reference_rms_norm(sum, weight, eps)};
  }
  const variable_list outputs = FusedAddRmsNorm::apply(x, optional(residual), weight, eps);
  return {outputs[0], outputs[1]};
}

std::pair<at::Tensor, at::Tensor> rms_norm_and_input_of(const Context& context,
                                                        const at::Tensor& input,
                                                        const at::Tensor& given_weight,
                                                        double eps) {
  const at::Tensor x = cast_float(input), weight = cast_float(given_weight);
  if (!use_fused(context, x) || !weight.defined()) return {x, reference_rms_norm(x, weight, eps)};
  const variable_list outputs = FusedAddRmsNorm::apply(x, Optional(), weight, eps);
  return {outputs[0], outputs[1]};
}

at::Tensor layer_norm_of(const Context& context, const at::Tensor& input,
                         const at::Tensor& given_weight, const at::Tensor& given_bias, double eps) {
  const at::Tensor x = cast_float(input);
  const at::Tensor weight = cast_float(given_weight), bias = cast_float(given_bias);
  if (!use_fused(context, x) || !weight.defined())
    return reference_layer_norm(x, weight, bias, eps);
  return FusedLayerNorm::apply(x, weight, optional(bias), eps);
}

std::pair<at::Tensor, at::Tensor> add_layer_norm_of(const Context& context, const at::Tensor& input,
                                                    const at::Tensor& residual_input,
                                                    const at::Tensor& given_weight,
                                                    const at::Tensor& given_bias, double eps) {
  const at::Tensor x = cast_float(input), residual = cast_float(residual_input);
  if (!residual.defined()) return {x, layer_norm_of(context, x, given_weight, given_bias, eps)};
  const at::Tensor weight = cast_float(given_weight), bias = cast_float(given_bias);
  if (!use_fused(context, x) || !weight.defined()) {
    const at::Tensor sum = x + residual;
    return {sum, reference_layer_norm(sum, weight, bias, eps)};
  }
  const variable_list outputs = FusedAddLayerNorm::apply(x, residual, weight, optional(bias), eps);
  return {outputs[0], outputs[1]};
}

}  // namespace

// The functions of the header are these, called as a whole.

at::Tensor rms_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight,
                    double eps) {
  const auto apply = [shared = context.shared_from_this(), eps](const variable_list& in) {
    return variable_list{rms_norm_of(*shared, in[0], in[1], eps)};
  };
  return call_opaque("rms_norm", {x, weight}, apply)[0];
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const Context& context, const at::Tensor& x,
                                               const at::Tensor& residual, const at::Tensor& weight,
                                               double eps) {
  const auto apply = [shared = context.shared_from_this(), eps](const variable_list& in) {
    const auto [sum, norm] = add_rms_norm_of(*shared, in[0], in[1], in[2], eps);
    return variable_list{sum, norm};
  };
  const variable_list out = call_opaque("add_rms_norm", {x, residual, weight}, apply);
  return {out[0], out[1]};
}

std::pair<at::Tensor, at::Tensor> rms_norm_and_input(const Context& context, const at::Tensor& x,
                                                     const at::Tensor& weight, double eps) {
  const auto apply = [shared = context.shared_from_this(), eps](const variable_list& in) {
    const auto [input, norm] = rms_norm_and_input_of(*shared, in[0], in[1], eps);
    return variable_list{input, norm};
  };
  const variable_list out = call_opaque("rms_norm_and_input", {x, weight}, apply);
  return {out[0], out[1]};
}

at::Tensor layer_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double eps) {
  const auto apply = [shared = context.shared_from_this(), eps](const variable_list& in) {
    return variable_list{layer_norm_of(*shared, in[0], in[1], in[2], eps)};
  };
  return call_opaque("layer_norm", {x, weight, bias}, apply)[0];
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const Context& context, const at::Tensor& x,
                                                 const at::Tensor& residual,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps) {
  const auto apply = [shared = context.shared_from_this(), eps](const variable_list& in) {
    const auto [sum, norm] = add_layer_norm_of(*shared, in[0], in[1], in[2], in[3], eps);
    return variable_list{sum, norm};
  };
  const variable_list out = call_opaque("add_layer_norm", {x, residual, weight, bias}, apply);
  return {out[0], out[1]};
}

}  // namespace nxd
