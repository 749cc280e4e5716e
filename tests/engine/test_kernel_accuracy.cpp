// Errors of the kernels against f64, beside the errors of ATen's operators of the same dtype on the
// same inputs: over ragged sizes, at addresses off every alignment. Prints a table.
#include "core/kernels/attention.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/gemm.h"
#include "core/kernels/norms.h"
#include "core/kernels/optimizer_kernels.h"
#include "core/kernels/reduce.h"
#include "support/kernel_compare.h"

using namespace nxd_test;
using namespace nxd::kernels;

namespace {

constexpr double kEps = 1e-5;
constexpr nxd_dtype_t kDtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};

// Errors as parts of the largest value of an array, over all arrays of a row of the table.
struct Errors {
  double squares = 0, largest = 0;
  void add(double error) {
    squares += error * error;
    largest = std::fmax(largest, std::isnan(error) ? INFINITY : error);
  }
};

// How much worse than ATen a kernel may be. Two ways of summing or of rounding the same expression
// differ by luck on finite samples: the root-mean-square error by some hundredths, the largest
// error, of one element, by more.
struct Allowed {
  double rms = 1.1, largest = 1.25;
};

class Row {
 public:
  Row(const char* name, nxd_dtype_t dtype, Allowed allowed = {})
      : name_(name), dtype_(dtype), allowed_(allowed) {}

  // aten: the results in a dtype, from inputs of that dtype.
  void compare(const std::vector<const Buffer*>& got,
               const std::function<std::vector<Tensor>(nxd_dtype_t)>& aten) {
    const std::vector<Tensor> exact = aten(NXD_DTYPE_F64), unsharded = aten(dtype_);
    for (size_t k = 0; k < got.size(); ++k) {
      NXD_TEST_CHECK(got[k]->canaries_live());
      const std::vector<double> want = values(exact[k]), other = values(unsharded[k]);
      if (!NXD_TEST_CHECK(static_cast<int64_t>(want.size()) == got[k]->size())) return;
      const double scale = max_abs(want);
      if (scale == 0) continue;
      for (size_t i = 0; i < want.size(); ++i) {
        ours_.add(std::fabs((*got[k])[static_cast<int64_t>(i)] - want[i]) / scale);
        atens_.add(std::fabs(other[i] - want[i]) / scale);
        ++count_;
      }
    }
  }

  ~Row() {
    const double n = static_cast<double>(std::max<int64_t>(count_, 1));
    const double ours = std::sqrt(ours_.squares / n), atens = std::sqrt(atens_.squares / n);
    std::printf("%-28s %-5s %9.2e %9.2e %6.2f   %9.2e %9.2e %6.2f\n", name_,
                dtype_ == NXD_DTYPE_F32 ? "f32" : "bf16", ours, atens, ratio(ours, atens),
                ours_.largest, atens_.largest, ratio(ours_.largest, atens_.largest));
    if (count_ > 0 && ours <= allowed_.rms * atens &&
        ours_.largest <= allowed_.largest * atens_.largest) {
      return;
    }
    nxd_test_fail(__FILE__, __LINE__, "%s: worse than ATen, or nothing compared", name_);
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

 private:
  static double ratio(double a, double b) { return a == 0 && b == 0 ? 1 : a / b; }

  const char* name_;
  nxd_dtype_t dtype_;
  Allowed allowed_;
  Errors ours_, atens_;
  int64_t count_ = 0;
};

struct Sizes {
  int64_t rows, cols;
};
constexpr Sizes kSizes[] = {{3, 7}, {5, 17}, {2, 129}, {300, 65}, {7, 512}, {33, 1000}};

Tensor gelu(const Tensor& x, const char* approximate) {
  return op("gelu", {{"self", x}, {"approximate", approximate}});
}

Tensor aten_activation(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::kGeluErf: return gelu(x, "none");
    case Activation::kGeluTanh: return gelu(x, "tanh");
    case Activation::kSilu: return op("silu", {{"self", x}});
    default: return op("relu", {{"self", x}});
  }
}

void activation(Activation kind, const char* forward, const char* backward) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Row y_row(forward, dtype), dx_row(backward, dtype);
    for (const int64_t n : {1, 7, 17, 129, 5000}) {
      for (const double scale : {1.0, 6.0, 20.0}) {
        Buffer x(dtype, n, 1, scale), dy(dtype, n, 2), y(dtype, n), dx(dtype, n);
        activation_forward(kind, dtype, n, x.data(), y.data());
        activation_backward(kind, dtype, n, x.data(), dy.data(), dx.data());
        y_row.compare({&y}, [&](nxd_dtype_t t) {
          return std::vector{aten_activation(kind, tensor_of(x, {n}, t))};
        });
        dx_row.compare({&dx}, [&](nxd_dtype_t t) {
          const Tensor in = tensor_of(x, {n}, t, true);
          return gradients({aten_activation(kind, in)}, {tensor_of(dy, {n}, t)}, {in});
        });
      }
    }
  }
}

void activations(void**) {
  activation(Activation::kGeluErf, "gelu (erf)", "gelu (erf) backward");
  activation(Activation::kGeluTanh, "gelu (tanh)", "gelu (tanh) backward");
  activation(Activation::kSilu, "silu", "silu backward");
  activation(Activation::kRelu, "relu", "relu backward");
}

void swiglu(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Row forward("swiglu", dtype), backward("swiglu backward", dtype);
    for (const int64_t n : {1, 7, 17, 129, 5000}) {
      Buffer gate(dtype, n, 1, 6), up(dtype, n, 2), dy(dtype, n, 3);
      Buffer y(dtype, n), dgate(dtype, n), dup(dtype, n);
      swiglu_forward(dtype, n, gate.data(), up.data(), y.data());
      swiglu_backward(dtype, n, gate.data(), up.data(), dy.data(), dgate.data(), dup.data());
      const auto aten = [&](const Tensor& g, const Tensor& u) {
        return mul(op("silu", {{"self", g}}), u);
      };
      forward.compare({&y}, [&](nxd_dtype_t t) {
        return std::vector{aten(tensor_of(gate, {n}, t), tensor_of(up, {n}, t))};
      });
      backward.compare({&dgate, &dup}, [&](nxd_dtype_t t) {
        const Tensor g = tensor_of(gate, {n}, t, true), u = tensor_of(up, {n}, t, true);
        return gradients({aten(g, u)}, {tensor_of(dy, {n}, t)}, {g, u});
      });
    }
  }
}

// dweight and dbias come as f32 and are rounded by the layer: so are they here.
Buffer rounded(const Buffer& from, nxd_dtype_t dtype) {
  Buffer out(dtype, from.size());
  for (int64_t i = 0; i < from.size(); ++i) out.set(i, from[i]);
  return out;
}

void norm(bool centered, bool residual, const char* forward, const char* backward) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Row y_row(forward, dtype), grad_row(backward, dtype);
    for (const auto& [rows, cols] : kSizes) {
      const int64_t n = rows * cols;
      Buffer x(dtype, n, 1, 3), past(dtype, n, 4), w(dtype, cols, 2), b(dtype, cols, 3);
      Buffer dy(dtype, n, 5), dsum(dtype, n, 6), sum(dtype, n), y(dtype, n), dx(dtype, n);
      Buffer mean(NXD_DTYPE_F32, rows), inv(NXD_DTYPE_F32, rows);
      Buffer dw(NXD_DTYPE_F32, cols), db(NXD_DTYPE_F32, cols);
      if (centered && residual) {
        add_layer_norm_forward(dtype, rows, cols, x.data(), past.data(), w.data(), b.data(), kEps,
                               sum.data(), y.data(), mean.f32(), inv.f32());
      } else if (centered) {
        layer_norm_forward(dtype, rows, cols, x.data(), w.data(), b.data(), kEps, y.data(),
                           mean.f32(), inv.f32());
      } else if (residual) {
        add_rms_norm_forward(dtype, rows, cols, x.data(), past.data(), w.data(), kEps, sum.data(),
                             y.data(), inv.f32());
      } else {
        rms_norm_forward(dtype, rows, cols, x.data(), w.data(), kEps, y.data(), inv.f32());
      }
      const void* in = residual ? sum.data() : x.data();
      const void* extra = residual ? dsum.data() : nullptr;
      if (centered) {
        layer_norm_backward(dtype, rows, cols, in, w.data(), mean.f32(), inv.f32(), dy.data(),
                            dx.data(), dw.f32(), db.f32(), extra);
      } else {
        rms_norm_backward(dtype, rows, cols, in, w.data(), inv.f32(), dy.data(), dx.data(),
                          dw.f32(), extra);
      }
      const auto aten = [&](nxd_dtype_t t, bool grad) {
        struct {
          Tensor x, w, b, sum, y;
        } r{tensor_of(x, {rows, cols}, t, grad),
            tensor_of(w, {cols}, t, grad),
            tensor_of(b, {cols}, t, grad),
            {},
            {}};
        r.sum = residual ? add(r.x, tensor_of(past, {rows, cols}, t)) : r.x;
        r.y = centered ? aten_layer_norm(r.sum, r.w, r.b, kEps) : aten_rms_norm(r.sum, r.w, kEps);
        return r;
      };
      y_row.compare({&y}, [&](nxd_dtype_t t) { return std::vector{aten(t, false).y}; });
      const Buffer dweight = rounded(dw, dtype), dbias = rounded(db, dtype);
      std::vector<const Buffer*> got{&dx, &dweight};
      if (centered) got.push_back(&dbias);
      grad_row.compare(got, [&](nxd_dtype_t t) {
        const auto r = aten(t, true);
        std::vector<Tensor> outputs{r.y}, grads{tensor_of(dy, {rows, cols}, t)};
        std::vector<Tensor> inputs{r.x, r.w};
        if (residual) outputs.push_back(r.sum);
        if (residual) grads.push_back(tensor_of(dsum, {rows, cols}, t));
        if (centered) inputs.push_back(r.b);
        return gradients(outputs, grads, inputs);
      });
    }
  }
}

void norms(void**) {
  norm(false, false, "rms norm", "rms norm backward");
  norm(false, true, "add, rms norm", "add, rms norm backward");
  norm(true, false, "layer norm", "layer norm backward");
  norm(true, true, "add, layer norm", "add, layer norm backward");
}

void rope(void**) {
  constexpr int64_t kSeq = 9, kHeads = 3;
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const bool inverse : {false, true}) {
      Row row(inverse ? "rope backward" : "rope", dtype);
      for (const int64_t half : {1, 5, 16, 33}) {
        const int64_t n = kSeq * kHeads * 2 * half;
        Buffer x(dtype, n, 1), y(dtype, n);
        Buffer c(NXD_DTYPE_F32, kSeq * half), s(NXD_DTYPE_F32, kSeq * half);
        for (int64_t i = 0; i < c.size(); ++i) {
          c.set(i, std::cos(0.37 * static_cast<double>(i)));
          s.set(i, std::sin(0.37 * static_cast<double>(i)));
        }
        RopeArgs args{dtype, 1, kSeq, kHeads, 2 * half, 2 * half};
        args.in = x.data(), args.out = y.data(), args.cos = c.f32(), args.sin = s.f32();
        args.in_seq_stride = args.out_seq_stride = kHeads * 2 * half;
        args.in_head_stride = args.out_head_stride = 2 * half;
        args.inverse = inverse;
        nxd::kernels::rope(args);
        row.compare({&y}, [&](nxd_dtype_t t) {
          // As models spell it: x cos + rotate_half(x) sin, with the sines in the dtype of x.
          const Tensor in = tensor_of(x, {kSeq, kHeads, 2 * half}, t);
          const nxd_dtype_t table = t == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : dtype;
          const Tensor low = narrow(in, 2, 0, half), high = narrow(in, 2, half, half);
          const Tensor cos = tensor_of(c, {kSeq, 1, half}, table);
          const Tensor sin = scaled(tensor_of(s, {kSeq, 1, half}, table), inverse ? -1 : 1);
          const Tensor out = op("empty_like", {{"self", in}});
          const auto put = [&](int64_t start, const Tensor& part) {
            op("copy_", {{"self", narrow(out, 2, start, half)}, {"src", part}});
          };
          put(0, add(mul(low, cos), mul(high, sin), -1));
          put(half, add(mul(high, cos), mul(low, sin)));
          return std::vector{out};
        });
      }
    }
  }
}

struct AttentionCase {
  int64_t batch, queries, keys, heads, kv_heads, dim;
  bool causal;
};

// Additive bias of what is not visible, in every dtype -1e30 or what that rounds to.
Tensor causal_bias(const AttentionCase& c, nxd_dtype_t dtype) {
  std::vector<double> bias;
  for (int64_t i = 0; i < c.queries; ++i) {
    for (int64_t j = 0; j < c.keys; ++j) {
      bias.push_back(c.causal && j > i + c.keys - c.queries ? -1e30 : 0);
    }
  }
  return from_doubles(bias, {c.queries, c.keys}, dtype);
}

void attention_case(const AttentionCase& c, nxd_dtype_t dtype, Row& forward, Row& backward) {
  const int64_t nq = c.batch * c.queries * c.heads * c.dim,
                nk = c.batch * c.keys * c.kv_heads * c.dim;
  Buffer q(dtype, nq, 1, 3), k(dtype, nk, 2, 3), v(dtype, nk, 3), out(dtype, nq),
      dout(dtype, nq, 4);
  Buffer dq(dtype, nq), dk(dtype, nk), dv(dtype, nk);
  Buffer statistics(NXD_DTYPE_F32, kAttentionStatistics * c.batch * c.heads * c.queries);
  const auto view = [&](Buffer& x, int64_t length, int64_t heads) {
    return HeadView{x.data(), length * heads * c.dim, heads * c.dim, c.dim};
  };
  const auto q_view = [&](Buffer& x) { return view(x, c.queries, c.heads); };
  const auto k_view = [&](Buffer& x) { return view(x, c.keys, c.kv_heads); };
  const AttentionShape shape{c.batch,
                             c.queries,
                             c.keys,
                             c.heads,
                             c.kv_heads,
                             c.dim,
                             1 / std::sqrt(static_cast<double>(c.dim)),
                             c.causal};
  attention_forward(dtype, shape, q_view(q), k_view(k), k_view(v), q_view(out), statistics.f32());
  attention_backward(dtype, shape, q_view(q), k_view(k), k_view(v), q_view(out), statistics.f32(),
                     q_view(dout), q_view(dq), k_view(dk), k_view(dv));
  const auto run = [&](const Tensor& tq, const Tensor& tk, const Tensor& tv, nxd_dtype_t t) {
    const auto heads_first = [&](const Tensor& x, bool is_key) {
      const Tensor first = transposed(x, 1, 2);
      if (!is_key || c.heads == c.kv_heads) return first;
      return op("repeat_interleave", "self_int",
                {{"self", first}, {"repeats", c.heads / c.kv_heads}, {"dim", 1}});
    };
    const Tensor y = aten_attention(heads_first(tq, false), heads_first(tk, true),
                                    heads_first(tv, true), causal_bias(c, t));
    return transposed(y, 1, 2);
  };
  const auto load = [&](const Buffer& x, bool is_key, nxd_dtype_t t, bool grad) {
    return is_key ? tensor_of(x, {c.batch, c.keys, c.kv_heads, c.dim}, t, grad)
                  : tensor_of(x, {c.batch, c.queries, c.heads, c.dim}, t, grad);
  };
  forward.compare({&out}, [&](nxd_dtype_t t) {
    return std::vector{
        run(load(q, false, t, false), load(k, true, t, false), load(v, true, t, false), t)};
  });
  backward.compare({&dq, &dk, &dv}, [&](nxd_dtype_t t) {
    const Tensor tq = load(q, false, t, true), tk = load(k, true, t, true),
                 tv = load(v, true, t, true);
    return gradients({run(tq, tk, tv, t)}, {load(dout, false, t, false)}, {tq, tk, tv});
  });
}

void attention(void**) {
  // The largest error is that of one element of 300 rows, whichever way it falls.
  constexpr Allowed kBackward{1.05, 1.5};
  for (const nxd_dtype_t dtype : kDtypes) {
    Row forward("attention", dtype), backward("attention backward", dtype, kBackward);
    Row causal("causal attention", dtype),
        causal_backward("causal attention backward", dtype, kBackward);
    for (const AttentionCase& c : {AttentionCase{1, 7, 9, 1, 1, 5, false},
                                   {2, 130, 65, 4, 2, 32, false},
                                   {1, 300, 300, 2, 2, 64, false}}) {
      attention_case(c, dtype, forward, backward);
    }
    for (const AttentionCase& c : {AttentionCase{1, 7, 9, 1, 1, 5, true},
                                   {2, 65, 130, 4, 2, 32, true},
                                   {1, 300, 300, 2, 2, 64, true}}) {
      attention_case(c, dtype, causal, causal_backward);
    }
  }
}

void cross_entropy(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const double smoothing : {0.0, 0.1}) {
      Row forward(smoothing == 0 ? "cross entropy" : "cross entropy, smoothed", dtype);
      Row backward(smoothing == 0 ? "cross entropy backward" : "cross entropy, sm. backward",
                   dtype);
      // Many rows: the largest error is that of a row whose target has nearly all probability.
      for (const auto& [rows, cols] : {Sizes{901, 7}, {301, 129}, {4001, 65}, {33, 1000}}) {
        Buffer x(dtype, rows * cols, 1, 12), dx(dtype, rows * cols), dy(NXD_DTYPE_F32, rows, 2);
        std::vector<int64_t> labels;
        for (int64_t r = 0; r < rows; ++r) labels.push_back(r * 7 % cols);
        const LogitShard shard{dtype, rows, cols, cols, x.data(), labels.data(), 0};
        Buffer statistics(NXD_DTYPE_F32, kRowStatistics * rows), max(NXD_DTYPE_F32, rows);
        Buffer log_sum(NXD_DTYPE_F32, rows), loss(NXD_DTYPE_F32, rows);
        cross_entropy_statistics(shard, statistics.f32());
        cross_entropy_merge(1, rows, statistics.f32(), kRowStatistics * rows, cols, smoothing, cols,
                            max.f32(), log_sum.f32(), loss.f32());
        cross_entropy_backward(shard, max.f32(), log_sum.f32(), dy.f32(), smoothing, cols, dtype,
                               dx.data(), cols);
        const auto aten = [&](const Tensor& in) {
          // Models take the loss of bf16 logits in f32, as the kernel does.
          const Tensor wide = to(in, in.dtype() == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32);
          return op("cross_entropy_loss", {{"self", wide},
                                           {"target", from_ints(labels, {rows})},
                                           {"reduction", 0},
                                           {"label_smoothing", smoothing}});
        };
        forward.compare({&loss}, [&](nxd_dtype_t t) {
          return std::vector{aten(tensor_of(x, {rows, cols}, t))};
        });
        backward.compare({&dx}, [&](nxd_dtype_t t) {
          const Tensor in = tensor_of(x, {rows, cols}, t, true);
          const Tensor y = aten(in);
          return gradients({y}, {tensor_of(dy, {rows}, y.dtype())}, {in});
        });
      }
    }
  }
}

void embedding(void**) {
  constexpr int64_t kTable = 11, kCount = 100;
  for (const nxd_dtype_t dtype : kDtypes) {
    Row row("embedding backward", dtype);
    for (const int64_t cols : {1, 7, 33, 256}) {
      Buffer dy(dtype, kCount * cols, 1), sums(NXD_DTYPE_F32, kTable * cols);
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < kCount; ++i) ids.push_back(i * i % kTable);
      embedding_backward(dtype, kCount, cols, ids.data(), 0, kTable, dy.data(), sums.data());
      const Buffer dtable = rounded(sums, dtype);
      row.compare({&dtable}, [&](nxd_dtype_t t) {
        const Tensor table = tensor_of(Buffer(dtype, kTable * cols), {kTable, cols}, t, true);
        const Tensor y =
            op("embedding", {{"weight", table}, {"indices", from_ints(ids, {kCount})}});
        return gradients({y}, {tensor_of(dy, {kCount, cols}, t)}, {table});
      });
    }
  }
}

void gemm(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        Row row(trans_a ? (trans_b ? "gemm TT" : "gemm TN") : (trans_b ? "gemm NT" : "gemm NN"),
                dtype);
        for (const auto& [m, n, k] :
             {std::array<int64_t, 3>{1, 5, 3}, {17, 33, 65}, {65, 130, 257}}) {
          Buffer a(dtype, m * k, 1), b(dtype, k * n, 2), c(dtype, m * n);
          GemmArgs args;
          args.trans_a = trans_a ? Trans::kYes : Trans::kNo;
          args.trans_b = trans_b ? Trans::kYes : Trans::kNo;
          args.m = m, args.n = n, args.k = k;
          args.a = a.data(), args.b = b.data(), args.c = c.data();
          args.lda = trans_a ? m : k, args.ldb = trans_b ? k : n, args.ldc = n;
          args.in_dtype = args.out_dtype = dtype;
          nxd::kernels::gemm(args);
          row.compare({&c}, [&](nxd_dtype_t t) {
            const auto side = [&](const Buffer& x, int64_t rows, int64_t cols, bool trans) {
              if (!trans) return tensor_of(x, {rows, cols}, t);
              return transposed(tensor_of(x, {cols, rows}, t), 0, 1);
            };
            return std::vector{matmul(side(a, m, k, trans_a), side(b, k, n, trans_b))};
          });
        }
      }
    }
  }
}

// torch.optim's updates spelt out in ATen's operators.
void adamw_row(nxd_dtype_t grad_dtype) {
  Row row("adamw", NXD_DTYPE_F32);
  for (const int64_t n : {1, 7, 129, 5000}) {
    Buffer p(NXD_DTYPE_F32, n, 1), g(grad_dtype, n, 2), m(NXD_DTYPE_F32, n, 3),
        v(NXD_DTYPE_F32, n, 4);
    for (int64_t i = 0; i < n; ++i) v.set(i, v[i] * v[i]);
    const Buffer p0 = p, m0 = m, v0 = v;
    AdamwArgs args{.n = n, .dtype = NXD_DTYPE_F32, .grad_dtype = grad_dtype};
    args.param = p.data(), args.grad = g.data(), args.exp_avg = m.data();
    args.exp_avg_sq = v.data();
    args.lr = 0.01, args.step = 5;
    adamw(args);
    row.compare({&p, &m, &v}, [&](nxd_dtype_t t) {
      const Tensor grad = tensor_of(g, {n}, t);
      const Tensor avg = add(scaled(tensor_of(m0, {n}, t), 0.9), grad, 0.1);
      const Tensor sq = op("addcmul", {{"self", scaled(tensor_of(v0, {n}, t), 0.999)},
                                       {"tensor1", grad},
                                       {"tensor2", grad},
                                       {"value", 1 - 0.999}});
      const double root = std::sqrt(1 - std::pow(0.999, 5)), rate = 0.01 / (1 - std::pow(0.9, 5));
      const Tensor denominator =
          plus(op("div", "Scalar", {{"self", op("sqrt", {{"self", sq}})}, {"other", root}}), 1e-8);
      const Tensor param = op("addcdiv", {{"self", scaled(tensor_of(p0, {n}, t), 1 - 0.01 * 0.01)},
                                          {"tensor1", avg},
                                          {"tensor2", denominator},
                                          {"value", -rate}});
      return std::vector{param, avg, sq};
    });
  }
}

void sgd_row(nxd_dtype_t grad_dtype) {
  Row row("sgd", NXD_DTYPE_F32);
  for (const int64_t n : {1, 7, 129, 5000}) {
    Buffer p(NXD_DTYPE_F32, n, 1), g(grad_dtype, n, 2), b(NXD_DTYPE_F32, n, 3);
    const Buffer p0 = p, b0 = b;
    SgdArgs args{.n = n, .dtype = NXD_DTYPE_F32, .grad_dtype = grad_dtype};
    args.param = p.data(), args.grad = g.data(), args.momentum_buffer = b.data();
    args.lr = 0.1, args.momentum = 0.9, args.weight_decay = 0.01;
    sgd(args);
    row.compare({&p, &b}, [&](nxd_dtype_t t) {
      const Tensor param = tensor_of(p0, {n}, t);
      const Tensor d = add(tensor_of(g, {n}, t), param, 0.01);
      const Tensor buffer = add(scaled(tensor_of(b0, {n}, t), 0.9), d);
      return std::vector{add(param, buffer, -0.1), buffer};
    });
  }
}

void optimizers(void**) {
  for (const nxd_dtype_t grad_dtype : kDtypes) {
    adamw_row(grad_dtype);
    sgd_row(grad_dtype);
  }
}

void norms_of_gradients(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    Row row("norm", dtype);
    for (const int64_t n : {1, 7, 129, 100000}) {
      Buffer x(dtype, n, 1), out(NXD_DTYPE_F64, 1);
      out.set(0, std::sqrt(sum_of_squares(dtype, n, x.data())));
      row.compare({&out}, [&](nxd_dtype_t t) {
        return std::vector{op("linalg_vector_norm", {{"self", tensor_of(x, {n}, t)}})};
      });
    }
  }
}

void simple(void**) {
  constexpr int64_t kCount = 5003;
  for (const nxd_dtype_t dtype : kDtypes) {
    Row sum("add", dtype), product("scale", dtype), both("scale_add", dtype),
        all("sum of 4", dtype);
    Buffer a(dtype, kCount, 1), b(dtype, kCount, 2), c(dtype, kCount, 3), d(dtype, kCount, 4);
    Buffer out(dtype, kCount);
    const auto load = [&](const Buffer& x, nxd_dtype_t t) { return tensor_of(x, {kCount}, t); };
    add(dtype, kCount, a.data(), b.data(), out.data());
    sum.compare({&out}, [&](nxd_dtype_t t) { return std::vector{add(load(a, t), load(b, t))}; });
    scale(dtype, kCount, a.data(), 0.3, out.data());
    product.compare({&out}, [&](nxd_dtype_t t) { return std::vector{scaled(load(a, t), 0.3)}; });
    out = b;
    scale_add(dtype, dtype, kCount, a.data(), 0.3, out.data());
    both.compare({&out},
                 [&](nxd_dtype_t t) { return std::vector{add(load(b, t), load(a, t), 0.3)}; });
    const void* inputs[] = {a.data(), b.data(), c.data(), d.data()};
    void* outputs[] = {out.data()};
    reduce_to_all(inputs, 4, outputs, 1, kCount, dtype, NXD_REDUCE_SUM);
    all.compare({&out}, [&](nxd_dtype_t t) {
      return std::vector{add(add(add(load(a, t), load(b, t)), load(c, t)), load(d, t))};
    });
  }
  Row narrow("cast", NXD_DTYPE_BF16);
  Buffer in(NXD_DTYPE_F32, kCount, 1), out(NXD_DTYPE_BF16, kCount);
  cast(NXD_DTYPE_F32, in.data(), NXD_DTYPE_BF16, out.data(), kCount);
  narrow.compare({&out}, [&](nxd_dtype_t t) {
    return std::vector{to(tensor_of(in, {kCount}, NXD_DTYPE_F32), t)};
  });
}

int header(void**) {
  std::printf("%-28s %-5s %9s %9s %6s   %9s %9s %6s\n", "errors / largest value", "", "rms",
              "ATen's", "ratio", "largest", "ATen's", "ratio");
  return 0;
}

}  // namespace

// ATen is to compare with: its own products, not those of the library in their place.
int main() {
  setenv("NXD_PLAIN_KERNELS", "1", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(activations), cmocka_unit_test(swiglu),
      cmocka_unit_test(norms),       cmocka_unit_test(rope),
      cmocka_unit_test(attention),   cmocka_unit_test(cross_entropy),
      cmocka_unit_test(embedding),   cmocka_unit_test(gemm),
      cmocka_unit_test(optimizers),  cmocka_unit_test(norms_of_gradients),
      cmocka_unit_test(simple),
  };
  return cmocka_run_group_tests_name("kernel_accuracy", tests, header, nullptr);
}
