#include "core/kernels/optimizer_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/parallel.h"
#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/optimizer_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/kernels/stochastic-inl.h"
#include "core/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {

template <class T, class LanesOf>
HWY_INLINE void store_peer_copies(const std::vector<void*>* peer_copies, int64_t i, V p,
                                  LanesOf lanes) {
  if (!peer_copies) return;
  for (void* peer_copy : *peer_copies) lanes.store(p, static_cast<T*>(peer_copy) + i);
}

// update(i, lanes) gives the new parameters of the elements begin ... end, which are stored, and in
// BF16 rounded as the source says, and also into the copy, when there is one, and the peer copies.
template <class Param, class Args, class Update>
HWY_INLINE void sweep_parameters(const Args& args, int64_t begin, int64_t end,
                                 const Update& update) {
  auto* param = static_cast<Param*>(args.param);
  auto* copy = static_cast<Bf16*>(args.copy);
  const std::vector<void*>* peer_copies = args.peer_copies;
  if constexpr (std::is_same_v<Param, Bf16>) {
    if (args.rounding) {
      sweep_random(*args.rounding, begin, end, [&](int64_t i, auto lanes, auto words) HWY_ATTR {
        const V p = update(i, lanes);
        store_stochastic(p, words, lanes, param + i);
        if (!peer_copies) return;
        for (void* peer_copy : *peer_copies) {
          store_stochastic(p, words, lanes, static_cast<Bf16*>(peer_copy) + i);
        }
      });
      return;
    }
  }
  sweep(end - begin, [&](int64_t offset, auto lanes) HWY_ATTR {
    const int64_t i = begin + offset;
    const V p = update(i, lanes);
    lanes.store(p, param + i);
    if (copy) {
      lanes.store(p, copy + i);
      store_peer_copies<Bf16>(peer_copies, i, p, lanes);
    } else {
      store_peer_copies<Param>(peer_copies, i, p, lanes);
    }
  });
}

template <class Param, class Grad>
void AdamwRange(const AdamwArgs& args, int64_t begin, int64_t end) {
  const auto* param = static_cast<const Param*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  auto* exp_avg = static_cast<float*>(args.exp_avg);
  auto* exp_avg_sq = static_cast<float*>(args.exp_avg_sq);
  const AdamwTerms terms = adamw_terms(args);
  const auto constant = [](double value) HWY_ATTR { return set(static_cast<float>(value)); };
  const V beta1 = constant(args.beta1);
  const V beta1_rest = constant(1 - args.beta1);
  const V beta2 = constant(args.beta2);
  const V beta2_rest = constant(1 - args.beta2);
  const V decay = constant(terms.decay);
  const V rate = constant(terms.rate);
  const V root = constant(terms.root);
  const V eps = constant(args.eps);
  const V grad_scale = constant(args.grad_scale);
  const auto update = [&](int64_t i, auto lanes) HWY_ATTR {
    const V g = hn::Mul(lanes.load(grad + i), grad_scale);
    const V m = hn::MulAdd(beta1_rest, g, hn::Mul(beta1, lanes.load(exp_avg + i)));
    const V v = hn::MulAdd(hn::Mul(beta2_rest, g), g, hn::Mul(beta2, lanes.load(exp_avg_sq + i)));
    const V denominator = hn::MulAdd(hn::Sqrt(v), root, eps);
    lanes.store(m, exp_avg + i);
    lanes.store(v, exp_avg_sq + i);
    return hn::NegMulAdd(rate, hn::Div(m, denominator), hn::Mul(decay, lanes.load(param + i)));
  };
  sweep_parameters<Param>(args, begin, end, update);
}

template <class Param, class Grad>
void SgdRange(const SgdArgs& args, int64_t begin, int64_t end) {
  const auto* param = static_cast<const Param*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  auto* buffer = static_cast<float*>(args.momentum_buffer);
  const auto constant = [](double value) HWY_ATTR { return set(static_cast<float>(value)); };
  const V rate = constant(args.lr);
  const V momentum = constant(args.momentum);
  const V fresh = constant(1 - args.dampening);
  const V decay = constant(args.weight_decay);
  const bool decays = args.weight_decay != 0;  // else an infinite parameter would become a NaN
  const V grad_scale = constant(args.grad_scale);
  const auto update = [&](int64_t i, auto lanes) HWY_ATTR {
    const V old = lanes.load(param + i);
    V d = hn::Mul(lanes.load(grad + i), grad_scale);
    if (decays) d = hn::MulAdd(decay, old, d);
    if (buffer) {
      const V kept =
          args.first_step ? d : hn::MulAdd(momentum, lanes.load(buffer + i), hn::Mul(fresh, d));
      lanes.store(kept, buffer + i);
      d = args.nesterov ? hn::MulAdd(momentum, kept, d) : kept;
    }
    return hn::NegMulAdd(rate, d, old);
  };
  sweep_parameters<Param>(args, begin, end, update);
}

void Adamw(const AdamwArgs& args, int64_t begin, int64_t end) {
  with_dtype(args.dtype, [&](auto param) HWY_ATTR {
    with_dtype(args.grad_dtype, [&](auto grad) HWY_ATTR {
      AdamwRange<decltype(param), decltype(grad)>(args, begin, end);
    });
  });
}

void Sgd(const SgdArgs& args, int64_t begin, int64_t end) {
  with_dtype(args.dtype, [&](auto param) HWY_ATTR {
    with_dtype(args.grad_dtype, [&](auto grad) HWY_ATTR {
      SgdRange<decltype(param), decltype(grad)>(args, begin, end);
    });
  });
}

// Element i is added to sum i mod 32, whatever the width of the vectors; squares are not fused
// with the sums, so that machines without fused operations agree.
constexpr int64_t kSums = 32;
using Wide = hn::CappedTag<double, 8>;
constexpr Wide kWide{};
constexpr auto kWideLanes = static_cast<int64_t>(hn::MaxLanes(kWide));

HWY_INLINE hn::Vec<Wide> load_wide(const double* p) { return hn::LoadU(kWide, p); }
HWY_INLINE hn::Vec<Wide> load_wide(const float* p) {
  return hn::PromoteTo(kWide, hn::LoadU(hn::Rebind<float, Wide>(), p));
}
HWY_INLINE hn::Vec<Wide> load_wide(const Bf16* p) {
  const hn::Rebind<uint16_t, Wide> narrow;
  const hn::Rebind<uint32_t, Wide> bits;
  const hn::Rebind<float, Wide> floats;
  const auto words = hn::PromoteTo(bits, hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(p)));
  return hn::PromoteTo(kWide, hn::BitCast(floats, hn::ShiftLeft<16>(words)));
}

template <class T>
double SumSquares(const T* x, int64_t n) {
  hn::Vec<Wide> sums[kSums / kWideLanes];
  for (auto& sum : sums) sum = hn::Zero(kWide);
  const auto add = [&sums](const T* p) HWY_ATTR {
    for (int64_t part = 0; part < kSums / kWideLanes; ++part) {
      const auto v = load_wide(p + part * kWideLanes);
      sums[part] = hn::Add(sums[part], hn::Mul(v, v));
    }
  };
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) add(x + i);
  if (i < n) {
    T rest[kSums] = {};
    std::copy(x + i, x + n, rest);
    add(rest);
  }
  double all[kSums];
  for (int64_t part = 0; part < kSums / kWideLanes; ++part) {
    hn::StoreU(sums[part], kWide, all + part * kWideLanes);
  }
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) all[j] += all[j + half];
  }
  return all[0];
}

void SumOfSquares(nxd_dtype_t dtype, int64_t n, const void* x, double* out) {
  if (dtype == NXD_DTYPE_F64) {
    *out = SumSquares(static_cast<const double*>(x), n);
    return;
  }
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    *out = SumSquares(static_cast<const decltype(element)*>(x), n);
  });
}

// As integers the bits of absolute values keep their order, and a NaN is above all numbers.
void MaxAbs(nxd_dtype_t dtype, int64_t n, const void* x, double* out) {
  with_dtype(dtype, [&](auto element) HWY_ATTR {
    const auto* p = static_cast<const decltype(element)*>(x);
    const hn::RebindToSigned<D> integers;
    auto largest = hn::Zero(integers);
    sweep(n, [&](int64_t i, auto lanes) HWY_ATTR {
      largest = hn::Max(largest, hn::BitCast(integers, hn::Abs(lanes.load(p + i))));
    });
    const auto bits = hn::GetLane(hn::MaxOfLanes(integers, largest));
    *out = static_cast<double>(std::bit_cast<float>(bits));
  });
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(Adamw);
HWY_EXPORT(Sgd);
HWY_EXPORT(SumOfSquares);
HWY_EXPORT(MaxAbs);

constexpr int64_t kUpdateWork = 4;

double read(const double* p, int64_t i) { return p[i]; }
double read(const float* p, int64_t i) { return static_cast<double>(p[i]); }
double read(const Bf16* p, int64_t i) { return static_cast<double>(to_float(p[i])); }

void write(double* p, int64_t i, double value) { p[i] = value; }
void write(float* p, int64_t i, double value) { p[i] = static_cast<float>(value); }
void write(Bf16* p, int64_t i, double value) { p[i] = to_bf16(static_cast<float>(value)); }

Bf16 round_at(const RoundingSource& source, int64_t i, double value) {
  const int64_t offset =
      source.cols == 0 ? i : i / source.cols * source.row_stride + i % source.cols;
  return round_stochastic(static_cast<float>(value),
                          source.site.word16(source.first + static_cast<uint64_t>(offset)));
}

template <class T>
void copy_to_peers(const std::vector<void*>* peer_copies, int64_t i, T value) {
  if (!peer_copies) return;
  for (void* peer_copy : *peer_copies) static_cast<T*>(peer_copy)[i] = value;
}

// Stores a new parameter wherever it is to be.
template <class Param, class Args>
void write_parameter(const Args& args, int64_t i, double value) {
  auto* param = static_cast<Param*>(args.param);
  write(param, i, value);
  if constexpr (std::is_same_v<Param, Bf16>) {
    if (args.rounding) param[i] = round_at(*args.rounding, i, value);
  }
  if (args.copy) {
    auto* copy = static_cast<Bf16*>(args.copy);
    write(copy, i, read(param, i));
    copy_to_peers(args.peer_copies, i, copy[i]);
  } else {
    copy_to_peers(args.peer_copies, i, param[i]);
  }
}

// Calls body with values of the types of parameters, gradients and states.
template <class Args, class Body>
void with_types(const Args& args, const Body& body) {
  const auto with_grad = [&](auto param, auto wide) {
    if (args.grad_dtype == NXD_DTYPE_BF16) {
      body(param, Bf16{}, wide);
    } else {
      body(param, wide, wide);
    }
  };
  switch (args.dtype) {
    case NXD_DTYPE_F64: return with_grad(double{}, double{});
    case NXD_DTYPE_BF16: return with_grad(Bf16{}, float{});
    default: return with_grad(float{}, float{});
  }
}

template <class Param, class Grad, class State>
void adamw_reference(const AdamwArgs& args, int64_t begin, int64_t end) {
  const auto* param = static_cast<const Param*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  auto* exp_avg = static_cast<State*>(args.exp_avg);
  auto* exp_avg_sq = static_cast<State*>(args.exp_avg_sq);
  const AdamwTerms terms = adamw_terms(args);
  for (int64_t i = begin; i < end; ++i) {
    const double g = read(grad, i) * args.grad_scale;
    const double m = args.beta1 * read(exp_avg, i) + (1 - args.beta1) * g;
    const double v = args.beta2 * read(exp_avg_sq, i) + (1 - args.beta2) * g * g;
    write(exp_avg, i, m);
    write(exp_avg_sq, i, v);
    write_parameter<Param>(
        args, i,
        terms.decay * read(param, i) - terms.rate * (m / (terms.root * std::sqrt(v) + args.eps)));
  }
}

template <class Param, class Grad, class State>
void sgd_reference(const SgdArgs& args, int64_t begin, int64_t end) {
  const auto* param = static_cast<const Param*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  auto* buffer = static_cast<State*>(args.momentum_buffer);
  for (int64_t i = begin; i < end; ++i) {
    const double old = read(param, i);
    double d = read(grad, i) * args.grad_scale;
    if (args.weight_decay != 0) d += args.weight_decay * old;
    if (buffer) {
      const double kept =
          args.first_step ? d : args.momentum * read(buffer, i) + (1 - args.dampening) * d;
      write(buffer, i, kept);
      d = args.nesterov ? d + args.momentum * kept : kept;
    }
    write_parameter<Param>(args, i, old - args.lr * d);
  }
}

template <class Args>
void check(const char* what, const Args& args) {
  const bool narrow = args.dtype == NXD_DTYPE_BF16;
  check_argument(args.dtype == NXD_DTYPE_F32 || args.dtype == NXD_DTYPE_F64 || narrow, what,
                 ": expected parameters of f32, f64 or bf16, got ", dtype_name(args.dtype));
  const nxd_dtype_t wide = narrow ? NXD_DTYPE_F32 : args.dtype;
  check_argument(args.grad_dtype == wide || args.grad_dtype == NXD_DTYPE_BF16, what,
                 ": expected gradients of ", dtype_name(wide), " or bf16, got ",
                 dtype_name(args.grad_dtype));
  check_argument(!args.copy || args.dtype == NXD_DTYPE_F32, what,
                 ": expected f32 parameters with a bf16 copy, got ", dtype_name(args.dtype));
  check_argument(!args.rounding || narrow, what,
                 ": expected bf16 parameters with stochastic rounding, got ",
                 dtype_name(args.dtype));
  if (args.rounding) check_rounding_source(*args.rounding, args.n);
}

const void* skip(const void* data, int64_t elements, size_t size) {
  return static_cast<const char*>(data) + static_cast<size_t>(elements) * size;
}

// A NaN, once met, stays.
double max_abs_f64(int64_t n, const double* x) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = std::fabs(x[i]);
    if (value > largest || value != value) largest = value;
  }
  return largest;
}

// Elements of one partial sum: fixed, so that threads do not change the sums.
constexpr int64_t kBlock = 1 << 15;

}  // namespace

AdamwTerms adamw_terms(const AdamwArgs& args) {
  const auto step = static_cast<double>(args.step);
  const double decay = 1 - args.lr * args.weight_decay;
  const double rate = args.lr / (1 - std::pow(args.beta1, step));
  const double root = std::sqrt(1 - std::pow(args.beta2, step));
  if (args.formula == NXD_ADAMW_FORMULA_NXD) return {decay, decay * rate * root, 1};
  return {decay, rate, 1 / root};
}

void adamw(const AdamwArgs& args) {
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  check("adamw", args);
  check_argument(args.step >= 1, "adamw: expected a step of at least 1, got ", args.step);
  check_argument(args.formula == NXD_ADAMW_FORMULA_TORCH || args.formula == NXD_ADAMW_FORMULA_NXD,
                 "adamw: expected NXD_ADAMW_FORMULA_TORCH or _NXD, got ", args.formula);
  parallel_ranges(args.n, kUpdateWork, [&](int64_t begin, int64_t end) {
    if (args.reference || args.dtype == NXD_DTYPE_F64) {
      with_types(args, [&](auto param, auto grad, auto state) {
        adamw_reference<decltype(param), decltype(grad), decltype(state)>(args, begin, end);
      });
      return;
    }
    HWY_DYNAMIC_DISPATCH(Adamw)(args, begin, end);
  });
}

void sgd(const SgdArgs& args) {
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  check("sgd", args);
  parallel_ranges(args.n, kUpdateWork, [&](int64_t begin, int64_t end) {
    if (args.reference || args.dtype == NXD_DTYPE_F64) {
      with_types(args, [&](auto param, auto grad, auto state) {
        sgd_reference<decltype(param), decltype(grad), decltype(state)>(args, begin, end);
      });
      return;
    }
    HWY_DYNAMIC_DISPATCH(Sgd)(args, begin, end);
  });
}

double sum_of_squares(nxd_dtype_t dtype, int64_t n, const void* x) {
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(std::max<int64_t>(blocks, 0)));
  parallel_ranges(blocks, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block * kBlock;
      HWY_DYNAMIC_DISPATCH(SumOfSquares)
      (dtype, std::min(kBlock, n - start), skip(x, start, dtype_size(dtype)),
       &sums[static_cast<size_t>(block)]);
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

double max_abs(nxd_dtype_t dtype, int64_t n, const void* x) {
  const PhaseScope phase(NXD_PHASE_OPTIMIZER);
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> maxima(static_cast<size_t>(std::max<int64_t>(blocks, 0)));
  parallel_ranges(blocks, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block * kBlock;
      const int64_t count = std::min(kBlock, n - start);
      double& out = maxima[static_cast<size_t>(block)];
      if (dtype == NXD_DTYPE_F64) {
        out = max_abs_f64(count, static_cast<const double*>(x) + start);
      } else {
        HWY_DYNAMIC_DISPATCH(MaxAbs)(dtype, count, skip(x, start, dtype_size(dtype)), &out);
      }
    }
  });
  return max_abs_f64(blocks, maxima.data());
}

}  // namespace nxd::kernels
#endif
