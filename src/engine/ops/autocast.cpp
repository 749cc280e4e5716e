#include "engine/ops/autocast.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "core/base/dtype.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

thread_local nxd_dtype_t current_dtype = NXD_DTYPE_INVALID;

// PyTorch's lists for accelerators, by the names that ATen has for their members; transposed
// convolutions as in its list for the CPU. Functions that ATen puts together from members stand
// beside them, since casts happen around a call, not inside. convolution is in none: it may be
// transposed or not.
constexpr std::string_view kLowerNames[] = {
    // products of matrices
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "einsum", "linalg_matmul",
    "linalg_multi_dot", "linear", "matmul", "mm", "mv",
    // convolutions
    "conv1d", "conv2d", "conv3d",
    // layers made of products
    "_scaled_dot_product_attention", "gru_cell", "lstm_cell", "prelu", "rnn_relu_cell",
    "rnn_tanh_cell", "scaled_dot_product_attention"};
constexpr std::string_view kFloatNames[] = {
    // whose BF16 form libtorch 1.13 gets wrong: it takes them for convolutions
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    // functions whose results leave 16 bits' range or precision
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "pow",
    "reciprocal", "rsqrt", "sinh", "softplus", "tan",
    // sums, products and distances
    "cdist", "cosine_similarity", "cumprod", "cumsum", "dist", "frobenius_norm",
    "linalg_matrix_norm", "linalg_norm", "linalg_vector_norm", "norm", "nuclear_norm",
    "pairwise_distance", "pdist", "prod", "renorm", "sum",
    // softmax and norms
    "_log_softmax", "_softmax", "group_norm", "instance_norm", "layer_norm", "log_softmax",
    "native_group_norm", "native_layer_norm", "softmax",
    // losses
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cross_entropy_loss", "ctc_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nll_loss",
    "nll_loss2d", "nll_loss_nd", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss"};
constexpr std::string_view kWidestNames[] = {
    // functions of several tensors, which must agree
    "addcdiv",     "addcmul",      "atan2",      "bilinear",  "cat",   "cross",
    "dot",         "grid_sampler", "index_copy", "index_put", "inner", "linalg_cross",
    "scatter_add", "stack",        "tensordot",  "vdot",      "where"};

const std::unordered_map<std::string_view, CastPolicy>& policies() {
  static const auto table = [] {
    std::unordered_map<std::string_view, CastPolicy> made;
    for (const std::string_view name : kLowerNames) made[name] = CastPolicy::kLower;
    for (const std::string_view name : kFloatNames) made[name] = CastPolicy::kFloat;
    for (const std::string_view name : kWidestNames) made[name] = CastPolicy::kWidest;
    return made;
  }();
  return table;
}

bool is_castable(at::ScalarType dtype) noexcept {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

at::Tensor cast_one(const at::Tensor& x, at::ScalarType dtype) {
  return x.defined() && is_castable(x.scalar_type()) ? x.to(dtype) : x;
}

template <class Function>
void for_each_tensor(const std::vector<c10::IValue>& arguments, Function&& function) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      function(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) function(tensor);
    }
  }
}

// BF16 and F16 hold each other's values no better than F32 does: where both are, it is F32.
at::ScalarType widest_dtype(const std::vector<c10::IValue>& arguments) {
  at::ScalarType widest = at::ScalarType::Undefined;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !is_castable(tensor.scalar_type())) return;
    widest = widest == at::ScalarType::Undefined || widest == tensor.scalar_type()
                 ? tensor.scalar_type()
                 : at::kFloat;
  });
  return widest;
}

at::ScalarType dtype_of(CastPolicy policy, const std::vector<c10::IValue>& arguments) {
  switch (policy) {
    case CastPolicy::kLower: return to_scalar_type(current_dtype);
    case CastPolicy::kFloat: return at::kFloat;
    case CastPolicy::kWidest: return widest_dtype(arguments);
    default: return at::ScalarType::Undefined;
  }
}

}  // namespace

nxd_dtype_t autocast_dtype() noexcept { return current_dtype; }

void set_autocast(nxd_dtype_t dtype) {
  check_argument(dtype == NXD_DTYPE_BF16 || dtype == NXD_DTYPE_INVALID,
                 "dtype: expected NXD_DTYPE_BF16, or NXD_DTYPE_INVALID for off, got ", dtype, " (",
                 dtype_name(dtype), ")");
  current_dtype = dtype;
}

AutocastPause::AutocastPause() noexcept : paused_(current_dtype) {
  current_dtype = NXD_DTYPE_INVALID;
}

AutocastPause::~AutocastPause() { current_dtype = paused_; }

CastPolicy cast_policy(std::string_view operator_name) {
  constexpr std::string_view kNamespace = "aten::";
  if (operator_name.substr(0, kNamespace.size()) == kNamespace) {
    operator_name.remove_prefix(kNamespace.size());
  }
  const auto found = policies().find(operator_name);
  return found == policies().end() ? CastPolicy::kNone : found->second;
}

void cast_arguments(CastPolicy policy, std::vector<c10::IValue>& arguments) {
  if (current_dtype == NXD_DTYPE_INVALID) return;
  const at::ScalarType dtype = dtype_of(policy, arguments);
  if (dtype == at::ScalarType::Undefined) return;
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      argument = cast_one(argument.toTensor(), dtype);
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        list.push_back(cast_one(tensor, dtype));
      }
      argument = std::move(list);
    }
  }
}

at::Tensor cast_lower(const at::Tensor& x) {
  return current_dtype == NXD_DTYPE_INVALID ? x : cast_one(x, to_scalar_type(current_dtype));
}

at::Tensor cast_float(const at::Tensor& x) {
  return current_dtype == NXD_DTYPE_INVALID ? x : cast_one(x, at::kFloat);
}

bool takes_input(at::ScalarType parameters, at::ScalarType input) noexcept {
  const auto either = [](at::ScalarType dtype) {
    return dtype == at::kFloat || dtype == at::kBFloat16;
  };
  return parameters == input ||
         (current_dtype != NXD_DTYPE_INVALID && either(parameters) && either(input));
}

}  // namespace nxd
