#include "core/tensor_parallel/normalization.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/half.h"
#include "core/kernels/norms.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {
namespace {

const Array& checked_x(const Array& x) {
  check_float(x, "x");
  check_argument(x.dims() >= 1 && x.last() > 0,
                 "x: expected at least 1 feature in the last dimension, got the shape ",
                 shape_text(x.shape));
  return x;
}

template <class T>
void fill_ones(void* data, int64_t count) {
  std::fill_n(static_cast<T*>(data), count, T{1});
}

// Dense rows, as kernels take them. Statistics are those of all rows, one kind after another.
struct Rows {
  nxd_dtype_t dtype;
  int64_t rows, cols;
  const void *x, *weight;
  bool has_mean;
};

const double* f64(const void* data) { return static_cast<const double*>(data); }
double* f64(void* data) { return static_cast<double*>(data); }

void forward_rows(const Rows& r, const void* bias, double eps, void* y, float* statistics) {
  if (!r.has_mean) {
    return kernels::rms_norm_forward(r.dtype, r.rows, r.cols, r.x, r.weight, eps, y, statistics);
  }
  kernels::layer_norm_forward(r.dtype, r.rows, r.cols, r.x, r.weight, bias, eps, y, statistics,
                              statistics + r.rows);
}

void forward_rows(const Rows& r, const void* bias, double eps, void* y, double* statistics) {
  if (!r.has_mean) {
    return kernels::rms_norm_forward(r.rows, r.cols, f64(r.x), f64(r.weight), eps, f64(y),
                                     statistics);
  }
  kernels::layer_norm_forward(r.rows, r.cols, f64(r.x), f64(r.weight), f64(bias), eps, f64(y),
                              statistics, statistics + r.rows);
}

// dweight [cols], and behind it a layer norm's dbias.
void backward_rows(const Rows& r, const float* statistics, const void* dy, void* dx,
                   float* dweight) {
  if (!r.has_mean) {
    return kernels::rms_norm_backward(r.dtype, r.rows, r.cols, r.x, r.weight, statistics, dy, dx,
                                      dweight);
  }
  kernels::layer_norm_backward(r.dtype, r.rows, r.cols, r.x, r.weight, statistics,
                               statistics + r.rows, dy, dx, dweight, dweight + r.cols);
}

void backward_rows(const Rows& r, const double* statistics, const void* dy, void* dx,
                   double* dweight) {
  if (!r.has_mean) {
    return kernels::rms_norm_backward(r.rows, r.cols, f64(r.x), f64(r.weight), statistics, f64(dy),
                                      f64(dx), dweight);
  }
  kernels::layer_norm_backward(r.rows, r.cols, f64(r.x), f64(r.weight), statistics,
                               statistics + r.rows, f64(dy), f64(dx), dweight, dweight + r.cols);
}

}  // namespace

NormalizationPlan::NormalizationPlan(const ProcessGroup& group, NormKind kind, bool backward,
                                     NormalizationArrays arrays,
                                     const NormalizationOptions& options)
    : group_(group),
      kind_(kind),
      arrays_(std::move(arrays)),
      options_(options),
      wide_(partial_sum_dtype(checked_x(arrays_.x).dtype)),
      x_(arrays_.x, dtype(), scratch_),
      weight_(arrays_.weight, dtype(), scratch_),
      backward_(backward) {
  check_dtypes();
  check_shapes();
  check_argument(std::isfinite(options_.eps) && options_.eps > 0,
                 "eps: expected a positive number, got ", options_.eps);
  check_memory();
  if (!arrays_.weight) ones_block_ = scratch_.reserve(cols(), 1, dtype(), Scratch::Use::kOwn);
}

void NormalizationPlan::check_dtypes() const {
  const nxd_dtype_t dtype = arrays_.x.dtype;
  const auto check_same = [&](const std::optional<Array>& array, const char* name) {
    if (array) check_same_dtype(*array, name, dtype, "x");
  };
  check_same(arrays_.weight, "weight");
  check_same(arrays_.bias, "bias");
  check_same(arrays_.y, backward_ ? "grad_y" : "y");
  check_same(arrays_.grad_x, "grad_x");
  check_grad_dtype(arrays_.grad_weight, "grad_weight", dtype, "x");
  check_grad_dtype(arrays_.grad_bias, "grad_bias", dtype, "x");
  check_argument(!arrays_.statistics || arrays_.statistics->dtype == wide_, "statistics: expected ",
                 dtype_name(wide_), " for x of ", dtype_name(dtype), ", got ",
                 dtype_name(arrays_.statistics ? arrays_.statistics->dtype : wide_));
}

void NormalizationPlan::check_shapes() const {
  const Array::Shape features{cols()};
  const auto check = [](const std::optional<Array>& array, const char* name,
                        const Array::Shape& expected) {
    if (array) check_shape(*array, name, expected);
  };
  check(arrays_.weight, "weight", features);
  check(arrays_.bias, "bias", features);
  check(arrays_.y, backward_ ? "grad_y" : "y", arrays_.x.shape);
  check(arrays_.statistics, "statistics", statistics_shape());
  check(arrays_.grad_x, "grad_x", arrays_.x.shape);
  check(arrays_.grad_weight, "grad_weight", features);
  check(arrays_.grad_bias, "grad_bias", features);
}

void NormalizationPlan::check_memory() const {
  CallMemory memory;
  memory.add_input(arrays_.x, "x");
  memory.add_input(arrays_.weight, "weight");
  memory.add_input(arrays_.bias, "bias");
  if (backward_) {
    memory.add_input(arrays_.statistics, "statistics");
    memory.add_input(arrays_.y, "grad_y");
  } else {
    memory.add_output(arrays_.statistics, "statistics");
    memory.add_output(arrays_.y, "y");
  }
  memory.add_output(arrays_.grad_x, "grad_x");
  memory.add_output(arrays_.grad_weight, "grad_weight");
  memory.add_output(arrays_.grad_bias, "grad_bias");
  memory.check(options_.workspace);
}

void NormalizationPlan::propose(Proposal& proposal, const NormalizationPlan* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const NormalizationPlan&;
  same("operation (8, 9: RMS norm, forward and backward; 10, 11: layer norm)",
       [](Plan p) { return 8 + (p.has_mean() ? 2 : 0) + (p.backward_ ? 1 : 0); });
  proposal.same_dtype("dtype", plan ? plan->arrays_.x.dtype : NXD_DTYPE_F32);
  same("features", [](Plan p) { return p.cols(); });
  same("sequence_parallel", [](Plan p) { return p.options_.sequence_parallel; });
  same("rows of x (0: each rank's own)",
       [](Plan p) { return p.options_.sequence_parallel ? 0 : p.rows(); });
  same("digest of the shape of x (0: each rank's own)",
       [](Plan p) { return p.options_.sequence_parallel ? 0 : digest_of(p.arrays_.x.shape); });
  same("eps", [](Plan p) { return p.options_.eps; });
  same("weight", [](Plan p) { return p.arrays_.weight.has_value(); });
  same("bias", [](Plan p) { return p.arrays_.bias.has_value(); });
  same("accumulate_grads", [](Plan p) { return p.options_.accumulate_grads; });
  same("grad_x", [](Plan p) { return p.arrays_.grad_x.has_value(); });
  same("grad_weight", [](Plan p) { return p.arrays_.grad_weight.has_value(); });
  same("grad_bias", [](Plan p) { return p.arrays_.grad_bias.has_value(); });
  proposal.same_dtype("dtype of grad_weight",
                      plan ? grad_dtype(plan->arrays_.grad_weight) : NXD_DTYPE_F32);
  proposal.same_dtype("dtype of grad_bias",
                      plan ? grad_dtype(plan->arrays_.grad_bias) : NXD_DTYPE_F32);
}

Array::Shape NormalizationPlan::statistics_shape() const {
  Array::Shape shape(arrays_.x.shape.begin(), arrays_.x.shape.end() - 1);
  if (has_mean()) shape.insert(shape.begin(), 2);
  return shape;
}

const void* NormalizationPlan::weight() const {
  if (arrays_.weight) return weight_.read(scratch_);
  void* const ones = scratch_.at(ones_block_);
  if (dtype() == NXD_DTYPE_F64) {
    fill_ones<double>(ones, cols());
  } else if (dtype() == NXD_DTYPE_F32) {
    fill_ones<float>(ones, cols());
  } else {
    std::fill_n(static_cast<uint16_t*>(ones), cols(), f32_to_bf16(1));
  }
  return ones;
}

NormalizationForward::NormalizationForward(const ProcessGroup& group, NormKind kind,
                                           const NormalizationArrays& arrays,
                                           const NormalizationOptions& options)
    : NormalizationPlan(group, kind, false, arrays, options),
      bias_(arrays_.bias, dtype(), scratch_),
      y_(arrays_.y, dtype(), arrays_.y.shape, scratch_),
      statistics_(arrays_.statistics, wide(), statistics_shape(), scratch_) {}

void NormalizationForward::run(GroupCalls&) const {
  const Rows all{dtype(), rows(), cols(), x_.read(scratch_), weight(), has_mean()};
  const void* const bias = bias_.read(scratch_);
  void *const y = y_.data(scratch_), *const statistics = statistics_.data(scratch_);
  if (wide() == NXD_DTYPE_F64) {
    forward_rows(all, bias, options_.eps, y, static_cast<double*>(statistics));
  } else {
    forward_rows(all, bias, options_.eps, y, static_cast<float*>(statistics));
  }
  y_.finish(scratch_);
  statistics_.finish(scratch_);
}

NormalizationBackward::NormalizationBackward(const ProcessGroup& group, NormKind kind,
                                             const NormalizationArrays& arrays,
                                             const NormalizationOptions& options)
    : NormalizationPlan(group, kind, true, arrays, options),
      dy_(arrays_.y, dtype(), scratch_),
      statistics_(arrays_.statistics, wide(), scratch_),
      grad_x_(arrays_.grad_x, dtype(), arrays_.x.shape, scratch_),
      sums_block_(scratch_.reserve(cols(), 2, wide(), Scratch::Use::kExchanged)) {}

bool NormalizationBackward::sums_over_ranks() const {
  return options_.sequence_parallel && group_.size() > 1 &&
         (arrays_.grad_weight || arrays_.grad_bias);
}

Array NormalizationBackward::sums(int64_t which) const {
  const auto bytes = static_cast<size_t>(which * cols()) * dtype_size(wide());
  return Array::dense(wide(), {cols()}, scratch_.at(sums_block_) + bytes);
}

void NormalizationBackward::run(GroupCalls& calls) const {
  const Rows all{dtype(), rows(), cols(), x_.read(scratch_), weight(), has_mean()};
  const void *const dy = dy_.read(scratch_), *const statistics = statistics_.read(scratch_);
  void *const dx = grad_x_.data(scratch_), *const dweight = sums(0).data;
  if (wide() == NXD_DTYPE_F64) {
    backward_rows(all, f64(statistics), dy, dx, f64(dweight));
  } else {
    backward_rows(all, static_cast<const float*>(statistics), dy, dx, static_cast<float*>(dweight));
  }
  if (sums_over_ranks()) {
    const auto count = static_cast<size_t>(has_mean() ? 2 * cols() : cols());
    calls.run(Call::all_reduce(dweight, dweight, count, wide(), NXD_REDUCE_SUM));
  }
  grad_x_.finish(scratch_);
  const auto write = [&](const std::optional<Array>& grad, int64_t which) {
    if (!grad) return;
    kernels::move_rows(sums(which).rows(), grad->rows(), nullptr, options_.accumulate_grads);
  };
  write(arrays_.grad_weight, 0);
  write(arrays_.grad_bias, 1);
}

}  // namespace nxd
