// NaN and infinities in the kernels: where ATen's operators of the same dtype give NaN, +infinity,
// -infinity or a number, so do the kernels.
#include "core/kernels/attention.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gemm.h"
#include "core/kernels/norms.h"
#include "core/kernels/optimizer_kernels.h"
#include "support/kernel_compare.h"

using namespace nxd_test;
using namespace nxd::kernels;

namespace {

constexpr nxd_dtype_t kDtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};
constexpr double kEps = 1e-5;
constexpr double kInf = INFINITY;

// 'n', '+', '-' for NaN and the infinities, '.' for a number.
char kind_of(double x) {
  if (std::isnan(x)) return 'n';
  if (std::isinf(x)) return x > 0 ? '+' : '-';
  return '.';
}

// x: what an activation was given, which is the identity where x is large; the vector code of some
// releases of ATen overflows there.
void same_kinds(const char* what, nxd_dtype_t dtype, const Buffer& got, const Tensor& aten,
                const Buffer* x = nullptr) {
  const std::vector<double> want = values(aten);
  if (!NXD_TEST_CHECK(static_cast<int64_t>(want.size()) == got.size())) return;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double other = want[static_cast<size_t>(i)];
    if (kind_of(got[i]) == kind_of(other)) continue;
    if (x && (*x)[i] > 1e30 && got[i] == (*x)[i]) continue;
    nxd_test_fail(__FILE__, __LINE__, "%s, dtype %d, element %lld: %g where ATen gives %g", what,
                  dtype, static_cast<long long>(i), got[i], other);
    return;
  }
}

// Random numbers with each special value once in the vectors' body and once in the rest.
Buffer with_specials(nxd_dtype_t dtype, int64_t n, uint64_t seed) {
  Buffer x(dtype, n, seed, 3);
  const double specials[] = {NAN, kInf, -kInf, 0, -0.0, 87, -87, 200, -200, 3e38, -3e38, 1e-40};
  int64_t at = static_cast<int64_t>(seed);
  for (const double value : specials) {
    x.set(at % n, value);
    x.set(n - 1 - at % n, value);
    at += 3;
  }
  return x;
}

constexpr int64_t kCount = 83;

Tensor vector_of(const Buffer& x, bool requires_grad = false) {
  return tensor_of(x, {x.size()}, x.dtype(), requires_grad);
}

void check_activation(const char* what, Activation activation,
                      const std::function<Tensor(const Tensor&)>& aten) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Buffer x = with_specials(dtype, kCount, 1), dy = with_specials(dtype, kCount, 2);
    Buffer y(dtype, kCount), dx(dtype, kCount);
    activation_forward(activation, dtype, kCount, x.data(), y.data());
    activation_backward(activation, dtype, kCount, x.data(), dy.data(), dx.data());
    const Tensor in = vector_of(x, true);
    const Tensor out = aten(in);
    same_kinds(what, dtype, y, out, &x);
    same_kinds(what, dtype, dx, gradients({out}, {vector_of(dy)}, {in})[0]);
  }
}

void activations(void**) {
  const auto gelu = [](const char* approximate) {
    return [approximate](const Tensor& x) {
      return op("gelu", {{"self", x}, {"approximate", approximate}});
    };
  };
  check_activation("gelu (erf)", Activation::kGeluErf, gelu("none"));
  check_activation("gelu (tanh)", Activation::kGeluTanh, gelu("tanh"));
  check_activation("silu", Activation::kSilu, [](const Tensor& x) {
    return op("silu", {{"self", x}});
  });
  check_activation("relu", Activation::kRelu, [](const Tensor& x) {
    return op("relu", {{"self", x}});
  });
}

void swiglu(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Buffer gate = with_specials(dtype, kCount, 1), up = with_specials(dtype, kCount, 5);
    Buffer dy(dtype, kCount, 3), y(dtype, kCount), dgate(dtype, kCount), dup(dtype, kCount);
    swiglu_forward(dtype, kCount, gate.data(), up.data(), y.data());
    swiglu_backward(dtype, kCount, gate.data(), up.data(), dy.data(), dgate.data(), dup.data());
    const Tensor g = vector_of(gate, true), u = vector_of(up, true);
    const Tensor out = mul(op("silu", {{"self", g}}), u);
    const std::vector<Tensor> grads = gradients({out}, {vector_of(dy)}, {g, u});
    same_kinds("swiglu", dtype, y, out);
    same_kinds("swiglu dgate", dtype, dgate, grads[0]);
    same_kinds("swiglu dup", dtype, dup, grads[1]);
  }
}

// Rows with one special value each, and one without.
Buffer special_rows(nxd_dtype_t dtype, int64_t cols, uint64_t seed) {
  Buffer x(dtype, 4 * cols, seed, 3);
  x.set(cols / 2, NAN);
  x.set(cols + cols - 1, kInf);
  x.set(2 * cols, -kInf);
  return x;
}

void norms(void**) {
  constexpr int64_t kCols = 37;
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const bool centered : {false, true}) {
      Buffer x = special_rows(dtype, kCols, 1), w(dtype, kCols, 2), b(dtype, kCols, 3);
      Buffer dy(dtype, 4 * kCols, 4), y(dtype, 4 * kCols), dx(dtype, 4 * kCols);
      Buffer mean(NXD_DTYPE_F32, 4), inv(NXD_DTYPE_F32, 4);
      Buffer dw(NXD_DTYPE_F32, kCols), db(NXD_DTYPE_F32, kCols);
      const Tensor in = tensor_of(x, {4, kCols}, dtype, true), tw = vector_of(w, true);
      Tensor out;
      if (centered) {
        layer_norm_forward(dtype, 4, kCols, x.data(), w.data(), b.data(), kEps, y.data(),
                           mean.f32(), inv.f32());
        layer_norm_backward(dtype, 4, kCols, x.data(), w.data(), mean.f32(), inv.f32(), dy.data(),
                            dx.data(), dw.f32(), db.f32());
        out = aten_layer_norm(in, tw, vector_of(b), kEps);
      } else {
        rms_norm_forward(dtype, 4, kCols, x.data(), w.data(), kEps, y.data(), inv.f32());
        rms_norm_backward(dtype, 4, kCols, x.data(), w.data(), inv.f32(), dy.data(), dx.data(),
                          dw.f32());
        out = aten_rms_norm(in, tw, kEps);
      }
      const char* what = centered ? "layer norm" : "rms norm";
      const std::vector<Tensor> grads =
          gradients({out}, {tensor_of(dy, {4, kCols}, dtype)}, {in, tw});
      same_kinds(what, dtype, y, out);
      same_kinds(what, dtype, dx, grads[0]);
      same_kinds(what, dtype, dw, grads[1]);
    }
  }
}

void cross_entropy(void**) {
  constexpr int64_t kCols = 37, kRows = 6;
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const double smoothing : {0.0, 0.1}) {
      Buffer x(dtype, kRows * kCols, 1, 3), dx(dtype, kRows * kCols), dy(NXD_DTYPE_F32, kRows, 2);
      const std::vector<int64_t> labels{0, 1, 2, 3, 4, 5};
      x.set(20, NAN);
      x.set(kCols + 30, kInf);
      x.set(2 * kCols + 8, -kInf);
      x.set(3 * kCols + 3, -kInf);  // the target's
      for (int64_t i = 0; i < kCols; ++i) x.set(4 * kCols + i, -kInf);
      const LogitShard shard{dtype, kRows, kCols, kCols, x.data(), labels.data(), 0};
      Buffer statistics(NXD_DTYPE_F32, kRowStatistics * kRows), max(NXD_DTYPE_F32, kRows);
      Buffer log_sum(NXD_DTYPE_F32, kRows), loss(NXD_DTYPE_F32, kRows);
      cross_entropy_statistics(shard, statistics.f32());
      cross_entropy_merge(1, kRows, statistics.f32(), kRowStatistics * kRows, kCols, smoothing,
                          kCols, max.f32(), log_sum.f32(), loss.f32());
      cross_entropy_backward(shard, max.f32(), log_sum.f32(), dy.f32(), smoothing, kCols, dtype,
                             dx.data(), kCols);
      const Tensor in = tensor_of(x, {kRows, kCols}, dtype, true);
      const Tensor out = op("cross_entropy_loss", {{"self", to(in, NXD_DTYPE_F32)},
                                                   {"target", from_ints(labels, {kRows})},
                                                   {"reduction", 0},
                                                   {"label_smoothing", smoothing}});
      same_kinds("cross entropy", dtype, loss, out);
      same_kinds("cross entropy backward", dtype, dx, gradients({out}, {vector_of(dy)}, {in})[0]);
    }
  }
}

void attention(void**) {
  constexpr int64_t kLength = 70, kDim = 24, kSize = kLength * kDim;
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const int place : {0, 1, 2}) {
      Buffer q(dtype, kSize, 1), k(dtype, kSize, 2), v(dtype, kSize, 3), out(dtype, kSize);
      Buffer statistics(NXD_DTYPE_F32, kAttentionStatistics * kLength);
      if (place == 0) q.set(3 * kDim + 5, NAN);
      if (place == 1) k.set(67 * kDim + 1, NAN);
      if (place == 2) v.set(66 * kDim + 7, NAN);
      if (place == 2) v.set(2 * kDim + 9, kInf);
      const auto view = [](Buffer& x) { return HeadView{x.data(), kSize, kDim, kDim}; };
      const AttentionShape shape{1, kLength, kLength, 1, 1, kDim, 1 / std::sqrt(24.0)};
      attention_forward(dtype, shape, view(q), view(k), view(v), view(out), statistics.f32());
      const auto load = [&](const Buffer& x) { return tensor_of(x, {1, 1, kLength, kDim}, dtype); };
      same_kinds("attention", dtype, out, aten_attention(load(q), load(k), load(v), {}));
    }
  }
}

void gemm(void**) {
  constexpr int64_t kEdge = 33;
  for (const nxd_dtype_t dtype : kDtypes) {
    Buffer a(dtype, kEdge * kEdge, 1), b(dtype, kEdge * kEdge, 2), c(dtype, kEdge * kEdge);
    a.set(5 * kEdge + 3, NAN);
    a.set(9 * kEdge + 32, kInf);
    b.set(7, -kInf);
    GemmArgs args;
    args.m = args.n = args.k = args.lda = args.ldb = args.ldc = kEdge;
    args.a = a.data(), args.b = b.data(), args.c = c.data();
    args.in_dtype = args.out_dtype = dtype;
    nxd::kernels::gemm(args);
    const auto load = [&](const Buffer& x) { return tensor_of(x, {kEdge, kEdge}, dtype); };
    same_kinds("gemm", dtype, c, matmul(load(a), load(b)));
  }
}

void rotary(void**) {
  constexpr int64_t kHalf = 19;
  for (const nxd_dtype_t dtype : kDtypes) {
    Buffer x = with_specials(dtype, 2 * kHalf, 1), y(dtype, 2 * kHalf);
    Buffer c(NXD_DTYPE_F32, kHalf, 2), s(NXD_DTYPE_F32, kHalf, 3);
    RopeArgs args{dtype, 1, 1, 1, 2 * kHalf, 2 * kHalf};
    args.in = x.data(), args.out = y.data(), args.cos = c.f32(), args.sin = s.f32();
    rope(args);
    const Tensor in = to(vector_of(x), NXD_DTYPE_F32);
    const Tensor low = narrow(in, 0, 0, kHalf), high = narrow(in, 0, kHalf, kHalf);
    const Tensor first = add(mul(low, vector_of(c)), mul(high, vector_of(s)), -1);
    const Tensor second = add(mul(high, vector_of(c)), mul(low, vector_of(s)));
    Buffer head(dtype, kHalf), tail(dtype, kHalf);
    for (int64_t i = 0; i < kHalf; ++i) {
      head.set(i, y[i]);
      tail.set(i, y[kHalf + i]);
    }
    same_kinds("rope", dtype, head, to(first, dtype));
    same_kinds("rope", dtype, tail, to(second, dtype));
  }
}

void updates(void**) {
  Buffer p(NXD_DTYPE_F32, kCount, 1), g = with_specials(NXD_DTYPE_F32, kCount, 2);
  Buffer m(NXD_DTYPE_F32, kCount, 3), v(NXD_DTYPE_F32, kCount);
  const Tensor p0 = vector_of(p), m0 = vector_of(m), v0 = vector_of(v), grad = vector_of(g);
  AdamwArgs args{.n = kCount};
  args.param = p.data(), args.grad = g.data(), args.exp_avg = m.data(), args.exp_avg_sq = v.data();
  adamw(args);
  const Tensor avg = add(scaled(m0, 0.9), grad, 0.1);
  const Tensor sq =
      op("addcmul",
         {{"self", scaled(v0, 0.999)}, {"tensor1", grad}, {"tensor2", grad}, {"value", 1 - 0.999}});
  const Tensor param = op("addcdiv", {{"self", scaled(p0, 1 - 1e-5)},
                                      {"tensor1", avg},
                                      {"tensor2", plus(op("sqrt", {{"self", sq}}), 1e-8)},
                                      {"value", -1e-2}});
  same_kinds("adamw parameter", NXD_DTYPE_F32, p, param);
  same_kinds("adamw first moment", NXD_DTYPE_F32, m, avg);
  same_kinds("adamw second moment", NXD_DTYPE_F32, v, sq);
}

void simple(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Buffer a = with_specials(dtype, kCount, 1), b = with_specials(dtype, kCount, 4);
    Buffer out(dtype, kCount);
    add(dtype, kCount, a.data(), b.data(), out.data());
    same_kinds("add", dtype, out, add(vector_of(a), vector_of(b)));
    scale(dtype, kCount, a.data(), -2, out.data());
    same_kinds("scale", dtype, out, scaled(vector_of(a), -2));
    scale_add(dtype, dtype, kCount, a.data(), 2, b.data());
    same_kinds("scale_add", dtype, b,
               add(vector_of(with_specials(dtype, kCount, 4)), vector_of(a), 2));
    assert_true(std::isnan(max_abs(dtype, kCount, a.data())));
    assert_true(std::isnan(sum_of_squares(dtype, kCount, a.data())));
    Buffer inf(dtype, kCount, 1);
    inf.set(kCount - 2, -kInf);
    assert_true(max_abs(dtype, kCount, inf.data()) == kInf);
    assert_true(sum_of_squares(dtype, kCount, inf.data()) == kInf);
  }
  Buffer in = with_specials(NXD_DTYPE_F32, kCount, 1), out(NXD_DTYPE_BF16, kCount);
  in.set(40, 3.4e38);  // infinity, to nearest
  cast(NXD_DTYPE_F32, in.data(), NXD_DTYPE_BF16, out.data(), kCount);
  same_kinds("cast", NXD_DTYPE_BF16, out, to(vector_of(in), NXD_DTYPE_BF16));
}

}  // namespace

// ATen is to compare with: its own products, not those of the library in their place.
int main() {
  setenv("NXD_PLAIN_KERNELS", "1", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(activations),   cmocka_unit_test(swiglu),    cmocka_unit_test(norms),
      cmocka_unit_test(cross_entropy), cmocka_unit_test(attention), cmocka_unit_test(gemm),
      cmocka_unit_test(rotary),        cmocka_unit_test(updates),   cmocka_unit_test(simple),
  };
  return cmocka_run_group_tests_name("kernel_specials", tests, nullptr, nullptr);
}
