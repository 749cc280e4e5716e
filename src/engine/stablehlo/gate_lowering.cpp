// Activations of several pieces, and those with a weight or a gate, with their gradients: each
// rounded once.
#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

HloValue within(HloBuilder& hlo, const HloValue& x, double low, double high) {
  return hlo.binary("minimum", hlo.binary("maximum", x, hlo.filled_like(x, low)),
                    hlo.filled_like(x, high));
}

HloValue where_positive(HloBuilder& hlo, const HloValue& x, const HloValue& a, const HloValue& b) {
  return hlo.select(hlo.compare("GT", x, hlo.filled_like(x, 0)), a, b);
}

// log(1 + exp(x)), without overflow
HloValue softened(HloBuilder& hlo, const HloValue& x) {
  const HloValue falling = hlo.unary("negate", hlo.unary("abs", x));
  return hlo.plus(hlo.binary("maximum", x, hlo.filled_like(x, 0)),
                  hlo.unary("log_plus_one", hlo.unary("exponential", falling)));
}

void hardsigmoid(NodeLowering& n) {
  const HloValue x = n.wide(0);
  n.give(n.hlo.times(within(n.hlo, n.hlo.plus(x, 3.0), 0, 6), 1.0 / 6));
}

void hardswish(NodeLowering& n) {
  const HloValue x = n.wide(0);
  n.give(n.hlo.times(n.hlo.times(x, within(n.hlo, n.hlo.plus(x, 3.0), 0, 6)), 1.0 / 6));
}

// The gradient, with a slope of the middle, one of what lies above it, and none below.
HloValue by_pieces(NodeLowering& n, const HloValue& slope, double above) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1);
  const HloValue is_low = hlo.compare("LE", x, hlo.filled_like(x, -3)),
                 is_high = hlo.compare("GE", x, hlo.filled_like(x, 3));
  const HloValue factor = hlo.select(is_high, hlo.filled_like(x, above), slope);
  return hlo.times(gradient, hlo.select(is_low, hlo.filled_like(x, 0), factor));
}

// (gradient, x): none where x is no number
void hardsigmoid_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1);
  const HloValue is_inside = hlo.compare("LT", hlo.unary("abs", x), hlo.filled_like(x, 3));
  n.give(hlo.select(is_inside, hlo.times(gradient, 1.0 / 6), hlo.filled_like(gradient, 0)));
}

// (gradient, x)
void hardswish_backward(NodeLowering& n) {
  n.give(by_pieces(n, n.hlo.plus(n.hlo.times(n.wide(1), 1.0 / 3), 0.5), 1));
}

// (x, lowest, highest)
void hardtanh(NodeLowering& n) {
  const HloValue x = n.operand(0, n.dtype());
  n.give(n.hlo.binary("minimum", n.hlo.binary("maximum", x, n.scalar_operand(1, n.dtype())),
                      n.scalar_operand(2, n.dtype())));
}

// (gradient, x, lowest, highest)
void hardtanh_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.operand(0, n.dtype()), x = n.operand(1, n.dtype());
  const HloValue passes = hlo.binary("and", hlo.compare("GT", x, n.scalar_operand(2, n.dtype())),
                                     hlo.compare("LT", x, n.scalar_operand(3, n.dtype())));
  n.give(hlo.select(passes, gradient, hlo.filled_like(gradient, 0)));
}

// (x, slope)
void leaky_relu(NodeLowering& n) {
  const HloValue x = n.wide(0);
  n.give(where_positive(n.hlo, x, x, n.hlo.times(x, n.scalar_operand(1, x.dtype))));
}

// (gradient, x or result, slope, which): both have one sign.
void leaky_relu_backward(NodeLowering& n) {
  const HloValue gradient = n.wide(0), x = n.wide(1);
  n.give(where_positive(n.hlo, x, gradient, n.hlo.times(gradient, n.scalar_operand(2, x.dtype))));
}

// (x, alpha, scale, input scale)
void elu(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0), scale = n.scalar_operand(2, x.dtype);
  const HloValue power =
      hlo.unary("exponential_minus_one", hlo.times(x, n.scalar_operand(3, x.dtype)));
  const HloValue below = hlo.times(power, hlo.times(n.scalar_operand(1, x.dtype), scale));
  n.give(where_positive(hlo, x, hlo.times(x, scale), below));
}

// (gradient, alpha, scale, input scale, is it the result, x or result)
void elu_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(5);
  const HloValue scale = n.scalar_operand(2, x.dtype), inner = n.scalar_operand(3, x.dtype);
  const HloValue weight = hlo.times(n.scalar_operand(1, x.dtype), scale);
  const HloValue power = n.flag(4)
                             ? hlo.plus(x, weight)
                             : hlo.times(weight, hlo.unary("exponential", hlo.times(x, inner)));
  n.give(where_positive(hlo, x, hlo.times(gradient, scale),
                        hlo.times(gradient, hlo.times(inner, power))));
}

void mish(NodeLowering& n) {
  const HloValue x = n.wide(0);
  n.give(n.hlo.times(x, n.hlo.unary("tanh", softened(n.hlo, x))));
}

// (gradient, x)
void mish_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(1), t = hlo.unary("tanh", softened(hlo, x));
  const HloValue bend = hlo.minus(hlo.filled_like(t, 1), hlo.times(t, t));
  const HloValue slope = hlo.times(hlo.times(x, hlo.unary("logistic", x)), bend);
  n.give(hlo.times(n.wide(0), hlo.plus(t, slope)));
}

// (x, beta, threshold): x itself from the threshold on
void softplus(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0), beta = n.scalar_operand(1, x.dtype), scaled = hlo.times(x, beta);
  n.give(hlo.select(hlo.compare("GT", scaled, n.scalar_operand(2, x.dtype)), x,
                    hlo.over(softened(hlo, scaled), beta)));
}

// (gradient, x, beta, threshold)
void softplus_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1);
  const HloValue scaled = hlo.times(x, n.scalar_operand(2, x.dtype));
  n.give(hlo.select(hlo.compare("GT", scaled, n.scalar_operand(3, x.dtype)), gradient,
                    hlo.times(gradient, hlo.unary("logistic", scaled))));
}

struct Halves {
  HloValue values, gates;
};

Halves halves_of(HloBuilder& hlo, const HloValue& x, int64_t dim) {
  const int64_t half = x.size(dim) / 2;
  return {hlo.slice(x, dim, 0, half), hlo.slice(x, dim, half, 2 * half)};
}

// (x, dim)
void glu(NodeLowering& n) {
  const HloValue x = n.wide(0);
  const Halves in = halves_of(n.hlo, x, positive_dim(n.integer(1), x.dim()));
  n.give(n.hlo.times(in.values, n.hlo.unary("logistic", in.gates)));
}

// (gradient, x, dim)
void glu_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1);
  const int64_t dim = positive_dim(n.integer(2), x.dim());
  const Halves in = halves_of(hlo, x, dim);
  const HloValue open = hlo.unary("logistic", in.gates);
  const HloValue of_values = hlo.times(gradient, open);
  const HloValue closed = hlo.minus(hlo.filled_like(open, 1), open);
  n.give(hlo.concatenate({of_values, hlo.times(hlo.times(of_values, closed), in.values)}, dim));
}

// A weight for all elements, or one for each channel.
HloValue weight_over(NodeLowering& n, const HloValue& weight, const HloValue& x) {
  const bool is_one = weight.sizes.empty() || weight.sizes == HloSizes{1};
  return is_one ? n.hlo.broadcast(n.hlo.reshape(weight, {}), x.sizes)
                : n.hlo.broadcast_in_dim(weight, {x.dim() > 1 ? 1 : 0}, x.sizes);
}

// (x, weight)
void prelu(NodeLowering& n) {
  const HloValue x = n.wide(0);
  n.give(where_positive(n.hlo, x, x, n.hlo.times(x, weight_over(n, n.wide(1), x))));
}

// The same of libtorch 2, which gives the weight x's dimensions first, and sums gradients later.
void prelu_kernel(NodeLowering& n) {
  const HloValue x = n.wide(0), weight = n.hlo.broadcast(n.wide(1), x.sizes);
  n.give(where_positive(n.hlo, x, x, n.hlo.times(x, weight)));
}

void prelu_kernel_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1), weight = hlo.broadcast(n.wide(2), x.sizes);
  n.give(where_positive(hlo, x, gradient, hlo.times(gradient, weight)), 0);
  n.give(where_positive(hlo, x, hlo.filled_like(x, 0), hlo.times(gradient, x)), 1);
}

// (gradient, x, weight): gradients of x and of the weight
void prelu_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1), weight = n.wide(2);
  n.give(where_positive(hlo, x, gradient, hlo.times(gradient, weight_over(n, weight, x))), 0);
  const HloValue each = where_positive(hlo, x, hlo.filled_like(x, 0), hlo.times(gradient, x));
  HloSizes dims = all_dims(x.dim());
  const bool is_one = weight.sizes.empty() || weight.sizes == HloSizes{1};
  if (!is_one) dims.erase(dims.begin() + (x.dim() > 1 ? 1 : 0));
  n.give(hlo.reshape(hlo.sum(each, dims, false), n.sizes(1)), 1);
}

}  // namespace

const Lowerings& gate_lowerings() {
  static const Lowerings all = {
      {"aten::_prelu_kernel", prelu_kernel},
      {"aten::_prelu_kernel_backward", prelu_kernel_backward},
      {"aten::elu", elu},
      {"aten::elu_backward", elu_backward},
      {"aten::glu", glu},
      {"aten::glu_backward", glu_backward},
      {"aten::hardsigmoid", hardsigmoid},
      {"aten::hardsigmoid_backward", hardsigmoid_backward},
      {"aten::hardswish", hardswish},
      {"aten::hardswish_backward", hardswish_backward},
      {"aten::hardtanh", hardtanh},
      {"aten::hardtanh_backward", hardtanh_backward},
      {"aten::leaky_relu", leaky_relu},
      {"aten::leaky_relu_backward", leaky_relu_backward},
      {"aten::mish", mish},
      {"aten::mish_backward", mish_backward},
      {"aten::prelu", prelu},
      {"aten::prelu_backward", prelu_backward},
      {"aten::softplus", softplus},
      {"aten::softplus_backward", softplus_backward},
  };
  return all;
}

}  // namespace nxd
