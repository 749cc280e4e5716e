#include "core/tensor_parallel/linear_plan.h"

#include <utility>

#include "core/tensor_parallel/array_checks.h"

namespace nxd {

LinearPlan::LinearPlan(const ProcessGroup& group, LinearKind kind, bool backward,
                       LinearArrays arrays, const LinearOptions& options)
    : group_(group),
      arrays_(std::move(arrays)),
      options_(options),
      kind_(kind),
      backward_(backward) {
  check_dtypes();
  check_options();
  check_shapes();
  check_memory();
}

void LinearPlan::check_dtypes() const {
  const nxd_dtype_t dtype = arrays_.x.dtype;
  check_float(arrays_.x, "x");
  check_same_dtype(arrays_.weight, "weight", dtype, "x");
  check_same_dtype(arrays_.y, name_of_y(), dtype, "x");
  if (arrays_.bias) check_same_dtype(*arrays_.bias, "bias", dtype, "x");
  if (arrays_.grad_x) check_same_dtype(*arrays_.grad_x, "grad_x", dtype, "x");
  check_grad_dtype(arrays_.grad_weight, "grad_weight", dtype, "x");
  check_grad_dtype(arrays_.grad_bias, "grad_bias", dtype, "x");
}

void LinearPlan::check_options() const {
  check_argument(!options_.sequence_parallel || !options_.gather_output,
                 "gather_output: cannot be on together with sequence_parallel");
  check_argument(!options_.sequence_parallel || options_.input_is_parallel,
                 "sequence_parallel: needs input_is_parallel");
}

void LinearPlan::check_shapes() {
  const Array& x = arrays_.x;
  check_argument(arrays_.weight.dims() == 2, "weight: expected 2 dimensions, got the shape ",
                 shape_text(arrays_.weight.shape));
  check_argument(x.dims() >= 1, "x: expected at least 1 dimension, got none");
  const int64_t in = in_features() * (options_.input_is_parallel ? 1 : ranks());
  check_argument(x.last() == in, "x: expected ", in, " features in the last dimension, got the ",
                 "shape ", shape_text(x.shape));
  Array::Shape expected = with_last(x, out_features() * (options_.gather_output ? ranks() : 1));
  if (options_.sequence_parallel) {
    place_sequence(expected);
  } else {
    options_.sequence_dim = -1;
  }
  const Array::Shape features{expected.back()};
  check_shape(arrays_.y, name_of_y(), expected);
  if (arrays_.bias) check_shape(*arrays_.bias, "bias", features);
  if (arrays_.grad_x) check_shape(*arrays_.grad_x, "grad_x", x.shape);
  if (arrays_.grad_weight) check_shape(*arrays_.grad_weight, "grad_weight", arrays_.weight.shape);
  if (arrays_.grad_bias) check_shape(*arrays_.grad_bias, "grad_bias", features);
}

// Finds the dimension, and the size that y has of it.
void LinearPlan::place_sequence(Array::Shape& expected) {
  const int dim = checked_sequence_dim(options_.sequence_dim, arrays_.x, "x");
  options_.sequence_dim = dim;
  int64_t& size = expected[static_cast<size_t>(dim)];
  if (kind_ == LinearKind::kColumn) {
    size *= ranks();
    return;
  }
  check_argument(size % ranks() == 0, "x: expected a size of dimension ", dim,
                 " that divides by the ", ranks(), " ranks of group ", group_.name(),
                 ", got the shape ", shape_text(arrays_.x.shape));
  size /= ranks();
}

void LinearPlan::check_memory() const {
  CallMemory memory;
  memory.add_input(arrays_.x, "x");
  memory.add_input(arrays_.weight, "weight");
  if (backward_) {
    memory.add_input(arrays_.y, name_of_y());
  } else {
    memory.add_output(arrays_.y, name_of_y());
  }
  memory.add_input(arrays_.bias, "bias");
  memory.add_output(arrays_.grad_x, "grad_x");
  memory.add_output(arrays_.grad_weight, "grad_weight");
  memory.add_output(arrays_.grad_bias, "grad_bias");
  memory.check(options_.workspace);
}

void LinearPlan::propose(Proposal& proposal, const LinearPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const LinearPlan&;
  same("operation (0, 1: column linear, forward and backward; 2, 3: row linear)",
       [](Plan p) { return 2 * static_cast<int>(p.kind_) + (p.backward_ ? 1 : 0); });
  same("dtype", [](Plan p) { return p.arrays_.x.dtype; });
  same("rows of x", [](Plan p) { return rows_of(p.arrays_.x.shape); });
  same("in_features of the weight", [](Plan p) { return p.in_features(); });
  same("out_features of the weight", [](Plan p) { return p.out_features(); });
  same("gather_output", [](Plan p) { return p.options_.gather_output; });
  same("input_is_parallel", [](Plan p) { return p.options_.input_is_parallel; });
  same("sequence_parallel", [](Plan p) { return p.options_.sequence_parallel; });
  same("sequence_dim", [](Plan p) { return p.sequence_dim(); });
  same("size of sequence_dim",
       [](Plan p) { return p.splits_sequence() ? p.arrays_.x.size(p.sequence_dim()) : 0; });
  same("bias", [](Plan p) { return p.arrays_.bias.has_value(); });
  same("grad_x", [](Plan p) { return p.arrays_.grad_x.has_value(); });
  same("grad_weight", [](Plan p) { return p.arrays_.grad_weight.has_value(); });
  same("grad_bias", [](Plan p) { return p.arrays_.grad_bias.has_value(); });
}

Product LinearPlan::weight_product(const Operand& dy, const Operand& x, int64_t rows) const {
  if (options_.transposed_weight) return {arrays_.x.dtype, x.t(), dy, rows};
  return {arrays_.x.dtype, dy.t(), x, rows};
}

Array::Shape LinearPlan::with_last(const Array& array, int64_t features) {
  Array::Shape shape = array.shape;
  shape.back() = features;
  return shape;
}

int64_t LinearPlan::rows_of(const Array::Shape& shape) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
  return rows;
}

}  // namespace nxd
