#include "engine/device/shape_functions.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "engine/device/convolution_sizes.h"
#include "engine/device/operator_arguments.h"

namespace nxd {
namespace {

using torch::jit::Stack;

at::Tensor tensor_at(const Stack& stack, size_t index) {
  return stack[index].isTensor() ? stack[index].toTensor() : at::Tensor();
}

at::Tensor made(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType dtype) {
  return at::empty(sizes, like.options().dtype(dtype).device(at::kMeta).requires_grad(false));
}

at::Tensor made(at::IntArrayRef sizes, const at::Tensor& like) {
  return made(sizes, like, like.scalar_type());
}

template <class... Tensors>
void give(Stack& stack, Tensors... results) {
  stack.clear();
  (stack.emplace_back(std::move(results)), ...);
}

// The sizes that are left when dimensions are reduced; none given: all of them.
std::vector<int64_t> reduced(const at::Tensor& x, const c10::IValue& dims, bool keep) {
  std::vector<bool> gone(static_cast<size_t>(x.dim()), dims.isNone());
  if (dims.isIntList()) {
    const auto list = dims.toIntVector();
    if (list.empty()) gone.assign(gone.size(), true);
    for (const int64_t dim : list) {
      // A tensor without dimensions has the dimensions 0 and -1, which leave nothing out.
      const auto at = static_cast<size_t>(c10::maybe_wrap_dim(dim, x.dim()));
      if (!gone.empty()) gone[at] = true;
    }
  }
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) sizes.push_back(x.size(static_cast<int64_t>(i)));
    if (gone[i] && keep) sizes.push_back(1);
  }
  return sizes;
}

void same(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, at::empty_like(x));
}

// Magnitudes of complex numbers are real.
at::ScalarType real_dtype(const at::Tensor& x) { return c10::toRealValueType(x.scalar_type()); }

void magnitude(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, at::empty_like(x, x.options().dtype(real_dtype(x))));
}

// Functions of integers are of the default dtype.
at::ScalarType float_dtype(const at::Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/true)
             ? c10::typeMetaToScalarType(c10::get_default_dtype())
             : x.scalar_type();
}

// Sums of integers are i64.
at::ScalarType sum_dtype(const at::Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/true) ? at::kLong : x.scalar_type();
}

void same_as_float(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, made(x.sizes(), x, float_dtype(x)));
}

void itself(Stack& stack) { stack.resize(1); }

void relu(Stack& stack) {
  check_argument(tensor_at(stack, 0).scalar_type() != at::kBool,
                 "relu: expected numbers, got booleans");
  same(stack);
}

// isin(number, tensor, ...)
void number_is_in(Stack& stack) { give(stack, made({}, tensor_at(stack, 1), at::kBool)); }

// (gradient, input, target, reduction): the gradient of an input that is broadcast is summed later.
void mse_loss_backward(Stack& stack) {
  const at::Tensor grad = tensor_at(stack, 0), x = tensor_at(stack, 1),
                   target = tensor_at(stack, 2);
  const auto sizes = at::infer_size(x.sizes(), target.sizes());
  give(stack, made(at::infer_size(sizes, grad.sizes()), x));
}

void trace(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  check_argument(x.dim() == 2, "trace: expected a matrix, got shape ", x.sizes());
  give(stack, made({}, x, sum_dtype(x)));
}

void same_as_bool(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, made(x.sizes(), x, at::kBool));
}

void broadcast_bool(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1);
  give(stack, made(at::infer_size(a.sizes(), b.sizes()), a, at::kBool));
}

// where(condition, a, b)
void where(Stack& stack) {
  const at::Tensor condition = tensor_at(stack, 0), a = tensor_at(stack, 1),
                   b = tensor_at(stack, 2);
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes()));
  give(stack, made(sizes, condition, at::result_type(a, b)));
}

// Quotients of integers that trials with zeros would divide by.
void floor_divide(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 0), b = tensor_at(stack, 1);
  give(stack, made(at::infer_size(a.sizes(), b.sizes()), a, at::result_type(a, b)));
}

void check_deviates(const at::Tensor& x) {
  check_argument(at::isFloatingType(x.scalar_type()) || at::isComplexType(x.scalar_type()),
                 "var and std: expected a floating point dtype, got ", x.scalar_type());
}

// (self, dims, correction, keepdim)
void deviation(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  check_deviates(x);
  give(stack, made(reduced(x, stack[1], stack[3].toBool()), x, real_dtype(x)));
}

void deviation_and_mean(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  check_deviates(x);
  const auto sizes = reduced(x, stack[1], stack[3].toBool());
  give(stack, made(sizes, x, real_dtype(x)), made(sizes, x));
}

// One element of the input's dtype.
void one_element(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, made({}, x));
}

void extreme(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  check_argument(x.numel() > 0,
                 "the largest or smallest element: expected at least one, got shape ", x.sizes());
  give(stack, made({}, x));
}

// (self, dtype): integers become i64.
void product_of_all(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const at::ScalarType dtype = stack[1].isNone() ? sum_dtype(x) : stack[1].toScalarType();
  give(stack, made({}, x, dtype));
}

// (self, dims, keepdim, dtype)
void nansum(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const at::ScalarType dtype = stack[3].isNone() ? sum_dtype(x) : stack[3].toScalarType();
  give(stack, made(reduced(x, stack[1], stack[2].toBool()), x, dtype));
}

// (self, dims, keepdim)
void logsumexp(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, made(reduced(x, stack[1], stack[2].toBool()), x, float_dtype(x)));
}

// Releases of libtorch differ.
bool aminmax_adds_dimension() {
  static const bool adds = std::get<0>(at::aminmax(at::zeros({}), 0, true)).dim() > 0;
  return adds;
}

// (self, dim, keepdim): one element may be given a dimension where that is asked for.
void aminmax(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const bool keep = stack[2].toBool();
  check_argument(x.numel() > 0 || !stack[1].isNone(),
                 "aminmax: self: expected at least one element, got shape ", x.sizes());
  std::vector<int64_t> sizes = x.sizes().vec();
  if (stack[1].isNone()) {
    sizes.assign(keep ? sizes.size() : 0, 1);
  } else if (x.dim() == 0) {
    c10::maybe_wrap_dim(stack[1].toInt(), 0);
    sizes.assign(keep && aminmax_adds_dimension() ? 1 : 0, 1);
  } else {
    const int64_t dim = c10::maybe_wrap_dim(stack[1].toInt(), x.dim());
    check_argument(x.size(dim) > 0, "aminmax: dim ", dim, ": expected at least one element, got ",
                   x.sizes());
    sizes[static_cast<size_t>(dim)] = 1;
    if (!keep) sizes.erase(sizes.begin() + dim);
  }
  give(stack, made(sizes, x), made(sizes, x));
}

void count_nonzero(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, made(reduced(x, stack[1], false), x, at::kLong));
}

// addbmm(self, batch1, batch2, beta, alpha)
void addbmm(Stack& stack) {
  const at::Tensor a = tensor_at(stack, 1), b = tensor_at(stack, 2);
  give(stack, made({a.size(1), b.size(2)}, a));
}

// embedding(weight, ids, ...)
void embedding(Stack& stack) {
  const at::Tensor weight = tensor_at(stack, 0), ids = tensor_at(stack, 1);
  auto sizes = ids.sizes().vec();
  sizes.push_back(weight.size(1));
  give(stack, made(sizes, weight));
}

// embedding_dense_backward(grad, ids, rows, ...)
void embedding_dense_backward(Stack& stack) {
  const at::Tensor grad = tensor_at(stack, 0);
  give(stack, made({stack[2].toInt(), grad.size(-1)}, grad));
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
void native_layer_norm(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const auto normalized = static_cast<int64_t>(stack[1].toIntVector().size());
  auto sizes = x.sizes().vec();
  std::fill(sizes.end() - normalized, sizes.end(), 1);
  // Statistics have the input's dtype, and f32 where weights have another.
  const at::Tensor weight = tensor_at(stack, 2);
  const bool is_mixed = weight.defined() && weight.scalar_type() != x.scalar_type();
  const at::ScalarType dtype = is_mixed ? at::kFloat : x.scalar_type();
  give(stack, made(x.sizes(), x), made(sizes, x, dtype), made(sizes, x, dtype));
}

// native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, mask)
void native_layer_norm_backward(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 1);
  const auto normalized = stack[2].toIntVector();
  const auto mask = stack[7].toBoolList();
  const bool of_input = mask[0], of_weight = mask[1], of_bias = mask[2];
  give(stack, of_input ? made(x.sizes(), x) : at::Tensor(),
       of_weight ? made(normalized, x) : at::Tensor(),
       of_bias ? made(normalized, x) : at::Tensor());
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
void native_group_norm(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const std::vector<int64_t> sizes{stack[3].toInt(), stack[6].toInt()};
  give(stack, made(x.sizes(), x), made(sizes, x), made(sizes, x));
}

// Parameters and statistics of a batch norm have one dtype, and the input's where there are none.
const at::Tensor& first_defined(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  return a.defined() ? a : b.defined() ? b : c;
}

// native_batch_norm(input, weight, bias, mean, var, training, momentum, eps)
void native_batch_norm(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const int64_t kept = stack[5].toBool() ? x.size(1) : 0;
  const at::ScalarType dtype =
      first_defined(tensor_at(stack, 1), tensor_at(stack, 3), x).scalar_type();
  give(stack, at::empty_like(x), made({kept}, x, dtype), made({kept}, x, dtype));
}

// native_batch_norm_backward(grad, input, weight, mean, var, save_mean, save_invstd, train, eps,
// mask)
void native_batch_norm_backward(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 1);
  const auto mask = stack[9].toBoolList();
  const bool of_input = mask[0], of_weight = mask[1], of_bias = mask[2];
  const at::ScalarType dtype =
      first_defined(tensor_at(stack, 2), tensor_at(stack, 5), x).scalar_type();
  give(stack, of_input ? made(x.sizes(), x) : at::Tensor(),
       of_weight ? made({x.size(1)}, x, dtype) : at::Tensor(),
       of_bias ? made({x.size(1)}, x, dtype) : at::Tensor());
}

// index_select(self, dim, index)
void index_select(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), index = tensor_at(stack, 2);
  auto sizes = x.sizes().vec();
  const auto dim = static_cast<size_t>(c10::maybe_wrap_dim(stack[1].toInt(), x.dim()));
  if (!sizes.empty()) sizes[dim] = index.numel();
  give(stack, made(sizes, x));
}

void take(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), index = tensor_at(stack, 1);
  give(stack, made(index.sizes(), x));
}

// diag(self, diagonal)
void diag(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const int64_t offset = stack[1].toInt();
  check_argument(x.dim() == 1 || x.dim() == 2, "diag: expected a vector or a matrix, got shape ",
                 x.sizes());
  if (x.dim() == 1) {
    const int64_t size = x.size(0) + std::abs(offset);
    return give(stack, made({size, size}, x));
  }
  const int64_t rows = x.size(0) + std::min<int64_t>(offset, 0);
  const int64_t columns = x.size(1) - std::max<int64_t>(offset, 0);
  give(stack, made({std::max<int64_t>(std::min(rows, columns), 0)}, x));
}

// repeat_interleave(self, repeats, dim, output_size)
void repeat_interleave(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  const int64_t repeats = stack[1].toInt();
  if (stack[2].isNone()) return give(stack, made({x.numel() * repeats}, x));
  auto sizes = x.sizes().vec();
  const int64_t dim = c10::maybe_wrap_dim(stack[2].toInt(), x.dim(), /*wrap_scalar=*/false);
  sizes[static_cast<size_t>(dim)] *= repeats;
  give(stack, made(sizes, x));
}

// one_hot(self, num_classes)
void one_hot(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  auto sizes = x.sizes().vec();
  sizes.push_back(stack[1].toInt());
  give(stack, made(sizes, x, at::kLong));
}

void native_dropout(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, at::empty_like(x), made(x.sizes(), x, at::kBool));
}

at::Tensor loss(const at::Tensor& like, at::IntArrayRef sizes, int64_t reduction) {
  return made(reduction == at::Reduction::None ? sizes : at::IntArrayRef(), like);
}

// (input, target, reduction, delta)
void huber_loss(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), target = tensor_at(stack, 1);
  give(stack, loss(x, at::infer_size(x.sizes(), target.sizes()), stack[2].toInt()));
}

// (input, target, weight, reduction)
void binary_cross_entropy(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, loss(x, x.sizes(), stack[3].toInt()));
}

// cross_entropy_loss(input, target, weight, reduction, ignore_index, label_smoothing)
void cross_entropy_loss(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), target = tensor_at(stack, 1);
  check_argument(x.dim() > 0, "cross_entropy_loss: input: expected at least 1 dimension, got none");
  auto sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + (x.dim() > 1 ? 1 : 0));
  const bool probabilities = target.sizes() == x.sizes();
  check_argument(probabilities || target.sizes() == at::IntArrayRef(sizes),
                 "cross_entropy_loss: target: expected shape ", at::IntArrayRef(sizes), " or ",
                 x.sizes(), ", got ", target.sizes());
  give(stack, loss(x, sizes, stack[3].toInt()));
}

// nll_loss2d_forward(input, target, weight, reduction, ignore_index)
void nll_loss2d(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0), target = tensor_at(stack, 1);
  check_argument(x.dim() == 4 && target.dim() == 3,
                 "nll_loss2d: expected 4 dimensions and a target of 3, got shapes ", x.sizes(),
                 " and ", target.sizes());
  give(stack, loss(x, target.sizes(), stack[3].toInt()), made({}, x));
}

void convolution(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  give(stack, made(convolution_sizes(stack), x));
}

// (self, output_size)
void adaptive_avg_pool2d(Stack& stack) {
  const at::Tensor x = tensor_at(stack, 0);
  auto sizes = x.sizes().vec();
  const auto given = stack[1].toIntVector();
  check_argument(x.dim() >= 3 && given.size() == 2,
                 "adaptive_avg_pool2d: expected at least 3 dimensions and 2 sizes, got shape ",
                 x.sizes(), " and ", given.size());
  std::copy(given.begin(), given.end(), sizes.end() - 2);
  give(stack, made(sizes, x));
}

constexpr std::pair<std::string_view, ShapeFunction> kFunctions[] = {
    {"aten::_adaptive_avg_pool2d", {adaptive_avg_pool2d}},
    {"aten::_convolution", {convolution}},
    {"aten::_convolution.deprecated", {convolution}},
    {"aten::abs", {magnitude}},
    {"aten::abs_", {itself}},
    {"aten::addbmm", {addbmm}},
    {"aten::aminmax", {aminmax}},
    {"aten::binary_cross_entropy", {binary_cross_entropy}},
    {"aten::channel_shuffle", {same}},
    {"aten::convolution", {convolution}},
    {"aten::count_nonzero.dim_IntList", {count_nonzero}},
    {"aten::cross_entropy_loss", {cross_entropy_loss}},
    {"aten::diag", {diag}},
    {"aten::dot", {one_element}},
    {"aten::embedding", {embedding}},
    {"aten::embedding_dense_backward", {embedding_dense_backward}},
    {"aten::flip", {same}},
    {"aten::floor_divide", {floor_divide}},
    {"aten::hardswish", {same}},
    {"aten::hardswish_", {itself}},
    {"aten::hardtanh", {same}},
    {"aten::hardtanh_", {itself}},
    {"aten::huber_loss", {huber_loss}},
    {"aten::index_select", {index_select}},
    {"aten::isin.Scalar_Tensor", {number_is_in}},
    {"aten::isnan", {same_as_bool}},
    {"aten::log_sigmoid", {same}},
    {"aten::logical_and", {broadcast_bool}},
    {"aten::logical_and_", {itself}},
    {"aten::logical_not", {same_as_bool}},
    {"aten::logical_not_", {itself}},
    {"aten::logical_or", {broadcast_bool}},
    {"aten::logical_or_", {itself}},
    {"aten::logical_xor", {broadcast_bool}},
    {"aten::logical_xor_", {itself}},
    {"aten::logit", {same_as_float}},
    {"aten::logsumexp", {logsumexp}},
    {"aten::max", {extreme}},
    {"aten::median", {one_element}},
    {"aten::min", {extreme}},
    {"aten::mse_loss_backward", {mse_loss_backward}},
    {"aten::nan_to_num", {same}},
    {"aten::nan_to_num_", {itself}},
    {"aten::nansum", {nansum}},
    {"aten::native_batch_norm", {native_batch_norm, true}},
    {"aten::native_batch_norm_backward", {native_batch_norm_backward}},
    {"aten::native_dropout", {native_dropout}},
    {"aten::native_dropout_backward", {same}},
    {"aten::native_group_norm", {native_group_norm, true}},
    {"aten::native_layer_norm", {native_layer_norm, true}},
    {"aten::native_layer_norm_backward", {native_layer_norm_backward}},
    {"aten::nll_loss2d_forward", {nll_loss2d, true}},
    {"aten::one_hot", {one_hot}},
    {"aten::poisson", {same}},
    {"aten::prelu", {same}},
    {"aten::prod", {product_of_all}},
    {"aten::relu", {relu}},
    {"aten::relu_", {itself}},
    {"aten::repeat_interleave.self_int", {repeat_interleave}},
    {"aten::roll", {same}},
    {"aten::rrelu_with_noise", {same}},
    {"aten::std.correction", {deviation}},
    {"aten::std_mean.correction", {deviation_and_mean}},
    {"aten::take", {take}},
    {"aten::trace", {trace}},
    {"aten::var.correction", {deviation}},
    {"aten::var_mean.correction", {deviation_and_mean}},
    {"aten::where.self", {where}},
};

const std::unordered_map<std::string_view, ShapeFunction>& table() {
  static const std::unordered_map<std::string_view, ShapeFunction> functions(std::begin(kFunctions),
                                                                             std::end(kFunctions));
  return functions;
}

std::string full_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

double count(int64_t value) { return static_cast<double>(value); }

}  // namespace

const ShapeFunction* find_shape_function(const c10::OperatorHandle& op) {
  const auto found = table().find(full_name(op));
  return found == table().end() ? nullptr : &found->second;
}

bool reads_values(const c10::OperatorHandle& op, const Stack& arguments) {
  static const std::unordered_set<std::string_view> readers = {
      "aten::_assert_async",
      "aten::_local_scalar_dense",
      "aten::_pack_padded_sequence",
      "aten::_pad_packed_sequence",
      "aten::_unique",
      "aten::_unique2",
      "aten::allclose",
      "aten::argwhere",
      "aten::bincount",
      "aten::equal",
      "aten::is_nonzero",
      "aten::item",
      "aten::linalg_lstsq",
      "aten::masked_select",
      "aten::nonzero",
      "aten::nonzero_numpy",
      "aten::unique_consecutive",
      "aten::unique_dim",
      "aten::unique_dim_consecutive",
  };
  const std::string& name = op.operator_name().name;
  if (readers.count(name) != 0) return true;
  // A mask chooses as many elements as are true; writing through one is another matter.
  if (name == "aten::index") {
    bool masks = false;
    for_each_tensor({arguments.begin() + 1, arguments.end()},
                    [&](const at::Tensor& index) { masks = masks || is_mask(index); });
    return masks;
  }
  if (name == "aten::one_hot") return arguments[1].toInt() < 0;
  if (name == "aten::repeat_interleave") {
    return op.operator_name().overload_name != "self_int" && arguments.back().isNone();
  }
  return false;
}

double product_flops(const c10::OperatorHandle& op, const Stack& arguments, const Stack& results) {
  const std::string_view name = op.operator_name().name;
  // The arguments that are multiplied.
  size_t first = 0;
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv" ||
      name == "aten::addbmm" || name == "aten::addmm_" || name == "aten::baddbmm_") {
    first = 1;
  } else if (name == "aten::convolution" || name == "aten::_convolution") {
    const at::Tensor x = tensor_at(arguments, 0), weight = tensor_at(arguments, 1);
    const bool transposed = arguments[6].toBool();
    const int64_t outputs = transposed ? x.numel() : tensor_at(results, 0).numel();
    return 2 * count(outputs) * count(weight.numel()) / count(std::max<int64_t>(weight.size(0), 1));
  } else if (name != "aten::mm" && name != "aten::bmm" && name != "aten::mv" &&
             name != "aten::dot") {
    return 0;
  }
  const at::Tensor a = tensor_at(arguments, first), b = tensor_at(arguments, first + 1);
  // Every element of a meets each column of b.
  return 2 * count(a.numel()) * (b.dim() >= 2 ? count(b.size(-1)) : 1);
}

}  // namespace nxd
