#include "engine/mended_kernels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "engine/backend_select.h"
#include "engine/operator_library.h"
#include "engine/torch_compat.h"

// The kernels hand tensors on that those below read right.
namespace nxd {
namespace {

bool is_strided_on_cpu(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided;
}

// oneDNN is called for a contiguous input, and is not told how the gradient lies.
at::Tensor as_gelu_reads(const at::Tensor& gradient, const at::Tensor& input) {
  const bool both = is_strided_on_cpu(gradient) && is_strided_on_cpu(input);
  return both && input.is_contiguous() ? gradient.contiguous() : gradient;
}

at::Tensor gelu_backward(c10::DispatchKeySet keys, const at::Tensor& gradient,
                         const at::Tensor& input, c10::string_view approximate) {
  return at::_ops::gelu_backward::redispatch(keys_below_select(keys),
                                             as_gelu_reads(gradient, input), input, approximate);
}

at::Tensor& gelu_backward_out(c10::DispatchKeySet keys, const at::Tensor& gradient,
                              const at::Tensor& input, c10::string_view approximate,
                              at::Tensor& out) {
  if (!is_strided_on_cpu(out)) {
    return at::_ops::gelu_backward_grad_input::redispatch(keys_below_select(keys), gradient, input,
                                                          approximate, out);
  }
  const at::Tensor values = gelu_backward(keys, gradient, input, approximate);
  return out.resize_(values.sizes()).copy_(values);
}

at::Tensor& masked_scatter_in_place(c10::DispatchKeySet keys, at::Tensor& self,
                                    const at::Tensor& mask, const at::Tensor& source) {
  if (!is_strided_on_cpu(self) || self.is_contiguous()) {
    return at::_ops::masked_scatter_::redispatch(keys_below_select(keys), self, mask, source);
  }
  at::Tensor values = self.contiguous();
  at::_ops::masked_scatter_::redispatch(keys_below_select(keys), values, mask, source);
  return self.copy_(values);
}

constexpr bool kTakesTransposedForPlain = TORCH_VERSION_MAJOR < 2;

bool is_bf16_on_cpu(const at::Tensor& tensor) {
  return is_strided_on_cpu(tensor) && tensor.scalar_type() == at::kBFloat16;
}

// A bias that is left out is a tensor without a value, or none.
c10::optional<at::Tensor> in_f32(const c10::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->to(at::kFloat) : tensor;
}

at::Tensor in_bf16(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kBFloat16) : tensor;
}

// Every form of a convolution ends here.
at::Tensor mended_convolution(c10::DispatchKeySet keys, const at::Tensor& input,
                              const at::Tensor& weight, const c10::optional<at::Tensor>& bias,
                              compat::Sizes stride, compat::Sizes padding, compat::Sizes dilation,
                              bool transposed, compat::Sizes output_padding, compat::Size groups,
                              bool benchmark, bool deterministic, bool cudnn_enabled,
                              bool allow_tf32) {
  const auto run = [&](const at::Tensor& x, const at::Tensor& w,
                       const c10::optional<at::Tensor>& b) {
    return at::_ops::_convolution::redispatch(keys_below_select(keys), x, w, b, stride, padding,
                                              dilation, transposed, output_padding, groups,
                                              benchmark, deterministic, cudnn_enabled, allow_tf32);
  };
  if (!transposed || !is_bf16_on_cpu(input) || !is_bf16_on_cpu(weight)) {
    return run(input, weight, bias);
  }
  return in_bf16(run(input.to(at::kFloat), weight.to(at::kFloat), in_f32(bias)));
}

using ConvolutionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// A list with a number for each dimension of the image, from one that has that or one number for
// all; empty where it is neither, which libtorch rejects.
std::vector<int64_t> each_dimension(compat::Sizes sizes, const at::Tensor& weight) {
  const auto dims = static_cast<size_t>(std::max<int64_t>(weight.dim() - 2, 0));
  if (sizes.size() == 1) return std::vector<int64_t>(dims, compat::sizes_of(sizes)[0]);
  return sizes.size() == dims ? compat::sizes_of(sizes) : std::vector<int64_t>();
}

// A kernel that is larger than the image without its padding, in some dimension.
bool overhangs(const at::Tensor& input, const at::Tensor& weight,
               const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation) {
  if (input.dim() != weight.dim() || padding.size() != dilation.size()) return false;
  if (std::any_of(padding.begin(), padding.end(), [](int64_t size) { return size < 0; })) {
    return false;
  }
  for (size_t i = 0; i < dilation.size(); ++i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    if (dilation[i] * (weight.size(dim) - 1) >= input.size(dim)) return true;
  }
  return false;
}

at::Tensor padded(const at::Tensor& input, const std::vector<int64_t>& padding) {
  std::vector<int64_t> both;  // ends, from the last dimension on
  for (auto size = padding.rbegin(); size != padding.rend(); ++size) {
    both.insert(both.end(), 2, *size);
  }
  return at::constant_pad_nd(input, both);
}

ConvolutionGradients mended_convolution_backward(
    c10::DispatchKeySet keys, const at::Tensor& gradient, const at::Tensor& input,
    const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes, compat::Sizes stride,
    compat::Sizes padding, compat::Sizes dilation, bool transposed, compat::Sizes output_padding,
    compat::Size groups, std::array<bool, 3> output_mask) {
  const auto run = [&](const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       compat::Sizes x_padding, std::array<bool, 3> mask) {
    return at::_ops::convolution_backward::redispatch(keys_below_select(keys), dy, x, w, bias_sizes,
                                                      stride, x_padding, dilation, transposed,
                                                      output_padding, groups, mask);
  };
  if (kTakesTransposedForPlain && transposed && is_bf16_on_cpu(input) && is_bf16_on_cpu(weight)) {
    const auto [dx, dw, db] = run(gradient.to(at::kFloat), input.to(at::kFloat),
                                  weight.to(at::kFloat), padding, output_mask);
    return {in_bf16(dx), in_bf16(dw), in_bf16(db)};
  }
  const bool plain_on_cpu = !transposed && is_strided_on_cpu(input);
  const std::vector<int64_t> ends =
      plain_on_cpu ? each_dimension(padding, weight) : std::vector<int64_t>();
  if (!plain_on_cpu || !overhangs(input, weight, ends, each_dimension(dilation, weight))) {
    return run(gradient, input, weight, padding, output_mask);
  }
  ConvolutionGradients result;
  if (output_mask[0]) {
    std::get<0>(result) = std::get<0>(run(gradient, input, weight, padding, {true, false, false}));
  }
  if (output_mask[1] || output_mask[2]) {
    const std::vector<compat::Size> none(padding.size(), compat::Size(0));
    std::tie(std::ignore, std::get<1>(result), std::get<2>(result)) =
        run(gradient, padded(input, ends), weight, none, {false, output_mask[1], output_mask[2]});
  }
  return result;
}

at::Tensor mended_channel_shuffle(c10::DispatchKeySet keys, const at::Tensor& self,
                                  compat::Size groups) {
  check_channel_groups(self, compat::sizes_of(compat::Sizes(groups))[0]);
  if (self.numel() == 0) return at::empty_like(self);
  return at::_ops::native_channel_shuffle::redispatch(keys_below_select(keys), self, groups);
}

bool ignores(const at::Scalar& beta, const at::Tensor& self) {
  return is_strided_on_cpu(self) && beta.toComplexDouble() == 0.0;
}

}  // namespace

void check_channel_groups(const at::Tensor& self, int64_t groups) {
  check_argument(self.dim() > 1,
                 "channel_shuffle: self: expected at least 2 dimensions, got shape ", self.sizes());
  check_argument(groups > 0 && self.size(1) % groups == 0,
                 "channel_shuffle: groups: expected a positive divisor of the ", self.size(1),
                 " channels, got ", groups);
}

// With a beta of 1 zeros are added to the products, in memory that has been written.
at::Tensor mended_baddbmm(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a,
                          const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  const c10::DispatchKeySet below = keys_below_select(keys);
  if (!ignores(beta, self)) return at::_ops::baddbmm::redispatch(below, self, a, b, beta, alpha);
  return at::_ops::baddbmm::redispatch(below, at::zeros_like(self), a, b, 1, alpha);
}

at::Tensor& mended_baddbmm_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& a,
                                    const at::Tensor& b, const at::Scalar& beta,
                                    const at::Scalar& alpha) {
  if (!ignores(beta, self)) {
    return at::_ops::baddbmm_::redispatch(keys_below_select(keys), self, a, b, beta, alpha);
  }
  return self.copy_(mended_baddbmm(keys, self, a, b, beta, alpha));
}

at::Tensor& mended_baddbmm_out(c10::DispatchKeySet keys, const at::Tensor& self,
                               const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                               const at::Scalar& alpha, at::Tensor& out) {
  if (!ignores(beta, self) || !is_strided_on_cpu(out)) {
    return at::_ops::baddbmm_out::redispatch(keys_below_select(keys), self, a, b, beta, alpha, out);
  }
  const at::Tensor values = mended_baddbmm(keys, self, a, b, beta, alpha);
  return out.resize_(values.sizes()).copy_(values);
}

void mend_kernels() {
  static OperatorLibrary kernels;
  static std::once_flag once;
  std::call_once(once, [] {
    torch::Library& library = kernels.open(kSelectKey);
    library.impl("gelu_backward", TORCH_FN(gelu_backward));
    library.impl("gelu_backward.grad_input", TORCH_FN(gelu_backward_out));
    library.impl("masked_scatter_", TORCH_FN(masked_scatter_in_place));
    if (kTakesTransposedForPlain) library.impl("_convolution", TORCH_FN(mended_convolution));
    library.impl("native_channel_shuffle", TORCH_FN(mended_channel_shuffle));
    library.impl("convolution_backward", TORCH_FN(mended_convolution_backward));
  });
}

}  // namespace nxd
