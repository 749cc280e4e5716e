#include "core/tensor_parallel/linear_plan.h"

#include <utility>

#include "core/base/hash.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

LinearPlan::LinearPlan(const ProcessGroup& group, LinearKind kind, bool backward,
                       LinearArrays arrays, const LinearCallOptions& options)
    : group_(group),
      arrays_(std::move(arrays)),
      options_(options),
      kind_(kind),
      backward_(backward) {
  check_argument(!arrays_.weights.empty(), "num_weights: expected at least 1, got 0");
  check_dtypes();
  check_options();
  check_shapes();
  check_memory();
}

std::string LinearPlan::name(const char* one, const char* several, size_t index) const {
  return arrays_.numbered ? text(several, "[", index, "]") : one;
}

std::string LinearPlan::name_of_y(size_t index) const {
  return backward_ ? name("grad_y", "grad_ys", index) : name("y", "ys", index);
}

void LinearPlan::check_dtypes() const {
  const nxd_dtype_t dtype = this->dtype();
  check_float(arrays_.x, "x");
  if (arrays_.grad_x) check_same_dtype(*arrays_.grad_x, "grad_x", dtype, "x");
  for (size_t i = 0; i < arrays_.weights.size(); ++i) {
    const LinearWeight& w = arrays_.weights[i];
    check_same_dtype(w.weight, name("weight", "weights", i), dtype, "x");
    check_same_dtype(w.y, name_of_y(i), dtype, "x");
    if (w.bias) check_same_dtype(*w.bias, name("bias", "biases", i), dtype, "x");
    check_grad_dtype(w.grad_weight, name("grad_weight", "grad_weights", i), dtype, "x");
    check_grad_dtype(w.grad_bias, name("grad_bias", "grad_biases", i), dtype, "x");
  }
}

void LinearPlan::check_options() const {
  check_argument(!options_.sequence_parallel || !options_.gather_output,
                 "gather_output: cannot be on together with sequence_parallel");
  check_argument(!options_.sequence_parallel || options_.input_is_parallel,
                 "sequence_parallel: needs input_is_parallel");
}

void LinearPlan::check_shapes() {
  const Array& x = arrays_.x;
  for (size_t i = 0; i < arrays_.weights.size(); ++i) {
    const Array& weight = arrays_.weights[i].weight;
    check_argument(weight.dims() == 2, name("weight", "weights", i),
                   ": expected 2 dimensions, got the shape ", shape_text(weight.shape));
  }
  check_argument(x.dims() >= 1, "x: expected at least 1 dimension, got none");
  const int64_t in = in_features() * (options_.input_is_parallel ? 1 : ranks());
  check_argument(x.last() == in, "x: expected ", in, " features in the last dimension, got the ",
                 "shape ", shape_text(x.shape));
  if (arrays_.grad_x) check_shape(*arrays_.grad_x, "grad_x", x.shape);
  const Array::Shape sizes = placed_sequence();
  for (size_t i = 0; i < arrays_.weights.size(); ++i) check_weight(i, sizes);
}

void LinearPlan::check_weight(size_t index, Array::Shape expected) const {
  const LinearWeight& w = arrays_.weights[index];
  check_argument(in_features(w) == in_features(), name("weight", "weights", index), ": expected ",
                 in_features(), " input features, as weights[0] has, got the shape ",
                 shape_text(w.weight.shape));
  expected.back() = out_features(w) * (options_.gather_output ? ranks() : 1);
  const Array::Shape features{expected.back()};
  check_shape(w.y, name_of_y(index), expected);
  if (w.bias) check_shape(*w.bias, name("bias", "biases", index), features);
  if (w.grad_weight) {
    check_shape(*w.grad_weight, name("grad_weight", "grad_weights", index), w.weight.shape);
  }
  if (w.grad_bias) check_shape(*w.grad_bias, name("grad_bias", "grad_biases", index), features);
}

Array::Shape LinearPlan::placed_sequence() {
  Array::Shape sizes = arrays_.x.shape;
  if (!options_.sequence_parallel) {
    options_.sequence_dim = -1;
    return sizes;
  }
  const int dim = checked_sequence_dim(options_.sequence_dim, arrays_.x, "x");
  options_.sequence_dim = dim;
  int64_t& size = sizes[static_cast<size_t>(dim)];
  if (kind_ == LinearKind::kColumn) {
    size *= ranks();
    return sizes;
  }
  check_argument(size % ranks() == 0, "x: expected a size of dimension ", dim,
                 " that divides by the ", ranks(), " ranks of group ", group_.name(),
                 ", got the shape ", shape_text(arrays_.x.shape));
  size /= ranks();
  return sizes;
}

void LinearPlan::check_memory() const {
  CallMemory memory;
  memory.add_input(arrays_.x, "x");
  memory.add_output(arrays_.grad_x, "grad_x");
  for (size_t i = 0; i < arrays_.weights.size(); ++i) {
    const LinearWeight& w = arrays_.weights[i];
    memory.add_input(w.weight, name("weight", "weights", i));
    if (backward_) {
      memory.add_input(w.y, name_of_y(i));
    } else {
      memory.add_output(w.y, name_of_y(i));
    }
    memory.add_input(w.bias, name("bias", "biases", i));
    memory.add_output(w.grad_weight, name("grad_weight", "grad_weights", i));
    memory.add_output(w.grad_bias, name("grad_bias", "grad_biases", i));
  }
  memory.check(options_.workspace);
}

// The value of one weight, or a digest of those of several.
double LinearPlan::of_weights(double (*value)(const LinearPlan&, const LinearWeight&)) const {
  if (arrays_.weights.size() == 1) return value(*this, arrays_.weights.front());
  Hash digest;
  for (const LinearWeight& w : arrays_.weights) {
    digest.add(static_cast<uint64_t>(value(*this, w)));
  }
  return digest.folded();
}

void LinearPlan::propose(Proposal& proposal, const LinearPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  const auto same_of_weights = [&](const char* name,
                                   double (*value)(const LinearPlan&, const LinearWeight&)) {
    proposal.same(name, plan ? plan->of_weights(value) : 0);
  };
  using Plan = const LinearPlan&;
  using Weight = const LinearWeight&;
  same("operation (0, 1: column linear, forward and backward; 2, 3: row linear)",
       [](Plan p) { return 2 * static_cast<int>(p.kind_) + (p.backward_ ? 1 : 0); });
  proposal.same_dtype("dtype", plan ? plan->dtype() : NXD_DTYPE_F32);
  same("rows of x", [](Plan p) { return rows_of(p.arrays_.x.shape); });
  same("number of weights", [](Plan p) { return p.arrays_.weights.size(); });
  same("in_features of the weight", [](Plan p) { return p.in_features(); });
  same_of_weights("out_features of the weight",
                  [](Plan p, Weight w) { return static_cast<double>(p.out_features(w)); });
  same("gather_output", [](Plan p) { return p.options_.gather_output; });
  same("input_is_parallel", [](Plan p) { return p.options_.input_is_parallel; });
  same("sequence_parallel", [](Plan p) { return p.options_.sequence_parallel; });
  same("sequence_dim", [](Plan p) { return p.sequence_dim(); });
  same("transposed_weight", [](Plan p) { return p.options_.transposed_weight; });
  same("accumulate_grads", [](Plan p) { return p.options_.accumulate_grads; });
  same("size of sequence_dim",
       [](Plan p) { return p.splits_sequence() ? p.arrays_.x.size(p.sequence_dim()) : 0; });
  same_of_weights("bias", [](Plan, Weight w) { return w.bias ? 1.0 : 0.0; });
  same("digest of the shape of x", [](Plan p) { return digest_of(p.arrays_.x.shape); });
  same("grad_x", [](Plan p) { return p.arrays_.grad_x.has_value(); });
  same_of_weights("grad_weight", [](Plan, Weight w) { return w.grad_weight ? 1.0 : 0.0; });
  same_of_weights("grad_bias", [](Plan, Weight w) { return w.grad_bias ? 1.0 : 0.0; });
  same_of_weights("dtype of grad_weight (an NXD_DTYPE_*)",
                  [](Plan, Weight w) { return static_cast<double>(grad_dtype(w.grad_weight)); });
  same_of_weights("dtype of grad_bias (an NXD_DTYPE_*)",
                  [](Plan, Weight w) { return static_cast<double>(grad_dtype(w.grad_bias)); });
}

Product LinearPlan::weight_product(const Operand& dy, const Operand& x, int64_t rows) const {
  if (options_.transposed_weight) return {dtype(), x.t(), dy, rows};
  return {dtype(), dy.t(), x, rows};
}

Array::Shape LinearPlan::with_last(int64_t features) const {
  Array::Shape shape = arrays_.x.shape;
  shape.back() = features;
  return shape;
}

int64_t LinearPlan::rows_of(const Array::Shape& shape) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
  return rows;
}

}  // namespace nxd
