#include "core/tensor_parallel/row_linear.h"

namespace nxd {
namespace {

// The features of x that this rank multiplies.
Array own_features(const ProcessGroup& group, const Array& x, const LinearOptions& options) {
  if (options.input_is_parallel) return x;
  return part_of_rank(x, x.dims() - 1, group.rank(), group.size());
}

}  // namespace

RowLinearForward::RowLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                                   const LinearOptions& options)
    : LinearPlan(group, LinearKind::kRow, false, arrays, options),
      x_(own_features(group, arrays_.x, options), scratch_),
      weight_(arrays_.weight, scratch_),
      bias_(arrays_.bias, scratch_) {
  if (is_alone()) {
    y_.emplace(arrays_.y, arrays_.bias.has_value(), scratch_);
  } else {
    reduced_y_.emplace(group_, arrays_.y, sequence_dim(), options_.workspace, scratch_);
  }
}

void RowLinearForward::run(GroupCalls& calls) const {
  const Product product{arrays_.x.dtype, x_.read(scratch_), in_by_out(weight_.read(scratch_)),
                        in_features()};
  const void* bias = bias_.read(scratch_);
  if (!reduced_y_) return y_->write(product, scratch_, bias);
  write_product(product, reduced_y_->summand(scratch_));
  calls.run(reduced_y_->call(scratch_));
  reduced_y_->finish(scratch_, bias);
}

RowLinearBackward::RowLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                                     const LinearOptions& options)
    : LinearPlan(group, LinearKind::kRow, true, arrays, options),
      x_(own_features(group, arrays_.x, options), scratch_),
      weight_(arrays_.weight, scratch_) {
  if (splits_sequence()) {
    gathered_dy_.emplace(group_, arrays_.y, sequence_dim(), scratch_);
  } else {
    dy_.emplace(arrays_.y, scratch_);
  }
  if (arrays_.grad_weight) grad_weight_.emplace(*arrays_.grad_weight, false, scratch_);
  if (!arrays_.grad_x) return;
  if (options_.input_is_parallel || is_alone()) {
    grad_x_.emplace(*arrays_.grad_x, false, scratch_);
  } else {
    stacked_x_.emplace(group_, arrays_.x.dtype, with_last(arrays_.x, in_features()), last_dim(),
                       scratch_);
  }
}

void RowLinearBackward::run(GroupCalls& calls) const {
  Array whole_dy = arrays_.y;
  if (gathered_dy_) {
    calls.run(gathered_dy_->call(scratch_));
    whole_dy = gathered_dy_->whole(scratch_);
  }
  const Operand dy = gathered_dy_ ? Operand::of_dense(whole_dy) : dy_->read(scratch_);
  const Product to_x{arrays_.x.dtype, dy, out_by_in(weight_.read(scratch_)), out_features()};
  if (grad_x_) grad_x_->write(to_x, scratch_);
  if (stacked_x_) {
    write_product(to_x, stacked_x_->part(scratch_, group_.rank()));
    calls.start(stacked_x_->gather(scratch_));
  }
  if (grad_weight_) {
    const Operand x = x_.read(scratch_);
    grad_weight_->write(weight_product(dy, x, rows_of(arrays_.x.shape)), scratch_, nullptr,
                        options_.accumulate_grads);
  }
  if (arrays_.grad_bias) {
    kernels::sum_rows(whole_dy.rows(), arrays_.grad_bias->rows(), options_.accumulate_grads);
  }
  calls.wait();
  if (stacked_x_) stacked_x_->copy_to(*arrays_.grad_x, scratch_);
}

}  // namespace nxd
