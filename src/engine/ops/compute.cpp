#include "engine/ops/compute.h"

#include <ATen/ATen.h>

#include "core/kernels/elementwise.h"
#include "core/tensor_parallel/matrix_product.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

Array matrix_of(const at::Tensor& x) {
  return {to_nxd_dtype(x.scalar_type()), x.sizes().vec(), x.strides().vec(),
          static_cast<char*>(x.data_ptr())};
}

at::Tensor reference_product(const at::Tensor& a, bool transpose_a, const at::Tensor& b,
                             bool transpose_b, at::ScalarType out, const at::Tensor& bias) {
  const auto side = [&](const at::Tensor& x, bool transpose) {
    const at::Tensor wide = x.scalar_type() == out ? x : x.to(out);
    return transpose ? wide.t() : wide;
  };
  at::Tensor y = at::matmul(side(a, transpose_a), side(b, transpose_b));
  return bias.defined() ? y.add(bias.to(out)) : y;
}

void fused_product(const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b,
                   at::Tensor& out, bool accumulate, const at::Tensor& bias) {
  Scratch scratch;
  const MatrixInput left(matrix_of(a), scratch), right(matrix_of(b), scratch);
  scratch.allocate();
  const Operand rows = left.read(scratch), cols = right.read(scratch);
  write_product({to_nxd_dtype(a.scalar_type()), transpose_a ? rows.t() : rows,
                 transpose_b ? cols.t() : cols, a.size(transpose_a ? 0 : 1)},
                matrix_of(out), bias.defined() ? bias.data_ptr() : nullptr, accumulate);
}

}  // namespace

bool use_fused(const Context& context, const at::Tensor& x) {
  return !context.plain_kernels() && !is_tracing() && x.is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

at::Tensor matrix_product(const Context& context, const at::Tensor& a, bool transpose_a,
                          const at::Tensor& b, bool transpose_b, at::ScalarType out,
                          const at::Tensor& bias, const ProcessGroup* exchange) {
  if (!use_fused(context, a)) return reference_product(a, transpose_a, b, transpose_b, out, bias);
  const int64_t sizes[] = {a.size(transpose_a ? 1 : 0), b.size(transpose_b ? 0 : 1)};
  at::Tensor y = exchange ? exchanged_empty(*exchange, sizes, out) : pooled_empty(sizes, out);
  const at::Tensor wide_bias = bias.defined() ? bias.to(out).contiguous() : bias;
  fused_product(a, transpose_a, b, transpose_b, y, false, wide_bias);
  return y;
}

void matrix_product_into(const Context& context, const at::Tensor& a, bool transpose_a,
                         const at::Tensor& b, bool transpose_b, at::Tensor& out) {
  if (use_fused(context, a)) {
    fused_product(a, transpose_a, b, transpose_b, out, false, {});
  } else {
    out.copy_(reference_product(a, transpose_a, b, transpose_b, out.scalar_type(), {}));
  }
}

void add_matrix_product(const Context& context, const at::Tensor& a, bool transpose_a,
                        const at::Tensor& b, bool transpose_b, at::Tensor& out) {
  if (use_fused(context, a)) {
    fused_product(a, transpose_a, b, transpose_b, out, true, {});
  } else {
    out.add_(reference_product(a, transpose_a, b, transpose_b, out.scalar_type(), {}));
  }
}

at::Tensor cast(const Context& context, const at::Tensor& x, at::ScalarType dtype) {
  if (x.scalar_type() == dtype) return x;
  const bool known = dtype == at::kFloat || dtype == at::kBFloat16;
  if (!known || !use_fused(context, x) || !x.is_contiguous()) return x.to(dtype);
  at::Tensor y = pooled_empty(x.sizes(), dtype);
  kernels::cast(to_nxd_dtype(x.scalar_type()), x.data_ptr(), to_nxd_dtype(dtype), y.data_ptr(),
                x.numel());
  return y;
}

at::Tensor sum_rows(const at::Tensor& x) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::ScalarType dtype = x.scalar_type();
  return at::sum(rows, at::IntArrayRef{0}, false, partial_sum_dtype(dtype)).to(dtype);
}

at::ScalarType partial_sum_dtype(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
}

}  // namespace nxd
