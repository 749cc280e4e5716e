#include "core/kernel_support.h"
#include "core/kernels/elementwise.h"
#include "support/rejection.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

constexpr nxd_dtype_t kDtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_BF16};
constexpr int64_t kLengths[] = {0, 1, 7, 16, 17, 129, 1000};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activation(Activation kind, double x) {
  switch (kind) {
    case Activation::kGeluErf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu: return x * sigmoid(x);
    default: return x > 0 ? x : 0;
  }
}

// Slope by central differences of the reference.
double slope(Activation kind, double x) {
  const double h = 1e-5;
  return (activation(kind, x + h) - activation(kind, x - h)) / (2 * h);
}

void activations(void**) {
  for (const auto kind :
       {Activation::kGeluErf, Activation::kGeluTanh, Activation::kSilu, Activation::kRelu}) {
    for (const nxd_dtype_t dtype : kDtypes) {
      for (const int64_t n : kLengths) {
        Buffer x(dtype, n, 1, 6);
        Buffer dy(dtype, n, 2);
        Buffer y(dtype, n);
        Buffer dx(dtype, n);
        std::vector<double> want;
        std::vector<double> want_dx;
        for (int64_t i = 0; i < n; ++i) {
          want.push_back(activation(kind, x[i]));
          want_dx.push_back(dy[i] * slope(kind, x[i]));
        }
        activation_forward(kind, dtype, n, x.data(), y.data());
        check_close("y", y, want, test::tolerance(dtype, 1e-6));
        activation_backward(kind, dtype, n, x.data(), dy.data(), dx.data());
        check_close("dx", dx, want_dx, test::tolerance(dtype, 2e-6));
        activation_backward(kind, dtype, n, x.data(), dy.data(), dy.data());
        assert_true(dy == dx);
      }
    }
  }
}

// Silu shows the exponential: relative accuracy over its whole range.
void exponential_is_accurate(void**) {
  const int64_t n = 20001;
  Buffer x(NXD_DTYPE_F32, n);
  for (int64_t i = 0; i < n; ++i) x.set(i, -86.0 + 172.0 * static_cast<double>(i) / (n - 1));
  Buffer y(NXD_DTYPE_F32, n);
  activation_forward(Activation::kSilu, NXD_DTYPE_F32, n, x.data(), y.data());
  for (int64_t i = 0; i < n; ++i) {
    const double want = x[i] * sigmoid(x[i]);
    if (!(std::fabs(y[i] - want) <= 4e-7 * std::fabs(want))) {
      fail_msg("silu(%.9g): expected %.9g, got %.9g", x[i], want, y[i]);
    }
  }
}

// Results in bf16 are all but the nearest numbers, over the whole range; every NaN is the same.
void bf16_results_are_nearest(void**) {
  std::vector<Bf16> x, y(65536), dx(65536);
  for (uint32_t i = 0; i < 65536; ++i) x.push_back({static_cast<uint16_t>(i)});
  const std::vector<Bf16> ones(65536, to_bf16(1));
  activation_forward(Activation::kSilu, NXD_DTYPE_BF16, 65536, x.data(), y.data());
  activation_backward(Activation::kSilu, NXD_DTYPE_BF16, 65536, x.data(), ones.data(), dx.data());
  for (size_t i = 0; i < 65536; ++i) {
    const double value = to_float(x[i]);
    if (std::isnan(value) || value == -INFINITY) {
      assert_true(y[i].bits == 0x7FC0 && dx[i].bits == 0x7FC0);
    } else if (std::fabs(value) < 86 && std::fabs(value) > 1e-30) {
      const double want = value * sigmoid(value), got = to_float(y[i]);
      assert_true(std::fabs(got - want) <= (0x1p-8 + 1e-4) * std::fabs(want));
    }
  }
}

// Elements are equal wherever they lie in an array: among two vectors, in one, or in the rest.
void places_change_no_bit(void**) {
  constexpr int64_t kSize = 1000;
  for (const nxd_dtype_t dtype : kDtypes) {
    const Buffer x(dtype, kSize, 1, 6), grad(dtype, kSize, 2);
    const auto from = [](const Buffer& b, int64_t i) {
      return static_cast<const char*>(const_cast<Buffer&>(b).data()) +
             static_cast<size_t>(i) * dtype_size(b.dtype());
    };
    for (const auto kind : {Activation::kGeluErf, Activation::kGeluTanh, Activation::kSilu}) {
      Buffer y(dtype, kSize), dx(dtype, kSize);
      activation_forward(kind, dtype, kSize, from(x, 0), y.data());
      activation_backward(kind, dtype, kSize, from(x, 0), from(grad, 0), dx.data());
      for (int64_t i = 0; i < kSize; i += 37) {
        Buffer one(dtype, 1), slope(dtype, 1);
        activation_forward(kind, dtype, 1, from(x, i), one.data());
        activation_backward(kind, dtype, 1, from(x, i), from(grad, i), slope.data());
        assert_true(one[0] == y[i] && slope[0] == dx[i]);
      }
    }
    Buffer y(dtype, kSize), dgate(dtype, kSize), dup(dtype, kSize);
    swiglu_forward(dtype, kSize, from(x, 0), from(grad, 0), y.data());
    swiglu_backward(dtype, kSize, from(x, 0), from(grad, 0), from(x, 0), dgate.data(), dup.data());
    for (int64_t i = 0; i < kSize; i += 37) {
      Buffer one(dtype, 1), dg(dtype, 1), du(dtype, 1);
      swiglu_forward(dtype, 1, from(x, i), from(grad, i), one.data());
      swiglu_backward(dtype, 1, from(x, i), from(grad, i), from(x, i), dg.data(), du.data());
      assert_true(one[0] == y[i] && dg[0] == dgate[i] && du[0] == dup[i]);
    }
  }
}

void special_values(void**) {
  Buffer x(NXD_DTYPE_F32, 6);
  Buffer y(NXD_DTYPE_F32, 6);
  const double values[] = {NAN, INFINITY, -INFINITY, 0, 1e30, -1e30};
  for (int64_t i = 0; i < 6; ++i) x.set(i, values[i]);
  for (const auto kind : {Activation::kGeluErf, Activation::kGeluTanh, Activation::kSilu}) {
    activation_forward(kind, NXD_DTYPE_F32, 6, x.data(), y.data());
    assert_true(std::isnan(y[0]) && std::isinf(y[1]) && y[1] > 0 && std::isnan(y[2]));
    assert_true(y[3] == 0 && y[4] == static_cast<double>(1e30F) && y[5] == 0);
  }
  activation_forward(Activation::kRelu, NXD_DTYPE_F32, 6, x.data(), y.data());
  assert_true(std::isnan(y[0]) && std::isinf(y[1]) && y[2] == 0);
}

void swiglu(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const int64_t cols : {1, 7, 17, 129}) {
      const int64_t rows = 5;
      // gate and up are the halves of one tensor, their gradients those of another.
      Buffer both(dtype, rows * 2 * cols, 1, 4);
      Buffer dout(dtype, rows * cols, 2);
      Buffer out(dtype, rows * cols);
      Buffer grads(dtype, rows * 2 * cols);
      std::vector<double> want;
      std::vector<double> want_grads;
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<double> dup;
        for (int64_t i = 0; i < cols; ++i) {
          const double g = both[r * 2 * cols + i];
          const double u = both[r * 2 * cols + cols + i];
          const double s = sigmoid(g);
          want.push_back(g * s * u);
          want_grads.push_back(dout[r * cols + i] * u * s * (1 + g * (1 - s)));
          dup.push_back(dout[r * cols + i] * g * s);
        }
        want_grads.insert(want_grads.end(), dup.begin(), dup.end());
      }
      const auto half = [&](Buffer& b, int64_t which) -> MutableRows {
        return {
            static_cast<char*>(b.data()) + static_cast<size_t>(which * cols) * dtype_size(dtype),
            2 * cols};
      };
      const auto in = [](MutableRows rows_of) -> Rows { return {rows_of.data, rows_of.ld}; };
      swiglu_forward(dtype, rows, cols, in(half(both, 0)), in(half(both, 1)), {out.data(), cols});
      check_close("out", out, want, test::tolerance(dtype, 1e-6));
      swiglu_backward(dtype, rows, cols, in(half(both, 0)), in(half(both, 1)), {dout.data(), cols},
                      half(grads, 0), half(grads, 1));
      check_close("grads", grads, want_grads, test::tolerance(dtype, 2e-6));
      swiglu_backward(dtype, rows, cols, in(half(both, 0)), in(half(both, 1)), {dout.data(), cols},
                      half(both, 0), half(both, 1));
      assert_true(both == grads);
      // The flat form on the same numbers.
      Buffer gate(dtype, cols, 3);
      Buffer up(dtype, cols, 4);
      Buffer flat(dtype, cols);
      Buffer strided(dtype, cols);
      swiglu_forward(dtype, cols, gate.data(), up.data(), flat.data());
      swiglu_forward(dtype, 1, cols, {gate.data(), cols}, {up.data(), cols},
                     {strided.data(), cols});
      assert_true(flat == strided);
      Buffer dgate(dtype, cols);
      Buffer dup(dtype, cols);
      Buffer d(dtype, cols, 5);
      swiglu_backward(dtype, cols, gate.data(), up.data(), d.data(), dgate.data(), dup.data());
      std::vector<double> want_dup;
      for (int64_t i = 0; i < cols; ++i) want_dup.push_back(d[i] * gate[i] * sigmoid(gate[i]));
      check_close("dup", dup, want_dup, test::tolerance(dtype, 2e-6));
    }
  }
}

struct RopeCase {
  nxd_dtype_t dtype;
  int64_t dim, rotary;
  bool head_major_out;
};

void check_rope(const RopeCase& c) {
  const int64_t batch = 2;
  const int64_t seq = 5;
  const int64_t heads = 3;
  const int64_t half = c.rotary / 2;
  Buffer in(c.dtype, batch * seq * heads * c.dim, 1);
  Buffer out(c.dtype, in.size());
  Buffer cos(NXD_DTYPE_F32, seq * half);
  Buffer sin(NXD_DTYPE_F32, seq * half);
  for (int64_t i = 0; i < seq * half; ++i) {
    const double angle =
        static_cast<double>(i / half) *
        std::pow(10000.0, -static_cast<double>(i % half) / static_cast<double>(half));
    cos.set(i, std::cos(angle));
    sin.set(i, std::sin(angle));
  }
  RopeArgs args;
  args.dtype = c.dtype;
  args.batch = batch;
  args.seq = seq;
  args.heads = heads;
  args.head_dim = c.dim;
  args.rotary_dim = c.rotary;
  args.in = in.data();
  args.in_batch_stride = args.out_batch_stride = seq * heads * c.dim;
  args.in_seq_stride = heads * c.dim;
  args.in_head_stride = c.dim;
  args.out = out.data();
  args.out_seq_stride = c.head_major_out ? c.dim : heads * c.dim;
  args.out_head_stride = c.head_major_out ? seq * c.dim : c.dim;
  args.cos = cos.f32();
  args.sin = sin.f32();
  std::vector<double> want(static_cast<size_t>(in.size()));
  for (int64_t token = 0; token < batch * seq * heads; ++token) {
    const int64_t b = token / (seq * heads);
    const int64_t s = token / heads % seq;
    const int64_t h = token % heads;
    const int64_t to =
        b * args.out_batch_stride + s * args.out_seq_stride + h * args.out_head_stride;
    for (int64_t i = 0; i < c.dim; ++i) {
      double value = in[token * c.dim + i];
      if (i < c.rotary) {
        const int64_t j = i % half;
        const double other = in[token * c.dim + (i < half ? i + half : j)];
        value = value * cos[s * half + j] + (i < half ? -other : other) * sin[s * half + j];
      }
      want[static_cast<size_t>(to + i)] = value;
    }
  }
  rope(args);
  check_close("rope", out, want, test::tolerance(c.dtype, 1e-6));
  // Rotating back, in place, gives the input again.
  RopeArgs back = args;
  back.in = back.out = out.data();
  back.in_seq_stride = args.out_seq_stride;
  back.in_head_stride = args.out_head_stride;
  back.inverse = true;
  rope(back);
  for (int64_t token = 0; token < batch * seq * heads; ++token) {
    const int64_t to = token / (seq * heads) * args.out_batch_stride +
                       token / heads % seq * args.out_seq_stride +
                       token % heads * args.out_head_stride;
    for (int64_t i = 0; i < c.dim; ++i) {
      const double tol = c.dtype == NXD_DTYPE_BF16 ? 0.02 : 1e-6;
      assert_true(std::fabs(out[to + i] - in[token * c.dim + i]) < tol);
    }
  }
}

void rotary_embedding(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const bool head_major : {false, true}) {
      check_rope({dtype, 64, 64, head_major});
      check_rope({dtype, 6, 6, head_major});
      check_rope({dtype, 40, 10, head_major});
      check_rope({dtype, 2, 2, head_major});
    }
  }
  for (const int64_t rotary : {-2, 3, 10}) {
    RopeArgs bad;
    bad.head_dim = 8;
    bad.rotary_dim = rotary;
    nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT,
                        "rope: expected an even rotary_dim of at most head_dim 8",
                        [&] { rope(bad); });
  }
}

// Every bf16 number survives the way to f32 and back, and f32 numbers round to the even neighbour.
void casts(void**) {
  std::vector<Bf16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<Bf16> back(all.size());
  cast(NXD_DTYPE_BF16, all.data(), NXD_DTYPE_F32, wide.data(), 65536);
  cast(NXD_DTYPE_F32, wide.data(), NXD_DTYPE_BF16, back.data(), 65536);
  for (size_t i = 0; i < all.size(); ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(i) << 16);
    if (std::isnan(value)) {
      assert_true(std::isnan(wide[i]) && back[i].bits == 0x7FC0);
    } else {
      assert_true(wide[i] == value && back[i].bits == all[i].bits);
    }
  }
  const uint32_t bits[] = {0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x00000001};
  const uint16_t want[] = {0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x0000};
  for (size_t i = 0; i < 6; ++i) {
    const auto value = std::bit_cast<float>(bits[i]);
    std::vector<float> values(83, value);
    std::vector<Bf16> narrow(83);
    cast(NXD_DTYPE_F32, values.data(), NXD_DTYPE_BF16, narrow.data(), 83);
    for (const Bf16 n : narrow) assert_int_equal(n.bits, want[i]);
    assert_int_equal(to_bf16(value).bits, want[i]);
  }
}

void sums_and_scales(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const int64_t n : kLengths) {
      Buffer a(dtype, n, 1);
      Buffer b(dtype, n, 2);
      Buffer out(dtype, n);
      Buffer total(NXD_DTYPE_F32, n, 3);
      std::vector<double> sum;
      std::vector<double> scaled;
      std::vector<double> grown;
      for (int64_t i = 0; i < n; ++i) {
        sum.push_back(a[i] + b[i]);
        scaled.push_back(a[i] * 0.75);
        grown.push_back(total[i] + a[i] * 0.25);
      }
      add(dtype, n, a.data(), b.data(), out.data());
      check_close("add", out, sum, test::tolerance(dtype, 1e-6));
      scale(dtype, n, a.data(), 0.75, out.data());
      check_close("scale", out, scaled, test::tolerance(dtype, 1e-6));
      scale_add(dtype, NXD_DTYPE_F32, n, a.data(), 0.25, total.data());
      check_close("scale_add", total, grown, 1e-6);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(activations),          cmocka_unit_test(exponential_is_accurate),
      cmocka_unit_test(special_values),       cmocka_unit_test(swiglu),
      cmocka_unit_test(rotary_embedding),     cmocka_unit_test(casts),
      cmocka_unit_test(sums_and_scales),      cmocka_unit_test(bf16_results_are_nearest),
      cmocka_unit_test(places_change_no_bit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
