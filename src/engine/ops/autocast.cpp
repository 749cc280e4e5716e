#include "engine/ops/autocast.h"

#include <ATen/ATen.h>

#include <span>
#include <unordered_map>
#include <utility>

#include "core/base/dtype.h"
#include "engine/device/device_tensor.h"
#include "engine/device/operator_arguments.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

thread_local nxd_dtype_t current_dtype = NXD_DTYPE_INVALID;
thread_local CastLists traced_lists = CastLists::kAccelerators;

using PolicyTable = std::unordered_map<std::string_view, CastPolicy>;
using Names = std::span<const std::string_view>;

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

// PyTorch/XLA's lists, by the same names, but for transposed convolutions, as above. Norms, most
// functions and sums are in none: they keep the dtypes that they are given.
constexpr std::string_view kLowerNamesOfXla[] = {
    "addbmm", "addmm",  "baddbmm", "bmm",        "conv1d", "conv2d", "conv3d", "conv_tbc",
    "einsum", "linear", "matmul",  "max_pool2d", "mm",     "prelu",  "relu"};
constexpr std::string_view kFloatNamesOfXla[] = {
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    // functions, softmax, the norm of batches
    "_softmax", "batch_norm", "cdist", "log_softmax", "pow", "prod", "softmax", "trace",
    // padding
    "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d",
    // decompositions of matrices
    "cholesky", "cholesky_inverse", "cholesky_solve", "inverse", "linalg_inv_ex", "linalg_svd",
    "qr", "svd", "triangular_solve",
    // losses
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cross_entropy_loss", "ctc_loss", "hinge_embedding_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_margin_loss_forward", "nll_loss", "nll_loss2d", "smooth_l1_loss",
    "soft_margin_loss", "triplet_margin_loss"};
constexpr std::string_view kWidestNamesOfXla[] = {"cat", "index_copy", "stack"};

PolicyTable table_of(Names lower, Names floats, Names widest) {
  PolicyTable made;
  for (const std::string_view name : lower) made[name] = CastPolicy::kLower;
  for (const std::string_view name : floats) made[name] = CastPolicy::kFloat;
  for (const std::string_view name : widest) made[name] = CastPolicy::kWidest;
  return made;
}

const PolicyTable& policies(CastLists lists) {
  static const PolicyTable accelerators = table_of(kLowerNames, kFloatNames, kWidestNames);
  static const PolicyTable xla = table_of(kLowerNamesOfXla, kFloatNamesOfXla, kWidestNamesOfXla);
  return lists == CastLists::kXla ? xla : accelerators;
}

bool is_castable(at::ScalarType dtype) noexcept {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

at::Tensor cast_one(const at::Tensor& x, at::ScalarType dtype) {
  return x.defined() && is_castable(x.scalar_type()) ? x.to(dtype) : x;
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

CastLists lists_of(const std::vector<c10::IValue>& arguments) {
  CastLists lists = CastLists::kAccelerators;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (is_recorded(tensor)) lists = CastLists::kXla;
    if (tensor.is_meta()) lists = traced_lists;
  });
  return lists;
}

TracedCastLists::TracedCastLists(CastLists lists) noexcept
    : outer_(std::exchange(traced_lists, lists)) {}

TracedCastLists::~TracedCastLists() { traced_lists = outer_; }

CastPolicy cast_policy(std::string_view operator_name, CastLists lists) {
  constexpr std::string_view kNamespace = "aten::";
  if (operator_name.substr(0, kNamespace.size()) == kNamespace) {
    operator_name.remove_prefix(kNamespace.size());
  }
  const PolicyTable& known = policies(lists);
  const auto found = known.find(operator_name);
  return found == known.end() ? CastPolicy::kNone : found->second;
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
