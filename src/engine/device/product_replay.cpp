#include "engine/device/product_replay.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/kernels/gemm.h"

namespace nxd {
namespace {

using kernels::GemmArgs;
using kernels::Trans;

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

std::optional<nxd_dtype_t> gemm_dtype(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) return std::nullopt;
  if (a.scalar_type() == at::kFloat) return NXD_DTYPE_F32;
  if (a.scalar_type() == at::kBFloat16) return NXD_DTYPE_BF16;
  return std::nullopt;
}

// a [batch..., m, k] b [batch..., k, n]; added to out where that is asked for.
struct MatrixProduct {
  const at::Tensor& a;
  const at::Tensor& b;

  std::optional<nxd_dtype_t> dtype() const {
    return a.numel() == 0 || b.numel() == 0 ? std::nullopt : gemm_dtype(a, b);
  }
  at::Tensor empty_result() const {
    std::vector<int64_t> shape = a.sizes().vec();
    shape.back() = b.size(-1);
    return at::empty(shape, a.options());
  }
  void run(const at::Tensor& out, bool accumulate, const void* bias) const {
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
    args.in_dtype = args.out_dtype = *dtype();
    args.accumulate = accumulate;
    args.bias = bias;
    if (a.dim() == 3) {
      kernels::gemm_batched(args, a.size(0), left.batch_stride, right.batch_stride,
                            args.m * args.n);
    } else {
      kernels::gemm(args);
    }
  }
};

bool is_scalar_one(const c10::IValue& factor) {
  return factor.isScalar() && factor.toScalar().equal(1);
}

// self + a b, where self is a row of bias or, in f32, of the result's shape.
std::optional<at::Tensor> replay_sum_with_product(const RecordedNode& node, const at::Tensor& self,
                                                  const MatrixProduct& product) {
  constexpr size_t kBeta = 3, kAlpha = 4;
  if (!is_scalar_one(node.call->arguments[kBeta]) || !is_scalar_one(node.call->arguments[kAlpha]))
    return std::nullopt;
  if (!product.dtype() || self.scalar_type() != product.a.scalar_type()) return std::nullopt;
  at::Tensor out = product.empty_result();
  if (self.dim() == 1 && self.size(0) == out.size(1)) {
    const at::Tensor bias = self.contiguous();
    product.run(out, false, bias.data_ptr());
    return out;
  }
  if (self.scalar_type() != at::kFloat) return std::nullopt;
  out.copy_(self.expand(out.sizes()));
  product.run(out, true, nullptr);
  return out;
}

}  // namespace

std::optional<at::Tensor> replay_product(const RecordedNode& node,
                                         const std::vector<at::Tensor>& inputs) {
  const std::string& name = node.call->op->name;
  if (name == "aten::addmm" && inputs.size() == 3) {
    return replay_sum_with_product(node, inputs[0], {inputs[1], inputs[2]});
  }
  if ((name != "aten::mm" && name != "aten::bmm") || inputs.size() != 2) return std::nullopt;
  const MatrixProduct product{inputs[0], inputs[1]};
  if (!product.dtype()) return std::nullopt;
  at::Tensor out = product.empty_result();
  product.run(out, false, nullptr);
  return out;
}

}  // namespace nxd
