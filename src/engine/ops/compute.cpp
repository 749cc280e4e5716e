#include "engine/ops/compute.h"

#include <ATen/ATen.h>

#include <vector>

#include "core/kernels/elementwise.h"
#include "core/tensor_parallel/matrix_product.h"
#include "engine/device/kernel_call.h"
#include "engine/own_products.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)}); }

// As many rows as a has, in its dimensions, unless these are summed over.
std::vector<int64_t> product_sizes(const at::Tensor& a, bool transpose_a, const at::Tensor& b,
                                   bool transpose_b) {
  const int64_t columns = b.size(transpose_b ? 0 : -1);
  if (transpose_a) return {a.size(-1), columns};
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.back() = columns;
  return sizes;
}

// Without AVX-512 libtorch sums products of BF16 in BF16.
at::Tensor reference_product(const at::Tensor& a, bool transpose_a, const at::Tensor& b,
                             bool transpose_b, at::ScalarType out, const at::Tensor& bias) {
  const bool sums_wide = out == at::kBFloat16 && a.is_cpu() && !is_tracing();
  const at::ScalarType type = sums_wide ? at::kFloat : out;
  const auto side = [&](const at::Tensor& x, bool transpose) {
    const at::Tensor rows = rows_of(x), wide = x.scalar_type() == type ? rows : rows.to(type);
    return transpose ? wide.t() : wide;
  };
  // A backward pass has a scope of its own, whatever the context asks for.
  const OwnProducts own_products(false);
  at::Tensor y = at::matmul(side(a, transpose_a), side(b, transpose_b));
  if (sums_wide) y = y.to(out);
  if (bias.defined()) y = y.add(bias.to(out));
  if (a.dim() == 2 || transpose_a) return y;
  // No view: libtorch lets none that a custom function gives be written to.
  return at::_unsafe_view(y, product_sizes(a, transpose_a, b, transpose_b));
}

void fused_product(const at::Tensor& left_operand, bool transpose_a,
                   const at::Tensor& right_operand, bool transpose_b, at::Tensor& out,
                   bool accumulate, const at::Tensor& bias) {
  const at::Tensor a = rows_of(left_operand), b = rows_of(right_operand);
  Scratch scratch;
  const MatrixInput left(array_of(a), scratch), right(array_of(b), scratch);
  scratch.allocate();
  const Operand rows = left.read(scratch), cols = right.read(scratch);
  write_product({to_nxd_dtype(a.scalar_type()), transpose_a ? rows.t() : rows,
                 transpose_b ? cols.t() : cols, a.size(transpose_a ? 0 : 1)},
                array_of(out), bias.defined() ? bias.data_ptr() : nullptr, accumulate);
}

// op(a) op(b) + bias as a call of its own.
struct OperandProduct {
  static constexpr const char* kName = "nxd::matrix_product";
  bool transpose_a, transpose_b;
  at::ScalarType out;

  KernelParameters parameters() const {
    return {{"transpose a", transpose_a}, {"transpose b", transpose_b}, {"dtype", out}};
  }
  std::vector<at::Tensor> results(const std::vector<at::Tensor>& in) const {
    return {kernel_result(product_sizes(in[0], transpose_a, in[1], transpose_b), out)};
  }
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& in) const {
    const at::Tensor y = pooled_empty(product_sizes(in[0], transpose_a, in[1], transpose_b), out);
    const at::Tensor bias = in[2].defined() ? in[2].to(out).contiguous() : in[2];
    at::Tensor rows = rows_of(y);
    fused_product(in[0], transpose_a, in[1], transpose_b, rows, false, bias);
    return {y};
  }
};

// Takes a, b, and further pairs of them; gives the sum of a op(b).
struct SumOfProducts {
  static constexpr const char* kName = "nxd::sum_of_products";
  bool transpose_b;
  at::ScalarType out;

  KernelParameters parameters() const { return {{"transpose b", transpose_b}, {"dtype", out}}; }
  std::vector<at::Tensor> results(const std::vector<at::Tensor>& in) const {
    return {kernel_result(product_sizes(in[0], false, in[1], transpose_b), out)};
  }
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& in) const {
    const at::Tensor y = pooled_empty(product_sizes(in[0], false, in[1], transpose_b), out);
    at::Tensor rows = rows_of(y);
    for (size_t i = 0; i < in.size(); i += 2) {
      fused_product(in[i], false, in[i + 1], transpose_b, rows, i > 0, {});
    }
    return {y};
  }
};

// True where kernels of our own may work on x.
bool kernels_run(const Context& context, const at::Tensor& x) {
  return !context.plain_kernels() && !is_tracing() &&
         (x.is_cpu() || (is_recorded(x) && records_kernels()));
}

// Products have a kernel in F64, too, which other operations do not.
bool use_own_product(const Context& context, const at::Tensor& a, const at::Tensor& b,
                     at::ScalarType out) {
  const bool f64 = a.scalar_type() == at::kDouble && b.scalar_type() == at::kDouble;
  return use_fused(context, a) || (f64 && out == at::kDouble && kernels_run(context, a));
}

}  // namespace

bool on_same_device(const at::Tensor& a, const at::Tensor& b) {
  return is_tracing() || a.device() == b.device();
}

Array array_of(const at::Tensor& x) {
  check_argument(x.is_cpu(), "expected a tensor in the host's memory, got one of shape ", x.sizes(),
                 " on device ", x.device());
  return {to_nxd_dtype(x.scalar_type()), x.sizes().vec(), x.strides().vec(),
          static_cast<char*>(x.data_ptr())};
}

bool use_fused(const Context& context, const at::Tensor& x) {
  return kernels_run(context, x) &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

at::Tensor matrix_product(const Context& context, const at::Tensor& a, bool transpose_a,
                          const at::Tensor& b, bool transpose_b, at::ScalarType out,
                          const at::Tensor& bias) {
  if (!use_own_product(context, a, b, out))
    return reference_product(a, transpose_a, b, transpose_b, out, bias);
  return call_kernel(OperandProduct{transpose_a, transpose_b, out}, {a, b, bias})[0];
}

at::Tensor sum_of_products(const Context& context, const std::vector<at::Tensor>& a,
                           at::ArrayRef<at::Tensor> b, bool transpose_b, at::ScalarType out) {
  at::Tensor sum;
  if (a.size() > 1 && use_own_product(context, a[0], b[0], out)) {
    std::vector<at::Tensor> pairs;
    for (size_t i = 0; i < a.size(); ++i) pairs.insert(pairs.end(), {a[i], b[i]});
    return call_kernel(SumOfProducts{transpose_b, out}, pairs)[0];
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor product = matrix_product(context, a[i], false, b[i], transpose_b, out);
    sum = sum.defined() ? sum.add(product) : product;
  }
  return sum;
}

void matrix_product_into(const Context& context, const at::Tensor& a, bool transpose_a,
                         const at::Tensor& b, bool transpose_b, at::Tensor& out) {
  if (a.is_cpu() && use_own_product(context, a, b, out.scalar_type())) {
    fused_product(a, transpose_a, b, transpose_b, out, false, {});
  } else {
    out.copy_(matrix_product(context, a, transpose_a, b, transpose_b, out.scalar_type()));
  }
}

void add_matrix_product(const Context& context, const at::Tensor& a, bool transpose_a,
                        const at::Tensor& b, bool transpose_b, at::Tensor& out) {
  if (a.is_cpu() && use_own_product(context, a, b, out.scalar_type())) {
    fused_product(a, transpose_a, b, transpose_b, out, true, {});
  } else {
    out.add_(matrix_product(context, a, transpose_a, b, transpose_b, out.scalar_type()));
  }
}

at::Tensor cast(const Context& context, const at::Tensor& x, at::ScalarType dtype) {
  if (x.scalar_type() == dtype) return x;
  const bool known = dtype == at::kFloat || dtype == at::kBFloat16;
  if (!known || !x.is_cpu() || !use_fused(context, x) || !x.is_contiguous()) return x.to(dtype);
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
