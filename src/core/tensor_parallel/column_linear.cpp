#include "core/tensor_parallel/column_linear.h"

#include "core/base/dtype.h"

namespace nxd {

ColumnLinearForward::ColumnLinearForward(const ProcessGroup& group, const LinearArrays& arrays,
                                         const LinearCallOptions& options)
    : LinearPlan(group, LinearKind::kColumn, false, arrays, options) {
  if (splits_sequence()) {
    gathered_x_.emplace(group_, arrays_.x, sequence_dim(), scratch_);
  } else {
    x_.emplace(arrays_.x, scratch_);
  }
  outputs_.reserve(arrays_.weights.size());
  for (const LinearWeight& w : arrays_.weights) {
    Output& output = outputs_.emplace_back(
        Output{MatrixInput(w.weight, scratch_), DenseInput(w.bias, scratch_)});
    if (options_.gather_output && !is_alone()) {
      output.stacked.emplace(group_, dtype(), with_last(out_features(w)), last_dim(), scratch_);
    } else {
      output.y.emplace(w.y, w.bias.has_value(), scratch_);
    }
  }
}

int ColumnLinearForward::collectives() const {
  if (gathered_x_) return 1;
  return outputs_.front().stacked ? static_cast<int>(outputs_.size()) : 0;
}

const void* ColumnLinearForward::bias_part(const LinearWeight& w, const void* bias) const {
  if (!bias) return nullptr;
  return static_cast<const char*>(bias) +
         static_cast<size_t>(group_.rank() * out_features(w)) * dtype_size(dtype());
}

void ColumnLinearForward::run(GroupCalls& calls) const {
  Operand x;
  if (gathered_x_) {
    calls.run(gathered_x_->call(scratch_));
    x = Operand::of_dense(gathered_x_->whole(scratch_));
  } else {
    x = x_->read(scratch_);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) run_one(calls, x, i);
}

void ColumnLinearForward::run_one(GroupCalls& calls, const Operand& x, size_t index) const {
  const LinearWeight& w = arrays_.weights[index];
  const Output& output = outputs_[index];
  const Product product{dtype(), x, in_by_out(output.weight.read(scratch_)), in_features()};
  const void* bias = output.bias.read(scratch_);
  if (!output.stacked) return output.y->write(product, scratch_, bias);
  // Each rank adds its own part of the bias, so that y is rounded once.
  write_product(product, output.stacked->part(scratch_, group_.rank()), bias_part(w, bias));
  calls.run(output.stacked->gather(scratch_));
  output.stacked->copy_to(w.y, scratch_);
}

ColumnLinearBackward::ColumnLinearBackward(const ProcessGroup& group, const LinearArrays& arrays,
                                           const LinearCallOptions& options, bool reads_x)
    : LinearPlan(group, LinearKind::kColumn, true, arrays, options) {
  parts_.reserve(arrays_.weights.size());
  for (const LinearWeight& w : arrays_.weights) {
    const Array dy =
        options_.gather_output ? part_of_rank(w.y, last_dim(), group_.rank(), ranks()) : w.y;
    Part& part =
        parts_.emplace_back(Part{MatrixInput(dy, scratch_), MatrixInput(w.weight, scratch_)});
    if (!w.grad_weight) continue;
    part.grad_weight.emplace(*w.grad_weight, false, scratch_);
    reads_x = true;
  }
  if (arrays_.grad_x && !is_alone()) {
    reduced_x_.emplace(group_, *arrays_.grad_x, sequence_dim(), exchanged_dtype(),
                       options_.workspace, scratch_);
  }
  // Products of several weights are rounded once, when all have been added up.
  const bool is_wide = reduced_x_ && exchanged_dtype() == partial_sum_dtype(dtype());
  if (arrays_.grad_x && parts_.size() > 1 && dtype_is_16_bit_float(dtype()) && !is_wide) {
    wide_x_block_ = scratch_.reserve(arrays_.grad_x->count(), splits_sequence() ? ranks() : 1,
                                     partial_sum_dtype(dtype()), Scratch::Use::kOwn);
  } else if (arrays_.grad_x && !reduced_x_) {
    grad_x_.emplace(*arrays_.grad_x, false, scratch_);
  }
  if (!reads_x) return;
  if (splits_sequence()) {
    gathered_x_.emplace(group_, arrays_.x, sequence_dim(), scratch_);
  } else {
    x_.emplace(arrays_.x, scratch_);
  }
}

// The products of all weights add up where their sum is exchanged, or wanted.
void ColumnLinearBackward::multiply_to_x(const std::vector<Operand>& dys) const {
  if (!arrays_.grad_x) return;
  const Array wanted = reduced_x_ ? reduced_x_->summand(scratch_) : *arrays_.grad_x;
  const Array sum = wide_x_block_ ? Array::dense(partial_sum_dtype(dtype()), wanted.shape,
                                                 scratch_.at(*wide_x_block_))
                                  : wanted;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Product product{dtype(), dys[i], out_by_in(parts_[i].weight.read(scratch_)),
                          out_features(arrays_.weights[i])};
    if (grad_x_) {
      grad_x_->write(product, scratch_, nullptr, i > 0);
    } else {
      write_product(product, sum, nullptr, i > 0);
    }
  }
  if (wide_x_block_) kernels::move_rows(sum.rows(), wanted.rows());
}

ColumnLinearBackward::Inputs ColumnLinearBackward::start(GroupCalls& calls) const {
  Inputs inputs;
  if (gathered_x_) calls.start(gathered_x_->call(scratch_));
  inputs.dys.reserve(parts_.size());
  for (const Part& part : parts_) inputs.dys.push_back(part.dy.read(scratch_));
  multiply_to_x(inputs.dys);
  calls.wait();
  if (reduced_x_) calls.start(reduced_x_->call(scratch_));
  if (x_) inputs.x = x_->read(scratch_);
  if (gathered_x_) inputs.x = Operand::of_dense(gathered_x_->whole(scratch_));
  return inputs;
}

Product ColumnLinearBackward::weight_product(size_t index, const Inputs& inputs) const {
  return LinearPlan::weight_product(inputs.dys[index], inputs.x,
                                    rows_of(arrays_.weights[index].y.shape));
}

void ColumnLinearBackward::finish(GroupCalls& calls) const {
  calls.wait();
  if (reduced_x_) reduced_x_->finish(scratch_);
}

void ColumnLinearBackward::run(GroupCalls& calls) const {
  const Inputs inputs = start(calls);
  for (size_t i = 0; i < parts_.size(); ++i) {
    const LinearWeight& w = arrays_.weights[i];
    if (parts_[i].grad_weight) {
      parts_[i].grad_weight->write(weight_product(i, inputs), scratch_, nullptr,
                                   options_.accumulate_grads);
    }
    if (w.grad_bias) {
      kernels::sum_rows(w.y.rows(), w.grad_bias->rows(), options_.accumulate_grads);
    }
  }
  finish(calls);
}

}  // namespace nxd
