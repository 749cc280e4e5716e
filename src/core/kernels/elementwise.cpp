#include "core/kernels/elementwise.h"

#include <cmath>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/elementwise.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/two_vectors-inl.h"
#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE const T* at(const void* data, int64_t index) {
  return static_cast<const T*>(data) + index;
}
template <class T>
HWY_INLINE T* at(void* data, int64_t index) {
  return static_cast<T*>(data) + index;
}

// sigmoid(x) and its slope, sigmoid(x) (1 - sigmoid(x)), each to the last digits of results of type
// T: a difference would lose them.
struct Gate {
  V open, slope;
};
template <class T>
HWY_INLINE Gate gate_of(V x) {
  const V size = hn::Abs(x);
  const V e = hn::IfThenZeroElse(hn::Gt(size, set(87.336F)), exp_within<T, true>(size));
  const V larger = inverse<T>(hn::Add(set(1.0F), e));
  const V smaller = hn::Mul(e, larger);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(kD)), smaller, larger), hn::Mul(smaller, larger)};
}

// The slope of x sigmoid(x).
HWY_INLINE V silu_slope(V x, const Gate& gate) { return hn::MulAdd(x, gate.slope, gate.open); }

// x sigmoid(y), rounded once less than the product. Beyond the bounds the exponential is infinite,
// or 1 all but it.
template <class T>
HWY_INLINE V gated(V x, V y) {
  const V bounded = hn::Max(hn::Min(y, set(87.0F)), set(-88.5F));
  return quotient<T>(x, hn::Add(set(1.0F), exp_within<T, true>(bounded)));
}
template <class T>
HWY_INLINE V silu_of(V x) {
  return gated<T>(x, x);
}

// Rows of an operand from one of them on. Processors see where neighbouring lines are read, but not
// that the next row follows: it is fetched while this one is worked on.
template <class T>
struct RowCursor {
  T* row;
  int64_t ld;
  int64_t ahead;  // from an element to that of the next row; 0: there is none

  template <class Operand>
  RowCursor(const Operand& rows, int64_t r, int64_t count)
      : row(at<std::remove_const_t<T>>(rows.data, r * rows.ld)),
        ld(rows.ld),
        ahead(r + 1 < count ? rows.ld : 0) {}
  template <class Lanes>
  HWY_INLINE auto load(const Lanes& lanes, int64_t i) const {
    constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
    for (int64_t j = 0; j < lanes.kVectors * static_cast<int64_t>(kLanes); j += kLine) {
      hwy::Prefetch(row + i + j + ahead);
    }
    return lanes.load(row + i);
  }
};

void SwigluForward(nxd_dtype_t dtype, int64_t rows, int64_t cols, Rows gate, Rows up,
                   MutableRows out) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = 0; r < rows; ++r) {
      const RowCursor<const T> g(gate, r, rows), u(up, r, rows);
      T* y = at<T>(out.data, r * out.ld);
      sweep_two<T>(cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        const auto result =
            each([](V a, V b) NXD_INLINE_LAMBDA { return hn::Mul(silu_of<T>(a), b); },
                 g.load(lanes, i), u.load(lanes, i));
        lanes.store(result, y + i);
      });
    }
  });
}

void SwigluBackward(nxd_dtype_t dtype, int64_t rows, int64_t cols, Rows gate, Rows up, Rows dout,
                    MutableRows dgate, MutableRows dup) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t r = 0; r < rows; ++r) {
      const RowCursor<const T> gates(gate, r, rows), ups(up, r, rows), grads(dout, r, rows);
      T* dg = at<T>(dgate.data, r * dgate.ld);
      T* du = at<T>(dup.data, r * dup.ld);
      sweep_two<T>(cols, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        auto g = gates.load(lanes, i);
        auto u = ups.load(lanes, i);
        const auto d = grads.load(lanes, i);
        for (int k = 0; k < lanes.kVectors; ++k) {
          const Gate open = gate_of<T>(g.v[k]);
          u.v[k] = hn::Mul(hn::Mul(d.v[k], u.v[k]), silu_slope(g.v[k], open));
          g.v[k] = hn::Mul(d.v[k], hn::Mul(g.v[k], open.open));
        }
        lanes.store(g, du + i);
        lanes.store(u, dg + i);
      });
    }
  });
}

// The normal distribution's tail beyond |x| is t p(t) exp(-x^2 / 2) with t = 1 / (1 + scale |x|).
// These p have the least relative error among those of their degree, where the exponential is not 0
// (by Remez' exchange): 3e-8 and 8e-6.
template <class T>
HWY_INLINE V normal_tail_polynomial(V t) {
  V p;
  if constexpr (std::is_same_v<T, Bf16>) {
    p = hn::MulAdd(set(-7.750704024e-2F), t, set(2.172685323e-1F));
    p = hn::MulAdd(p, t, set(-1.835535319e-2F));
    p = hn::MulAdd(p, t, set(1.449549642e-1F));
    p = hn::MulAdd(p, t, set(1.135504279e-1F));
    return hn::MulAdd(p, t, set(1.200922360e-1F));
  }
  p = hn::MulAdd(set(-2.912586704e-2F), t, set(1.438722442e-1F));
  p = hn::MulAdd(p, t, set(-2.555045840e-1F));
  p = hn::MulAdd(p, t, set(1.589293151e-1F));
  p = hn::MulAdd(p, t, set(-2.293715711e-2F));
  p = hn::MulAdd(p, t, set(1.054329457e-1F));
  p = hn::MulAdd(p, t, set(1.198524347e-1F));
  p = hn::MulAdd(p, t, set(1.398590827e-1F));
  return hn::MulAdd(p, t, set(1.396215698e-1F));
}

// The normal distribution's cumulative function and exp(-x^2 / 2), which its density is made of.
struct Normal {
  V cumulative, exponential;
};
template <class T>
HWY_INLINE Normal normal_of(V x) {
  constexpr float kScale = std::is_same_v<T, Bf16> ? 0.3F : 0.35F;
  const V t = inverse<T>(hn::MulAdd(hn::Abs(x), set(kScale), set(1.0F)));
  const V e = exp_below<T>(hn::Mul(hn::Mul(x, set(-0.5F)), x));
  const V tail = hn::Mul(hn::Mul(normal_tail_polynomial<T>(t), t), e);
  return {hn::IfThenElse(hn::Gt(x, hn::Zero(kD)), hn::Sub(set(1.0F), tail), tail), e};
}

constexpr float kGeluInner = 0.79788456F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

// 2u with u the argument of gelu's tanh: (1 + tanh u) / 2 is sigmoid(2u).
HWY_INLINE V gelu_tanh_argument(V x) {
  return hn::Mul(x,
                 hn::MulAdd(hn::Mul(x, x), set(2 * kGeluInner * kGeluCubic), set(2 * kGeluInner)));
}

template <class T, Activation kActivation>
HWY_INLINE V activate(V x) {
  switch (kActivation) {
    case Activation::kGeluErf: return hn::Mul(x, normal_of<T>(x).cumulative);
    case Activation::kGeluTanh: return gated<T>(x, gelu_tanh_argument(x));
    case Activation::kSilu: return silu_of<T>(x);
    default: return hn::IfThenElse(hn::Le(x, hn::Zero(kD)), hn::Zero(kD), x);
  }
}

template <class T, Activation kActivation>
HWY_INLINE V activation_gradient(V x, V dy) {
  switch (kActivation) {
    case Activation::kGeluErf: {
      const Normal normal = normal_of<T>(x);
      const V density = hn::Mul(set(0.39894228F), normal.exponential);
      return hn::Mul(hn::MulAdd(x, density, normal.cumulative), dy);
    }
    case Activation::kGeluTanh: {
      const Gate gate = gate_of<T>(gelu_tanh_argument(x));
      const V inner =
          hn::Mul(set(2 * kGeluInner), hn::MulAdd(hn::Mul(x, x), set(3 * kGeluCubic), set(1.0F)));
      return hn::Mul(hn::MulAdd(hn::Mul(x, gate.slope), inner, gate.open), dy);
    }
    case Activation::kSilu: return hn::Mul(silu_slope(x, gate_of<T>(x)), dy);
    // Where x is not above 0 not even a NaN passes; a NaN in x lets dy through, as in ATen.
    default: return hn::IfThenZeroElse(hn::Le(x, hn::Zero(kD)), dy);
  }
}

// body(a constant) of the activation.
template <class Body>
HWY_INLINE void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kGeluErf:
      return body(std::integral_constant<Activation, Activation::kGeluErf>{});
    case Activation::kGeluTanh:
      return body(std::integral_constant<Activation, Activation::kGeluTanh>{});
    case Activation::kSilu: return body(std::integral_constant<Activation, Activation::kSilu>{});
    default: return body(std::integral_constant<Activation, Activation::kRelu>{});
  }
}

void ActivationForward(Activation activation, nxd_dtype_t dtype, int64_t n, const void* x,
                       void* y) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    with_activation(activation, [&](auto kind) HWY_ATTR {
      constexpr Activation kKind = decltype(kind)::value;
      sweep_two<T>(n, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        const auto out = each([](V in) NXD_INLINE_LAMBDA { return activate<T, kKind>(in); },
                              lanes.load(at<T>(x, i)));
        lanes.store(out, at<T>(y, i));
      });
    });
  });
}

void ActivationBackward(Activation activation, nxd_dtype_t dtype, int64_t n, const void* x,
                        const void* dy, void* dx) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    with_activation(activation, [&](auto kind) HWY_ATTR {
      constexpr Activation kKind = decltype(kind)::value;
      sweep_two<T>(n, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        const auto gradient = [](V in, V grad) NXD_INLINE_LAMBDA {
          return activation_gradient<T, kKind>(in, grad);
        };
        lanes.store(each(gradient, lanes.load(at<T>(x, i)), lanes.load(at<T>(dy, i))),
                    at<T>(dx, i));
      });
    });
  });
}

// The heads at one position; sign -1 rotates back.
void RopeHeads(const RopeArgs& args, const void* in, void* out, const float* cos,
               const float* sin) {
  const int64_t half = args.rotary_dim / 2;
  const V sign = set(args.inverse ? -1.0F : 1.0F);
  with_dtype(args.dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    for (int64_t h = 0; h < args.heads; ++h) {
      const T* x = at<T>(in, h * args.in_head_stride);
      T* y = at<T>(out, h * args.out_head_stride);
      sweep_two<T>(half, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        const auto c = lanes.load(cos + i);
        const auto s = lanes.load(sin + i);
        auto low = lanes.load(x + i);
        auto high = lanes.load(x + i + half);
        for (int k = 0; k < lanes.kVectors; ++k) {
          const V l = low.v[k], u = high.v[k], turn = hn::Mul(s.v[k], sign);
          low.v[k] = hn::NegMulAdd(u, turn, hn::Mul(l, c.v[k]));
          high.v[k] = hn::MulAdd(l, turn, hn::Mul(u, c.v[k]));
        }
        lanes.store(low, y + i);
        lanes.store(high, y + i + half);
      });
      if (in != out && args.rotary_dim < args.head_dim) {
        std::memcpy(y + args.rotary_dim, x + args.rotary_dim,
                    static_cast<size_t>(args.head_dim - args.rotary_dim) * sizeof(T));
      }
    }
  });
}

void Cast(nxd_dtype_t in_dtype, const void* in, nxd_dtype_t out_dtype, void* out, int64_t n) {
  if (in_dtype == out_dtype) {
    if (in != out && n > 0) std::memcpy(out, in, static_cast<size_t>(n) * dtype_size(in_dtype));
    return;
  }
  with_dtype(in_dtype, [&](auto in_element) HWY_ATTR {
    with_dtype(out_dtype, [&](auto out_element) HWY_ATTR {
      using In = decltype(in_element);
      using Out = decltype(out_element);
      sweep_two<Out>(n, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        lanes.store(lanes.load(at<In>(in, i)), at<Out>(out, i));
      });
    });
  });
}

void Add(nxd_dtype_t dtype, int64_t n, const void* a, const void* b, void* out) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    sweep_two<T>(n, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
      const auto sum = [](V x, V y) NXD_INLINE_LAMBDA { return hn::Add(x, y); };
      lanes.store(each(sum, lanes.load(at<T>(a, i)), lanes.load(at<T>(b, i))), at<T>(out, i));
    });
  });
}

void Scale(nxd_dtype_t dtype, int64_t n, const void* x, float factor, void* out) {
  const V f = set(factor);
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    sweep_two<T>(n, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
      const auto scaled = [&](V v) NXD_INLINE_LAMBDA { return hn::Mul(v, f); };
      lanes.store(each(scaled, lanes.load(at<T>(x, i))), at<T>(out, i));
    });
  });
}

void ScaleAdd(nxd_dtype_t x_dtype, nxd_dtype_t y_dtype, int64_t n, const void* x, float factor,
              void* y) {
  const V f = set(factor);
  with_dtype(x_dtype, [&](auto x_element) HWY_ATTR {
    with_dtype(y_dtype, [&](auto y_element) HWY_ATTR {
      using X = decltype(x_element);
      using Y = decltype(y_element);
      sweep_two<Y>(n, [&](int64_t i, auto lanes) NXD_INLINE_LAMBDA {
        const auto sum = [&](V v, V old) NXD_INLINE_LAMBDA { return hn::MulAdd(v, f, old); };
        const auto old = lanes.load(at<Y>(static_cast<const void*>(y), i));
        lanes.store(each(sum, lanes.load(at<X>(x, i)), old), at<Y>(y, i));
      });
    });
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluBackward);
HWY_EXPORT(ActivationForward);
HWY_EXPORT(ActivationBackward);
HWY_EXPORT(RopeHeads);
HWY_EXPORT(Cast);
HWY_EXPORT(Add);
HWY_EXPORT(Scale);
HWY_EXPORT(ScaleAdd);

// Work of a transcendental function, in elements that are only moved.
constexpr int64_t kExpWork = 4;

struct ConstArray {
  const char* data;
  int64_t size;
  ConstArray(const void* pointer, nxd_dtype_t dtype)
      : data(static_cast<const char*>(pointer)), size(static_cast<int64_t>(dtype_size(dtype))) {}
  const void* operator+(int64_t index) const { return data + index * size; }
};
struct Array {
  char* data;
  int64_t size;
  Array(void* pointer, nxd_dtype_t dtype)
      : data(static_cast<char*>(pointer)), size(static_cast<int64_t>(dtype_size(dtype))) {}
  void* operator+(int64_t index) const { return data + index * size; }
};

Rows from_row(Rows rows, int64_t r, nxd_dtype_t dtype) {
  return {ConstArray(rows.data, dtype) + r * rows.ld, rows.ld};
}
MutableRows from_row(MutableRows rows, int64_t r, nxd_dtype_t dtype) {
  return {Array(rows.data, dtype) + r * rows.ld, rows.ld};
}

}  // namespace

void swiglu_forward(nxd_dtype_t dtype, int64_t n, const void* gate, const void* up, void* out) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray g(gate, dtype);
  const ConstArray u(up, dtype);
  const Array o(out, dtype);
  parallel_ranges(n, kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SwigluForward)
    (dtype, 1, end - begin, {g + begin, 0}, {u + begin, 0}, {o + begin, 0});
  });
}

void swiglu_backward(nxd_dtype_t dtype, int64_t n, const void* gate, const void* up,
                     const void* dout, void* dgate, void* dup) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray g(gate, dtype);
  const ConstArray u(up, dtype);
  const ConstArray d(dout, dtype);
  const Array dg(dgate, dtype);
  const Array du(dup, dtype);
  parallel_ranges(n, kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SwigluBackward)
    (dtype, 1, end - begin, {g + begin, 0}, {u + begin, 0}, {d + begin, 0}, {dg + begin, 0},
     {du + begin, 0});
  });
}

void swiglu_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, Rows gate, Rows up,
                    MutableRows out) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  parallel_ranges(rows, cols * kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SwigluForward)
    (dtype, end - begin, cols, from_row(gate, begin, dtype), from_row(up, begin, dtype),
     from_row(out, begin, dtype));
  });
}

void swiglu_backward(nxd_dtype_t dtype, int64_t rows, int64_t cols, Rows gate, Rows up, Rows dout,
                     MutableRows dgate, MutableRows dup) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  parallel_ranges(rows, cols * kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SwigluBackward)
    (dtype, end - begin, cols, from_row(gate, begin, dtype), from_row(up, begin, dtype),
     from_row(dout, begin, dtype), from_row(dgate, begin, dtype), from_row(dup, begin, dtype));
  });
}

void activation_forward(Activation activation, nxd_dtype_t dtype, int64_t n, const void* x,
                        void* y) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray in(x, dtype);
  const Array out(y, dtype);
  parallel_ranges(n, kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ActivationForward)
    (activation, dtype, end - begin, in + begin, out + begin);
  });
}

void activation_backward(Activation activation, nxd_dtype_t dtype, int64_t n, const void* x,
                         const void* dy, void* dx) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray in(x, dtype);
  const ConstArray grad(dy, dtype);
  const Array out(dx, dtype);
  parallel_ranges(n, kExpWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ActivationBackward)
    (activation, dtype, end - begin, in + begin, grad + begin, out + begin);
  });
}

void rope(const RopeArgs& args) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check_argument(
      args.rotary_dim >= 0 && args.rotary_dim % 2 == 0 && args.rotary_dim <= args.head_dim,
      "rope: expected an even rotary_dim of at most head_dim ", args.head_dim, ", got ",
      args.rotary_dim);
  const ConstArray in(args.in, args.dtype);
  const Array out(args.out, args.dtype);
  const int64_t half = args.rotary_dim / 2;
  parallel_ranges(args.batch * args.seq, args.heads * args.head_dim,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t token = begin; token < end; ++token) {
                      const int64_t b = token / args.seq;
                      const int64_t s = token % args.seq;
                      HWY_DYNAMIC_DISPATCH(RopeHeads)
                      (args, in + (b * args.in_batch_stride + s * args.in_seq_stride),
                       out + (b * args.out_batch_stride + s * args.out_seq_stride),
                       args.cos + s * half, args.sin + s * half);
                    }
                  });
}

void cast(nxd_dtype_t in_dtype, const void* in, nxd_dtype_t out_dtype, void* out, int64_t n) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray from(in, in_dtype);
  const Array to(out, out_dtype);
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Cast)(in_dtype, from + begin, out_dtype, to + begin, end - begin);
  });
}

void cast_rows(nxd_dtype_t in_dtype, Rows in, nxd_dtype_t out_dtype, MutableRows out, int64_t rows,
               int64_t cols) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray from(in.data, in_dtype);
  const Array to(out.data, out_dtype);
  parallel_ranges(rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(Cast)(in_dtype, from + r * in.ld, out_dtype, to + r * out.ld, cols);
    }
  });
}

void add(nxd_dtype_t dtype, int64_t n, const void* a, const void* b, void* out) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray x(a, dtype);
  const ConstArray y(b, dtype);
  const Array o(out, dtype);
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Add)(dtype, end - begin, x + begin, y + begin, o + begin);
  });
}

void scale(nxd_dtype_t dtype, int64_t n, const void* x, double factor, void* out) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray in(x, dtype);
  const Array o(out, dtype);
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Scale)
    (dtype, end - begin, in + begin, static_cast<float>(factor), o + begin);
  });
}

void scale_add(nxd_dtype_t x_dtype, nxd_dtype_t y_dtype, int64_t n, const void* x, double factor,
               void* y) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  const ConstArray in(x, x_dtype);
  const Array o(y, y_dtype);
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ScaleAdd)
    (x_dtype, y_dtype, end - begin, in + begin, static_cast<float>(factor), o + begin);
  });
}

}  // namespace nxd::kernels
#endif
