#include "engine/device/argument_checks.h"

#include <ATen/ATen.h>

#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "engine/device/recorded_operator.h"
#include "engine/mended_kernels.h"

namespace nxd {
namespace {

using torch::jit::Stack;

at::Tensor given_tensor(const Stack& stack, size_t index) {
  return stack[index].isTensor() ? stack[index].toTensor() : at::Tensor();
}

void check_normalized(const at::Tensor& x, at::IntArrayRef normalized) {
  const auto dims = static_cast<int64_t>(normalized.size());
  check_argument(dims > 0, "layer_norm: normalized_shape: expected at least 1 dimension, got none");
  check_argument(dims <= x.dim(), "layer_norm: input: expected at least ", dims,
                 " dimensions, got shape ", x.sizes());
  check_argument(x.sizes().slice(static_cast<size_t>(x.dim() - dims)) == normalized,
                 "layer_norm: input: expected last dimensions ", normalized, ", got shape ",
                 x.sizes());
}

void check_scale(const char* name, const at::Tensor& scale, at::IntArrayRef normalized) {
  check_argument(!scale.defined() || scale.sizes() == normalized, "layer_norm: ", name,
                 ": expected shape ", normalized, ", got ", scale.sizes());
}

// (input, normalized_shape, weight, bias, eps)
void check_layer_norm(const Stack& stack) {
  const std::vector<int64_t> shape = stack[1].toIntVector();
  check_normalized(given_tensor(stack, 0), shape);
  check_scale("weight", given_tensor(stack, 2), shape);
  check_scale("bias", given_tensor(stack, 3), shape);
}

// (self, weight): a weight for all channels or one for each.
void check_prelu(const Stack& stack) {
  const at::Tensor x = given_tensor(stack, 0), weight = given_tensor(stack, 1);
  const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
  check_argument(weight.numel() == 1 || (x.dim() > 0 && weight.numel() == channels),
                 "prelu: weight: expected 1 or ", channels, " elements for an input of shape ",
                 x.sizes(), ", got shape ", weight.sizes());
  check_argument(weight.dim() < 2, "prelu: weight: expected at most 1 dimension, got shape ",
                 weight.sizes());
}

// (self, groups)
void check_channel_shuffle(const Stack& stack) {
  const at::Tensor x = given_tensor(stack, 0);
  check_argument(x.dim() > 2, "channel_shuffle: self: expected more than 2 dimensions, got shape ",
                 x.sizes());
  check_channel_groups(x, stack[1].toInt());
}

// (self, mask, value)
void check_masked_fill(const Stack& stack) {
  const at::Tensor value = given_tensor(stack, 2);
  check_argument(value.dim() == 0, "masked_fill: value: expected no dimensions, got shape ",
                 value.sizes());
}

// (self, diagonal)
void check_triangle(const Stack& stack) {
  const at::Tensor x = given_tensor(stack, 0);
  check_argument(x.dim() > 1 || x.numel() == 0,
                 "tril and triu: self: expected at least 2 dimensions, got shape ", x.sizes());
}

// (self, indices, ...): a mask stands for as many dimensions as it has.
void check_indices(const Stack& stack) {
  const at::Tensor x = given_tensor(stack, 0);
  const auto count = static_cast<int64_t>(stack[1].toListRef().size());
  check_argument(count <= x.dim(), "indices: expected at most ", x.dim(), " for a tensor of shape ",
                 x.sizes(), ", got ", count);
  int64_t dim = 0;
  for (const c10::IValue& each : stack[1].toListRef()) {
    const at::Tensor index = each.isTensor() ? each.toTensor() : at::Tensor();
    const bool is_mask =
        index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
    const int64_t dims = is_mask ? index.dim() : 1;
    check_argument(dim + dims <= x.dim(), "indices: expected at most ", x.dim(),
                   " for a tensor of shape ", x.sizes(), ", got more");
    for (int64_t i = 0; is_mask && i < dims; ++i) {
      check_argument(index.size(i) == x.size(dim + i), "indices: the mask of shape ", index.sizes(),
                     " does not fit dimension ", dim + i, " of a tensor of shape ", x.sizes());
    }
    dim += dims;
  }
}

// The dtype holds the number, or that of the first argument where none is given: libtorch's own
// error where it does not.
void check_holds(const Stack& stack, size_t dtype, size_t number) {
  const at::Tensor self = given_tensor(stack, 0);
  if (stack[dtype].isNone() && !self.defined()) return;
  const auto holds = stack[dtype].isNone() ? self.scalar_type() : stack[dtype].toScalarType();
  at::scalar_tensor(stack[number].toScalar(), holds);
}

// (sizes or self, number, dtype, ...)
void check_full(const Stack& stack) { check_holds(stack, 2, 1); }

// (self, sizes, number, dtype, ...)
void check_new_full(const Stack& stack) { check_holds(stack, 3, 2); }

// (number, dtype, ...)
void check_scalar_tensor(const Stack& stack) { check_holds(stack, 1, 0); }

using Check = void (*)(const Stack& stack);

constexpr std::pair<std::string_view, Check> kChecks[] = {
    {"aten::_index_put_impl", check_indices},
    {"aten::channel_shuffle", check_channel_shuffle},
    {"aten::full", check_full},
    {"aten::full_like", check_full},
    {"aten::index_put", check_indices},
    {"aten::masked_fill.Tensor", check_masked_fill},
    {"aten::native_layer_norm", check_layer_norm},
    {"aten::new_full", check_new_full},
    {"aten::prelu", check_prelu},
    {"aten::scalar_tensor", check_scalar_tensor},
    {"aten::tril", check_triangle},
    {"aten::triu", check_triangle},
};

}  // namespace

void check_shapes(const c10::OperatorHandle& op, const Stack& arguments) {
  static const std::unordered_map<std::string_view, Check> checks(std::begin(kChecks),
                                                                  std::end(kChecks));
  const auto found = checks.find(recorded_operator(op).name);
  if (found != checks.end()) found->second(arguments);
}

}  // namespace nxd
