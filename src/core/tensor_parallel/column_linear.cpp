#include "core/tensor_parallel/column_linear.h"

#include "core/base/dtype.h"

namespace nxd {

ColumnLinearForward::ColumnLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                                         const LinearOptions& options)
    : LinearPlan(group, LinearKind::kColumn, false, arrays, options),
      weight_(arrays_.weight, scratch_),
      bias_(arrays_.bias, scratch_) {
  if (splits_sequence()) {
    gathered_x_.emplace(group_, arrays_.x, sequence_dim(), scratch_);
  } else {
    x_.emplace(arrays_.x, scratch_);
  }
  if (options_.gather_output && !is_alone()) {
    stacked_y_.emplace(group_, arrays_.y.dtype, with_last(arrays_.y, out_features()), last_dim(),
                       scratch_);
  } else {
    y_.emplace(arrays_.y, arrays_.bias.has_value(), scratch_);
  }
}

const void* ColumnLinearForward::bias_part(const void* bias) const {
  if (!bias) return nullptr;
  return static_cast<const char*>(bias) +
         static_cast<size_t>(group_.rank() * out_features()) * dtype_size(arrays_.y.dtype);
}

void ColumnLinearForward::run(GroupCalls& calls) const {
  Product product{arrays_.x.dtype, {}, in_by_out(weight_.read(scratch_)), in_features()};
  if (gathered_x_) {
    calls.run(gathered_x_->call(scratch_));
    product.a = Operand::of_dense(gathered_x_->whole(scratch_));
  } else {
    product.a = x_->read(scratch_);
  }
  const void* bias = bias_.read(scratch_);
  if (!stacked_y_) return y_->write(product, scratch_, bias);
  // Each rank adds its own part of the bias, so that y is rounded once.
  write_product(product, stacked_y_->part(scratch_, group_.rank()), bias_part(bias));
  calls.run(stacked_y_->gather(scratch_));
  stacked_y_->copy_to(arrays_.y, scratch_);
}

ColumnLinearBackward::ColumnLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                                           const LinearOptions& options)
    : LinearPlan(group, LinearKind::kColumn, true, arrays, options),
      dy_(options.gather_output ? part_of_rank(arrays_.y, last_dim(), group.rank(), ranks())
                                : arrays_.y,
          scratch_),
      weight_(arrays_.weight, scratch_) {
  if (arrays_.grad_x && is_alone()) grad_x_.emplace(*arrays_.grad_x, false, scratch_);
  if (arrays_.grad_x && !is_alone()) {
    reduced_x_.emplace(group_, *arrays_.grad_x, sequence_dim(), options_.workspace, scratch_);
  }
  if (!arrays_.grad_weight) return;
  grad_weight_.emplace(*arrays_.grad_weight, false, scratch_);
  if (splits_sequence()) {
    gathered_x_.emplace(group_, arrays_.x, sequence_dim(), scratch_);
  } else {
    x_.emplace(arrays_.x, scratch_);
  }
}

void ColumnLinearBackward::run(GroupCalls& calls) const {
  if (gathered_x_) calls.start(gathered_x_->call(scratch_));
  const Operand dy = dy_.read(scratch_);
  const Product to_x{arrays_.x.dtype, dy, out_by_in(weight_.read(scratch_)), out_features()};
  if (grad_x_) grad_x_->write(to_x, scratch_);
  if (reduced_x_) {
    write_product(to_x, reduced_x_->summand(scratch_));
    calls.wait();
    calls.start(reduced_x_->call(scratch_));
  }
  if (grad_weight_) {
    if (!reduced_x_) calls.wait();
    const Operand x =
        gathered_x_ ? Operand::of_dense(gathered_x_->whole(scratch_)) : x_->read(scratch_);
    grad_weight_->write(weight_product(dy, x, rows_of(arrays_.y.shape)), scratch_, nullptr,
                        options_.accumulate_grads);
  }
  if (arrays_.grad_bias) {
    kernels::sum_rows(arrays_.y.rows(), arrays_.grad_bias->rows(), options_.accumulate_grads);
  }
  calls.wait();
  if (reduced_x_) reduced_x_->finish(scratch_);
}

}  // namespace nxd
