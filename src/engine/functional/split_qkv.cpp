#include "engine/functional/split_qkv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SplitQkv : torch::autograd::Function<SplitQkv> {
  // dim: of the three, behind those before the last of x.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, int64_t head_dim,
                               int64_t dim) {
    ctx->saved_data["dim"] = dim;
    const int64_t heads = x.size(-1) / 3 / head_dim;
    const std::vector<int64_t> parts = dim == -3 ? std::vector<int64_t>{3, heads, head_dim}
                                                 : std::vector<int64_t>{heads, 3, head_dim};
    return x.unflatten(-1, parts).unbind(dim);
  }

  // A part that is not used has zeros from libtorch.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const int64_t dim = ctx->saved_data["dim"].toInt();
    if (!grads[0].is_cpu()) {
      return {at::stack(grads, dim).flatten(-3), at::Tensor(), at::Tensor()};
    }
    std::vector<int64_t> sizes = grads[0].sizes().vec();
    sizes.insert(sizes.end() + dim + 1, 3);
    const at::Tensor out = pooled_empty(sizes, grads[0].scalar_type());
    for (int64_t i = 0; i < 3; ++i) out.select(dim, i).copy_(grads[static_cast<size_t>(i)]);
    return {out.flatten(-3), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::array<at::Tensor, 3> split_qkv(const at::Tensor& x, int64_t head_dim, QkvOrder order) {
  variable_list parts = SplitQkv::apply(x, head_dim, int64_t{order == QkvOrder::kByPart ? -3 : -2});
  return {std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
}

}  // namespace nxd
