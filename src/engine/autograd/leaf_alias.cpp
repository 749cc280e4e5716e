#include "engine/autograd/leaf_alias.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace nxd {
namespace {

struct LeafAlias : torch::autograd::Function<LeafAlias> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& leaf) {
    return leaf.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& grads) {
    return grads;
  }
};

}  // namespace

at::Tensor alias_of_leaf(const at::Tensor& leaf) { return LeafAlias::apply(leaf); }

}  // namespace nxd
