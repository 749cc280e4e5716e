#include "engine/mended_kernels.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>

#include "engine/backend_select.h"

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

bool ignores(const at::Scalar& beta, const at::Tensor& self) {
  return is_strided_on_cpu(self) && beta.toComplexDouble() == 0.0;
}

}  // namespace

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

// Never destroyed, for threads may be computing when the process ends; in static memory, where leak
// checkers see what it owns.
void mend_kernels() {
  alignas(torch::Library) static unsigned char place[sizeof(torch::Library)];
  static std::once_flag once;
  std::call_once(once, [] {
    auto* library =
        new (place) torch::Library(torch::Library::IMPL, "aten", kSelectKey, __FILE__, __LINE__);
    library->impl("gelu_backward", TORCH_FN(gelu_backward));
    library->impl("gelu_backward.grad_input", TORCH_FN(gelu_backward_out));
    library->impl("masked_scatter_", TORCH_FN(masked_scatter_in_place));
  });
}

}  // namespace nxd
