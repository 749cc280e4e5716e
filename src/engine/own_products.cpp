#include "engine/own_products.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/environment.h"
#include "core/kernels/float_gemm.h"
#include "engine/backend_select.h"
#include "engine/mended_kernels.h"
#include "engine/operator_library.h"

// Calls go on to the kernels below unless the thread is in a scope.
namespace nxd {
namespace {

using kernels::GemmArgs;
using kernels::Trans;

// Below so many multiplications a call of a kernel takes longer than libtorch's loop, which rounds
// each partial sum of BF16.
constexpr int64_t kWorthAKernel = 1 << 10;

thread_local bool are_own = false;

// The last two dimensions of a tensor as gemm() takes them.
struct GemmOperand {
  at::Tensor values;
  Trans trans;
  int64_t row_stride;
  int64_t batch_stride;  // 0: a matrix
};

GemmOperand gemm_operand(const at::Tensor& tensor) {
  const int64_t rows = tensor.size(-2), columns = tensor.size(-1);
  const int64_t batch = tensor.dim() == 3 ? tensor.stride(0) : 0;
  const auto lies = [&](int64_t outer, int64_t inner, int64_t count, int64_t length) {
    return (tensor.stride(inner) == 1 || length == 1) &&
           (tensor.stride(outer) >= length || count == 1);
  };
  const auto stride = [&](int64_t outer, int64_t length) {
    return std::max(tensor.stride(outer), length);
  };
  if (lies(-2, -1, rows, columns)) return {tensor, Trans::kNo, stride(-2, columns), batch};
  if (lies(-1, -2, columns, rows)) return {tensor, Trans::kYes, stride(-1, rows), batch};
  const at::Tensor dense = tensor.contiguous();
  return {dense, Trans::kNo, columns, batch == 0 ? 0 : rows * columns};
}

std::optional<nxd_dtype_t> gemm_dtype(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return NXD_DTYPE_F32;
    case at::kDouble: return NXD_DTYPE_F64;
    case at::kBFloat16: return NXD_DTYPE_BF16;
    default: return std::nullopt;
  }
}

bool is_dense_on_cpu(const at::Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && x.has_storage() && x.numel() > 0;
}

// a [batch..., m, k] b [batch..., k, n].
struct MatrixProduct {
  const at::Tensor& a;
  const at::Tensor& b;

  // False also for operands that do not fit each other, which libtorch rejects.
  bool is_ours(int64_t dims) const {
    if (!are_own || a.dim() != dims || b.dim() != dims || !is_dense_on_cpu(a) ||
        !is_dense_on_cpu(b))
      return false;
    return a.scalar_type() == b.scalar_type() && gemm_dtype(a) && a.size(-1) == b.size(-2) &&
           (dims == 2 || a.size(0) == b.size(0)) &&
           (a.scalar_type() == at::kBFloat16 || a.numel() * b.size(-1) >= kWorthAKernel);
  }
  std::vector<int64_t> result_shape() const {
    std::vector<int64_t> shape = a.sizes().vec();
    shape.back() = b.size(-1);
    return shape;
  }
  at::Tensor empty_result() const {
    return at::empty(result_shape(), a.options().requires_grad(false));
  }
  void run(const at::Tensor& out, bool accumulate = false, const void* bias = nullptr) const {
    const GemmOperand left = gemm_operand(a), right = gemm_operand(b);
    GemmArgs args;
    args.trans_a = left.trans;
    args.trans_b = right.trans;
    args.m = a.size(-2);
    args.n = b.size(-1);
    args.k = a.size(-1);
    args.a = left.values.data_ptr();
    args.lda = left.row_stride;
    args.b = right.values.data_ptr();
    args.ldb = right.row_stride;
    args.c = out.data_ptr();
    args.ldc = args.n;
    args.in_dtype = *gemm_dtype(a);
    args.out_dtype = *gemm_dtype(out);
    args.accumulate = accumulate;
    args.bias = bias;
    if (a.dim() == 3) {
      kernels::float_gemm_batched(args, a.size(0), left.batch_stride, right.batch_stride,
                                  args.m * args.n);
    } else {
      kernels::float_gemm(args);
    }
  }
};

// The products that are ours; nothing where libtorch's kernel is to run.
using Product = std::optional<at::Tensor>;

Product own_product(const at::Tensor& a, const at::Tensor& b, int64_t dims) {
  const MatrixProduct product{a, b};
  if (!product.is_ours(dims)) return std::nullopt;
  at::Tensor out = product.empty_result();
  product.run(out);
  return out;
}

// beta self + alpha a b in bf16, rounded once. libtorch rounds each partial sum of some layouts.
struct RoundedSum {
  const MatrixProduct& product;
  const at::Tensor& self;
  const at::Scalar& beta;
  const at::Scalar& alpha;

  bool is_ours(int64_t dims) const {
    const auto is_real = [](const at::Scalar& x) {
      return x.isFloatingPoint() || x.isIntegral(false);
    };
    return product.is_ours(dims) && product.a.scalar_type() == at::kBFloat16 && is_real(beta) &&
           is_real(alpha) && self.scalar_type() == at::kBFloat16 && is_dense_on_cpu(self) &&
           at::is_expandable_to(self.sizes(), product.result_shape());
  }
  at::Tensor result() const {
    at::Tensor sum = at::empty(product.result_shape(), at::kFloat);
    product.run(sum);
    if (!alpha.equal(1)) sum.mul_(alpha);
    // With a beta of 0 self is ignored, even where it is NaN.
    if (!beta.equal(0)) sum.add_(self.to(at::kFloat), beta);
    return sum.to(at::kBFloat16);
  }
};

// self + a b, where self is a row of bias or has the result's shape.
Product own_addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                  const at::Scalar& beta, const at::Scalar& alpha) {
  const MatrixProduct product{a, b};
  const bool is_row = self.dim() == 1;
  const auto fits = [&] {
    if (!product.is_ours(2) || !beta.equal(1) || !alpha.equal(1)) return false;
    if (!is_dense_on_cpu(self) || self.scalar_type() != a.scalar_type()) return false;
    if (is_row) return self.size(0) == b.size(1);
    return a.scalar_type() != at::kBFloat16 && self.sizes() == product.result_shape();
  };
  if (fits()) {
    at::Tensor out = product.empty_result();
    if (is_row) {
      const at::Tensor bias = self.contiguous();
      product.run(out, false, bias.data_ptr());
    } else {
      out.copy_(self);
      product.run(out, true);
    }
    return out;
  }
  const RoundedSum sum{product, self, beta, alpha};
  if (!sum.is_ours(2)) return std::nullopt;
  return sum.result();
}

// self + a b of batches, where self has the result's shape or one that grows to it.
Product own_baddbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                    const at::Scalar& beta, const at::Scalar& alpha) {
  const MatrixProduct product{a, b};
  const bool ours = product.is_ours(3) && beta.equal(1) && alpha.equal(1) &&
                    is_dense_on_cpu(self) && self.scalar_type() == a.scalar_type() &&
                    a.scalar_type() != at::kBFloat16 &&
                    at::is_expandable_to(self.sizes(), product.result_shape());
  if (!ours) {
    const RoundedSum sum{product, self, beta, alpha};
    if (!sum.is_ours(3)) return std::nullopt;
    return sum.result();
  }
  at::Tensor out = product.empty_result();
  out.copy_(self.expand(out.sizes()));
  product.run(out, true);
  return out;
}

// A result of ours can be copied to the tensor as it is.
bool takes_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  return out.is_cpu() && out.scalar_type() == a.scalar_type() && a.dim() == b.dim() &&
         a.dim() >= 2 && out.sizes() == at::IntArrayRef(MatrixProduct{a, b}.result_shape());
}

at::Tensor mm(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
  if (Product product = own_product(a, b, 2)) return *product;
  return at::_ops::mm::redispatch(keys_below_select(keys), a, b);
}

at::Tensor& mm_out(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                   at::Tensor& out) {
  if (takes_product(out, a, b)) {
    if (const Product product = own_product(a, b, 2)) return out.copy_(*product);
  }
  return at::_ops::mm_out::redispatch(keys_below_select(keys), a, b, out);
}

at::Tensor bmm(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
  if (Product product = own_product(a, b, 3)) return *product;
  return at::_ops::bmm::redispatch(keys_below_select(keys), a, b);
}

at::Tensor& bmm_out(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                    at::Tensor& out) {
  if (takes_product(out, a, b)) {
    if (const Product product = own_product(a, b, 3)) return out.copy_(*product);
  }
  return at::_ops::bmm_out::redispatch(keys_below_select(keys), a, b, out);
}

at::Tensor addmm(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a,
                 const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  if (Product product = own_addmm(self, a, b, beta, alpha)) return *product;
  return at::_ops::addmm::redispatch(keys_below_select(keys), self, a, b, beta, alpha);
}

at::Tensor& addmm_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& a,
                           const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  if (takes_product(self, a, b)) {
    if (const Product sum = own_addmm(self, a, b, beta, alpha)) return self.copy_(*sum);
  }
  return at::_ops::addmm_::redispatch(keys_below_select(keys), self, a, b, beta, alpha);
}

at::Tensor& addmm_out(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a,
                      const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha,
                      at::Tensor& out) {
  if (takes_product(out, a, b)) {
    if (const Product sum = own_addmm(self, a, b, beta, alpha)) return out.copy_(*sum);
  }
  return at::_ops::addmm_out::redispatch(keys_below_select(keys), self, a, b, beta, alpha, out);
}

at::Tensor baddbmm(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a,
                   const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  if (Product sum = own_baddbmm(self, a, b, beta, alpha)) return *sum;
  return mended_baddbmm(keys, self, a, b, beta, alpha);
}

at::Tensor& baddbmm_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& a,
                             const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  if (takes_product(self, a, b)) {
    if (const Product sum = own_baddbmm(self, a, b, beta, alpha)) return self.copy_(*sum);
  }
  return mended_baddbmm_in_place(keys, self, a, b, beta, alpha);
}

at::Tensor& baddbmm_out(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a,
                        const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha,
                        at::Tensor& out) {
  if (takes_product(out, a, b)) {
    if (const Product sum = own_baddbmm(self, a, b, beta, alpha)) return out.copy_(*sum);
  }
  return mended_baddbmm_out(keys, self, a, b, beta, alpha, out);
}

// On the first scope of a process.
void register_products() {
  static OperatorLibrary products;
  static std::once_flag once;
  std::call_once(once, [] {
    torch::Library& library = products.open(kSelectKey);
    if (at::hasMKL() || env::plain_kernels()) {
      library.impl("baddbmm", TORCH_FN(mended_baddbmm));
      library.impl("baddbmm_", TORCH_FN(mended_baddbmm_in_place));
      library.impl("baddbmm.out", TORCH_FN(mended_baddbmm_out));
      return;
    }
    library.impl("mm", TORCH_FN(mm));
    library.impl("mm.out", TORCH_FN(mm_out));
    library.impl("bmm", TORCH_FN(bmm));
    library.impl("bmm.out", TORCH_FN(bmm_out));
    library.impl("addmm", TORCH_FN(addmm));
    library.impl("addmm_", TORCH_FN(addmm_in_place));
    library.impl("addmm.out", TORCH_FN(addmm_out));
    library.impl("baddbmm", TORCH_FN(baddbmm));
    library.impl("baddbmm_", TORCH_FN(baddbmm_in_place));
    library.impl("baddbmm.out", TORCH_FN(baddbmm_out));
  });
}

}  // namespace

// All that runs operators of libtorch stands in a scope.
OwnProducts::OwnProducts(bool on) : before_(std::exchange(are_own, on)) {
  mend_kernels();
  register_products();
}

OwnProducts::~OwnProducts() { are_own = before_; }

bool OwnProducts::are_on() { return are_own; }

}  // namespace nxd
