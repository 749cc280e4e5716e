#include "core/tensor_parallel/row_linear.h"

namespace nxd {
namespace {

// The features of x that this rank multiplies.
Array own_features(const ProcessGroup& group, const Array& x, const LinearCallOptions& options) {
  if (options.input_is_parallel) return x;
  return part_of_rank(x, x.dims() - 1, group.rank(), group.size());
}

}  // namespace

RowLinearForward::RowLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                                   const LinearCallOptions& options)
    : LinearPlan(group, LinearKind::kRow, false, arrays, options),
      x_(own_features(group, arrays_.x, options), scratch_),
      weight_(w().weight, scratch_),
      bias_(w().bias, scratch_) {
  if (is_alone()) {
    y_.emplace(w().y, w().bias.has_value(), scratch_);
  } else {
    reduced_y_.emplace(group_, w().y, sequence_dim(), exchanged_dtype(), options_.workspace,
                       scratch_);
  }
}

void RowLinearForward::run(GroupCalls& calls) const {
  const Product product{dtype(), x_.read(scratch_), in_by_out(weight_.read(scratch_)),
                        in_features()};
  const void* bias = bias_.read(scratch_);
  if (!reduced_y_) return y_->write(product, scratch_, bias);
  write_product(product, reduced_y_->summand(scratch_));
  calls.run(reduced_y_->call(scratch_));
  reduced_y_->finish(scratch_, bias);
}

RowLinearBackward::RowLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                                     const LinearCallOptions& options)
    : LinearPlan(group, LinearKind::kRow, true, arrays, options),
      x_(own_features(group, arrays_.x, options), scratch_),
      weight_(w().weight, scratch_) {
  if (splits_sequence()) {
    gathered_dy_.emplace(group_, w().y, sequence_dim(), scratch_);
  } else {
    dy_.emplace(w().y, scratch_);
  }
  if (w().grad_weight) grad_weight_.emplace(*w().grad_weight, false, scratch_);
  if (!arrays_.grad_x) return;
  if (options_.input_is_parallel || is_alone()) {
    grad_x_.emplace(*arrays_.grad_x, false, scratch_);
  } else {
    stacked_x_.emplace(group_, dtype(), with_last(in_features()), last_dim(), scratch_);
  }
}

RowLinearBackward::Inputs RowLinearBackward::start(GroupCalls& calls) const {
  Inputs inputs;
  inputs.whole_dy = w().y;
  if (gathered_dy_) {
    calls.run(gathered_dy_->call(scratch_));
    inputs.whole_dy = gathered_dy_->whole(scratch_);
  }
  inputs.dy = gathered_dy_ ? Operand::of_dense(inputs.whole_dy) : dy_->read(scratch_);
  const Product to_x{dtype(), inputs.dy, out_by_in(weight_.read(scratch_)), out_features(w())};
  if (grad_x_) grad_x_->write(to_x, scratch_);
  if (stacked_x_) {
    write_product(to_x, stacked_x_->part(scratch_, group_.rank()));
    calls.start(stacked_x_->gather(scratch_));
  }
  return inputs;
}

Product RowLinearBackward::weight_product(const Inputs& inputs) const {
  return LinearPlan::weight_product(inputs.dy, x_.read(scratch_), rows_of(arrays_.x.shape));
}

void RowLinearBackward::finish(GroupCalls& calls) const {
  calls.wait();
  if (stacked_x_) stacked_x_->copy_to(*arrays_.grad_x, scratch_);
}

void RowLinearBackward::run(GroupCalls& calls) const {
  const Inputs inputs = start(calls);
  if (grad_weight_) {
    grad_weight_->write(weight_product(inputs), scratch_, nullptr, options_.accumulate_grads);
  }
  if (w().grad_bias) {
    kernels::sum_rows(inputs.whole_dy.rows(), w().grad_bias->rows(), options_.accumulate_grads);
  }
  finish(calls);
}

}  // namespace nxd
