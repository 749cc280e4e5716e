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
const std::unordered_map<std::string_view, CastPolicy>& policies() {
  constexpr CastPolicy kLower = CastPolicy::kLower, kFloat = CastPolicy::kFloat,
                       kWidest = CastPolicy::kWidest;
  static const std::unordered_map<std::string_view, CastPolicy> table = {
      // products of matrices
      {"addbmm", kLower},
      {"addmm", kLower},
      {"addmv", kLower},
      {"addr", kLower},
      {"baddbmm", kLower},
      {"bmm", kLower},
      {"chain_matmul", kLower},
      {"einsum", kLower},
      {"linalg_matmul", kLower},
      {"linalg_multi_dot", kLower},
      {"linear", kLower},
      {"matmul", kLower},
      {"mm", kLower},
      {"mv", kLower},
      // convolutions
      {"conv1d", kLower},
      {"conv2d", kLower},
      {"conv3d", kLower},
      // layers made of products
      {"_scaled_dot_product_attention", kLower},
      {"gru_cell", kLower},
      {"lstm_cell", kLower},
      {"prelu", kLower},
      {"rnn_relu_cell", kLower},
      {"rnn_tanh_cell", kLower},
      {"scaled_dot_product_attention", kLower},
      // whose BF16 form libtorch 1.13 gets wrong: it takes them for convolutions
      {"conv_transpose1d", kFloat},
      {"conv_transpose2d", kFloat},
      {"conv_transpose3d", kFloat},
      // functions whose results leave 16 bits' range or precision
      {"acos", kFloat},
      {"asin", kFloat},
      {"cosh", kFloat},
      {"erfinv", kFloat},
      {"exp", kFloat},
      {"expm1", kFloat},
      {"log", kFloat},
      {"log10", kFloat},
      {"log1p", kFloat},
      {"log2", kFloat},
      {"pow", kFloat},
      {"reciprocal", kFloat},
      {"rsqrt", kFloat},
      {"sinh", kFloat},
      {"softplus", kFloat},
      {"tan", kFloat},
      // sums, products and distances
      {"cdist", kFloat},
      {"cosine_similarity", kFloat},
      {"cumprod", kFloat},
      {"cumsum", kFloat},
      {"dist", kFloat},
      {"frobenius_norm", kFloat},
      {"linalg_matrix_norm", kFloat},
      {"linalg_norm", kFloat},
      {"linalg_vector_norm", kFloat},
      {"norm", kFloat},
      {"nuclear_norm", kFloat},
      {"pairwise_distance", kFloat},
      {"pdist", kFloat},
      {"prod", kFloat},
      {"renorm", kFloat},
      {"sum", kFloat},
      // softmax and norms
      {"_log_softmax", kFloat},
      {"_softmax", kFloat},
      {"group_norm", kFloat},
      {"instance_norm", kFloat},
      {"layer_norm", kFloat},
      {"log_softmax", kFloat},
      {"native_group_norm", kFloat},
      {"native_layer_norm", kFloat},
      {"softmax", kFloat},
      // losses
      {"binary_cross_entropy", kFloat},
      {"binary_cross_entropy_with_logits", kFloat},
      {"cosine_embedding_loss", kFloat},
      {"cross_entropy_loss", kFloat},
      {"ctc_loss", kFloat},
      {"hinge_embedding_loss", kFloat},
      {"huber_loss", kFloat},
      {"kl_div", kFloat},
      {"l1_loss", kFloat},
      {"margin_ranking_loss", kFloat},
      {"mse_loss", kFloat},
      {"multi_margin_loss", kFloat},
      {"multilabel_margin_loss", kFloat},
      {"nll_loss", kFloat},
      {"nll_loss2d", kFloat},
      {"nll_loss_nd", kFloat},
      {"poisson_nll_loss", kFloat},
      {"smooth_l1_loss", kFloat},
      {"soft_margin_loss", kFloat},
      {"triplet_margin_loss", kFloat},
      // functions of several tensors, which must agree
      {"addcdiv", kWidest},
      {"addcmul", kWidest},
      {"atan2", kWidest},
      {"bilinear", kWidest},
      {"cat", kWidest},
      {"cross", kWidest},
      {"dot", kWidest},
      {"grid_sampler", kWidest},
      {"index_copy", kWidest},
      {"index_put", kWidest},
      {"inner", kWidest},
      {"linalg_cross", kWidest},
      {"scatter_add", kWidest},
      {"stack", kWidest},
      {"tensordot", kWidest},
      {"vdot", kWidest},
      {"where", kWidest},
  };
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
