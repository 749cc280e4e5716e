#include "engine/ops/compute.h"

#include <ATen/ATen.h>

#include "core/kernels/elementwise.h"
#include "core/kernels/gemm.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

// A matrix that a GEMM can read in place: rows or columns contiguous. Gives whether it must be read
// transposed, and the distance between its rows.
struct Operand {
  at::Tensor storage;
  bool transposed;
  int64_t leading;
};

Operand operand(const at::Tensor& x, bool transpose) {
  const int64_t rows = x.size(0), cols = x.size(1);
  if (x.stride(1) == 1 && x.stride(0) >= std::max<int64_t>(cols, 1)) {
    return {x, transpose, x.stride(0)};
  }
  if (x.stride(0) == 1 && x.stride(1) >= std::max<int64_t>(rows, 1)) {
    return {x, !transpose, x.stride(1)};
  }
  const at::Tensor dense = x.contiguous();
  return {dense, transpose, std::max<int64_t>(cols, 1)};
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
  const Operand left = operand(a, transpose_a), right = operand(b, transpose_b);
  kernels::GemmArgs args;
  args.m = out.size(0);
  args.n = out.size(1);
  args.k = a.size(transpose_a ? 0 : 1);
  args.trans_a = left.transposed ? kernels::Trans::kYes : kernels::Trans::kNo;
  args.trans_b = right.transposed ? kernels::Trans::kYes : kernels::Trans::kNo;
  args.a = left.storage.data_ptr();
  args.lda = left.leading;
  args.b = right.storage.data_ptr();
  args.ldb = right.leading;
  args.c = out.data_ptr();
  args.ldc = std::max<int64_t>(args.n, 1);
  args.in_dtype = to_nxd_dtype(a.scalar_type());
  args.out_dtype = to_nxd_dtype(out.scalar_type());
  args.accumulate = accumulate;
  if (bias.defined()) args.bias = bias.data_ptr();
  kernels::gemm(args);
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
