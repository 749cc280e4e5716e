// Activations and their gradients, each rounded once.
#include <cmath>

#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

void relu(NodeLowering& n) {
  n.give(n.hlo.binary("maximum", n.tensor(0), n.hlo.filled_like(n.tensor(0), 0)));
}

// (gradient, x, threshold): the gradient passes where x is no number, too
void threshold_backward(NodeLowering& n) {
  const HloValue gradient = n.operand(0, n.dtype()), x = n.operand(1, n.dtype());
  const HloValue is_low = n.hlo.compare("LE", x, n.scalar_operand(2, n.dtype()));
  n.give(n.hlo.select(is_low, n.hlo.filled_like(gradient, 0), gradient));
}

HloValue one_minus(HloBuilder& hlo, const HloValue& x) {
  return hlo.minus(hlo.filled_like(x, 1), x);
}

void silu(NodeLowering& n) {
  const HloValue x = n.wide(0);
  n.give(n.hlo.times(x, n.hlo.unary("logistic", x)));
}

// (gradient, x). Releases of libtorch up to 2.6 compose it of other operators.
void silu_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(1), gate = hlo.unary("logistic", x);
  const HloValue slope = hlo.times(gate, hlo.plus(hlo.times(x, one_minus(hlo, gate)), 1.0));
  n.give(hlo.times(n.wide(0), slope));
}

// (gradient, y)
void sigmoid_backward(NodeLowering& n) {
  const HloValue gradient = n.wide(0), y = n.wide(1);
  n.give(n.hlo.times(gradient, n.hlo.times(one_minus(n.hlo, y), y)));
}

void tanh_backward(NodeLowering& n) {
  const HloValue gradient = n.wide(0), y = n.wide(1);
  n.give(n.hlo.times(gradient, one_minus(n.hlo, n.hlo.times(y, y))));
}

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;  // of the approximation by tanh

// The share of a normal distribution that lies below x.
HloValue normal_below(HloBuilder& hlo, const HloValue& x) {
  return hlo.times(hlo.plus(hlo.unary("chlo.erf", hlo.times(x, kSqrtHalf)), 1.0), 0.5);
}

// tanh(sqrt(2 / pi) (x + c x^3))
HloValue approximate_erf(HloBuilder& hlo, const HloValue& x) {
  const HloValue cube = hlo.times(hlo.times(x, x), x);
  return hlo.unary("tanh", hlo.times(hlo.plus(x, hlo.times(cube, kCubic)), kSqrtTwoOverPi));
}

bool is_approximate(const NodeLowering& n, int argument) {
  return n.argument_at(argument).toStringRef() == "tanh";
}

// (x, approximation)
void gelu(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0);
  const HloValue below = is_approximate(n, 1)
                             ? hlo.times(hlo.plus(approximate_erf(hlo, x), 1.0), 0.5)
                             : normal_below(hlo, x);
  n.give(hlo.times(x, below));
}

HloValue gelu_slope(HloBuilder& hlo, const HloValue& x) {
  const HloValue density =
      hlo.times(hlo.unary("exponential", hlo.times(hlo.times(x, x), -0.5)), kSqrtTwoOverPi * 0.5);
  return hlo.plus(normal_below(hlo, x), hlo.times(x, density));
}

HloValue approximate_gelu_slope(HloBuilder& hlo, const HloValue& x) {
  const HloValue t = approximate_erf(hlo, x);
  const HloValue inner =
      hlo.times(hlo.plus(hlo.times(hlo.times(x, x), 3 * kCubic), 1.0), kSqrtTwoOverPi);
  const HloValue right = hlo.times(hlo.times(x, one_minus(hlo, hlo.times(t, t))), inner);
  return hlo.times(hlo.plus(hlo.plus(t, 1.0), right), 0.5);
}

// (gradient, x, approximation)
void gelu_backward(NodeLowering& n) {
  const HloValue x = n.wide(1);
  const HloValue slope =
      is_approximate(n, 2) ? approximate_gelu_slope(n.hlo, x) : gelu_slope(n.hlo, x);
  n.give(n.hlo.times(n.wide(0), slope));
}

}  // namespace

const Lowerings& activation_lowerings() {
  static const Lowerings all = {
      {"aten::gelu", gelu},
      {"aten::gelu_backward", gelu_backward},
      {"aten::relu", relu},
      {"aten::sigmoid_backward", sigmoid_backward},
      {"aten::silu", silu},
      {"aten::silu_backward", silu_backward},
      {"aten::tanh_backward", tanh_backward},
      {"aten::threshold_backward", threshold_backward},
  };
  return all;
}

}  // namespace nxd
