// Operators on each element: one operation of StableHLO, or a few.
#include <ATen/ATen.h>

#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

void unary(NodeLowering& n) { n.give(n.hlo.unary(n.operation, n.operand(0, n.dtype()))); }

// Integers are their own floor, ceiling and nearest integer.
void rounded(NodeLowering& n) {
  const HloValue x = n.operand(0, n.dtype());
  n.give(at::isFloatingType(x.dtype) ? n.hlo.unary(n.operation, x) : x);
}

bool is_unsigned(at::ScalarType dtype) { return dtype == at::kByte || dtype == at::kBool; }

void absolute(NodeLowering& n) {
  const HloValue x = n.operand(0, n.dtype());
  n.give(is_unsigned(x.dtype) ? x : n.hlo.unary("abs", x));
}

// That of NaN is 0, and StableHLO's is NaN.
void sign(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.tensor(0), zero = hlo.filled_like(x, 0);
  const HloValue above = hlo.convert(hlo.compare("GT", x, zero), n.dtype());
  if (is_unsigned(x.dtype)) return n.give(above);
  n.give(hlo.minus(above, hlo.convert(hlo.compare("LT", x, zero), n.dtype())));
}

// In f32 for 16 bits, as libtorch does: StableHLO would leave each step in 16.
void wide_unary(NodeLowering& n) {
  n.give(n.hlo.unary(n.operation, n.operand(0, wide_dtype(n.dtype()))));
}

void logical_not(NodeLowering& n) {
  n.give(n.hlo.unary("not", n.hlo.convert(n.tensor(0), at::kBool)));
}

void is_nan(NodeLowering& n) { n.give(n.hlo.compare("NE", n.tensor(0), n.tensor(0))); }

void reciprocal(NodeLowering& n) {
  const HloValue x = n.operand(0, wide_dtype(n.dtype()));
  n.give(n.hlo.over(n.hlo.filled_like(x, 1), x));
}

// The second operand, which is a tensor or a scalar.
HloValue second(const NodeLowering& n, at::ScalarType dtype) {
  return n.has(1) ? n.operand(1, dtype) : n.scalar_operand(1, dtype);
}

void binary(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  n.give(n.hlo.binary(n.operation, n.operand(0, dtype), second(n, dtype)));
}

// (a, b, alpha): a + alpha b, or a - alpha b
void add_scaled(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  HloValue b = second(n, dtype);
  if (!n.is_default(2)) b = n.hlo.times(b, n.scalar_operand(2, dtype));
  n.give(n.hlo.binary(n.operation, n.operand(0, dtype), b));
}

// (a, b, alpha): b - alpha a
void subtract_from(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  HloValue a = n.operand(0, dtype);
  if (!n.is_default(2)) a = n.hlo.times(a, n.scalar_operand(2, dtype));
  n.give(n.hlo.minus(second(n, dtype), a));
}

// The multiple of b that is next below a, over b: a quotient that is rounded up to an integer would
// be one too many. Where b is 0 it is the quotient, and a 0 has the quotient's sign.
HloValue floor_quotient(HloBuilder& hlo, const HloValue& a, const HloValue& b) {
  const HloValue left = hlo.binary("remainder", a, b), zero = hlo.filled_like(a, 0);
  const HloValue exact = hlo.over(hlo.minus(a, left), b);
  const HloValue differs =
      hlo.binary("xor", hlo.compare("LT", b, zero), hlo.compare("LT", left, zero));
  const HloValue is_above = hlo.binary("and", hlo.compare("NE", left, zero), differs);
  const HloValue below = hlo.select(is_above, hlo.minus(exact, hlo.filled_like(exact, 1)), exact);
  const HloValue floor = hlo.unary("floor", below);
  const HloValue is_short = hlo.compare("GT", hlo.minus(below, floor), hlo.filled_like(floor, 0.5));
  const HloValue rounded = hlo.select(is_short, hlo.plus(floor, hlo.filled_like(floor, 1)), floor);
  const HloValue quotient = hlo.over(a, b);
  const HloValue out =
      hlo.select(hlo.compare("EQ", below, zero), hlo.times(zero, quotient), rounded);
  return hlo.select(hlo.compare("EQ", b, zero), quotient, out);
}

// (a, b, rounding mode)
void divide_rounded(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  const std::string mode = n.is_none(2) ? "" : n.argument_at(2).toStringRef();
  if (!mode.empty() && !at::isFloatingType(dtype)) return n.leave_to_host();
  if (mode == "trunc") return n.leave_to_host();
  const HloValue a = n.operand(0, dtype), b = second(n, dtype);
  n.give(mode == "floor" ? floor_quotient(n.hlo, a, b) : n.hlo.over(a, b));
}

// (a, b): the quotient of integers by 0 is an error, which the host alone can tell.
void floor_divide(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const at::ScalarType dtype = wide_dtype(n.dtype());
  const bool is_floating = at::isFloatingType(dtype);
  if (!is_floating && !hlo.target().is_neuron()) return n.leave_to_host();
  const HloValue a = n.operand(0, dtype), b = n.operand(1, dtype);
  if (is_floating) return n.give(floor_quotient(hlo, a, b));
  const HloValue left = hlo.binary("remainder", a, b), zero = hlo.filled_like(a, 0);
  const HloValue differs =
      hlo.binary("xor", hlo.compare("LT", b, zero), hlo.compare("LT", left, zero));
  const HloValue is_above = hlo.binary("and", hlo.compare("NE", left, zero), differs);
  const HloValue exact = hlo.over(a, b);
  n.give(hlo.select(is_above, hlo.minus(exact, hlo.filled_like(exact, 1)), exact));
}

// The remainder has the divisor's sign; StableHLO's has the dividend's. That of an integer by 0 is
// an error, which the host alone can tell.
void remainder(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  if (!at::isFloatingType(dtype) && !n.hlo.target().is_neuron()) return n.leave_to_host();
  const HloValue divisor = second(n, dtype);
  const HloValue left = n.hlo.binary("remainder", n.operand(0, dtype), divisor);
  const HloValue zero = n.hlo.filled_like(left, 0);
  const HloValue differs =
      n.hlo.binary("xor", n.hlo.compare("LT", left, zero), n.hlo.compare("LT", divisor, zero));
  const HloValue shifts = n.hlo.binary("and", differs, n.hlo.compare("NE", left, zero));
  n.give(n.hlo.select(shifts, n.hlo.plus(left, divisor), left));
}

void compare(NodeLowering& n) {
  const at::ScalarType dtype = n.has(1) ? at::result_type(n.meta(0), n.meta(1))
                                        : at::result_type(n.meta(0), n.argument_at(1).toScalar());
  n.give(n.hlo.compare(n.operation, n.operand(0, dtype), second(n, dtype)));
}

void logical(NodeLowering& n) {
  n.give(n.hlo.binary(n.operation, n.operand(0, at::kBool), n.operand(1, at::kBool)));
}

// base ^ exponent, whichever of them is a scalar. The exponent of a tensor is part of the graph.
void power(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  if (!at::isFloatingType(dtype)) return n.leave_to_host();
  const HloValue base = n.has(0) ? n.operand(0, dtype) : n.scalar_operand(0, dtype);
  if (!n.has(1)) {
    const double exponent = n.argument_at(1).toScalar().toDouble();
    if (exponent == 1) return n.give(base);
    if (exponent == 2) return n.give(n.hlo.times(base, base));
    if (exponent == 3) return n.give(n.hlo.times(n.hlo.times(base, base), base));
    if (exponent == 0.5) return n.give(n.hlo.unary("sqrt", base));
    if (exponent == -0.5) return n.give(n.hlo.unary("rsqrt", base));
  }
  n.give(n.hlo.binary("power", base, second(n, dtype)));
}

// (condition, a, b)
void where(NodeLowering& n) {
  n.give(n.hlo.select(n.operand(0, at::kBool), n.operand(1, n.dtype()), n.operand(2, n.dtype())));
}

// (x, mask, value)
void masked_fill(NodeLowering& n) {
  const HloValue value = n.has(2) ? n.operand(2, n.dtype()) : n.scalar_operand(2, n.dtype());
  n.give(n.hlo.select(n.operand(1, at::kBool), value, n.operand(0, n.dtype())));
}

// (x, lowest, highest), each of which may be absent
void clamp(NodeLowering& n) {
  HloValue x = n.operand(0, n.dtype());
  if (n.has(1) || !n.is_none(1)) x = n.hlo.binary("maximum", x, second(n, n.dtype()));
  if (n.has(2)) {
    x = n.hlo.binary("minimum", x, n.operand(2, n.dtype()));
  } else if (!n.is_none(2)) {
    x = n.hlo.binary("minimum", x, n.scalar_operand(2, n.dtype()));
  }
  n.give(x);
}

// (x, a, b, value): x + value (a op b)
void add_combined(NodeLowering& n) {
  const at::ScalarType dtype = wide_dtype(n.dtype());
  HloValue by = n.hlo.binary(n.operation, n.operand(1, dtype), n.operand(2, dtype));
  if (!n.is_default(3)) by = n.hlo.times(by, n.scalar_operand(3, dtype));
  n.give(n.hlo.plus(n.operand(0, dtype), by));
}

// (a, b, weight): a + weight (b - a), or b - (1 - weight) (b - a) where b is nearer: a weight of 1
// gives b, however large a is.
void interpolate(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const at::ScalarType dtype = wide_dtype(n.dtype());
  const HloValue a = n.operand(0, dtype), b = n.operand(1, dtype);
  const HloValue weight = n.has(2) ? n.operand(2, dtype) : n.scalar_operand(2, dtype);
  const HloValue way = hlo.minus(b, a), one = hlo.filled_like(weight, 1);
  const HloValue from_a = hlo.plus(a, hlo.times(weight, way));
  const HloValue from_b = hlo.minus(b, hlo.times(hlo.minus(one, weight), way));
  const HloValue is_near_a =
      hlo.compare("LT", hlo.unary("abs", weight), hlo.filled_like(weight, 0.5));
  n.give(hlo.select(is_near_a, from_a, from_b));
}

}  // namespace

const Lowerings& elementwise_lowerings() {
  static const Lowerings all = {
      {"aten::abs", absolute},
      {"aten::add.Scalar", add_scaled, "add"},
      {"aten::add.Tensor", add_scaled, "add"},
      {"aten::addcdiv", add_combined, "divide"},
      {"aten::addcmul", add_combined, "multiply"},
      {"aten::atan2", binary, "atan2"},
      {"aten::bitwise_and.Scalar", binary, "and"},
      {"aten::bitwise_and.Tensor", binary, "and"},
      {"aten::bitwise_not", unary, "not"},
      {"aten::bitwise_or.Tensor", binary, "or"},
      {"aten::bitwise_xor.Tensor", binary, "xor"},
      {"aten::ceil", rounded, "ceil"},
      {"aten::clamp", clamp},
      {"aten::clamp.Tensor", clamp},
      {"aten::clamp_max", binary, "minimum"},
      {"aten::clamp_max.Tensor", binary, "minimum"},
      {"aten::clamp_min", binary, "maximum"},
      {"aten::clamp_min.Tensor", binary, "maximum"},
      {"aten::cos", wide_unary, "cosine"},
      {"aten::div.Scalar", binary, "divide"},
      {"aten::div.Scalar_mode", divide_rounded},
      {"aten::div.Tensor", binary, "divide"},
      {"aten::div.Tensor_mode", divide_rounded},
      {"aten::eq.Scalar", compare, "EQ"},
      {"aten::eq.Tensor", compare, "EQ"},
      {"aten::erf", wide_unary, "chlo.erf"},
      {"aten::exp", wide_unary, "exponential"},
      {"aten::expm1", wide_unary, "exponential_minus_one"},
      {"aten::floor", rounded, "floor"},
      {"aten::floor_divide", floor_divide},
      {"aten::ge.Scalar", compare, "GE"},
      {"aten::ge.Tensor", compare, "GE"},
      {"aten::gt.Scalar", compare, "GT"},
      {"aten::gt.Tensor", compare, "GT"},
      {"aten::isnan", is_nan},
      {"aten::le.Scalar", compare, "LE"},
      {"aten::le.Tensor", compare, "LE"},
      {"aten::lerp.Scalar", interpolate},
      {"aten::lerp.Tensor", interpolate},
      {"aten::log", wide_unary, "log"},
      {"aten::log1p", wide_unary, "log_plus_one"},
      {"aten::logical_and", logical, "and"},
      {"aten::logical_not", logical_not},
      {"aten::logical_or", logical, "or"},
      {"aten::logical_xor", logical, "xor"},
      {"aten::lt.Scalar", compare, "LT"},
      {"aten::lt.Tensor", compare, "LT"},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::maximum", binary, "maximum"},
      {"aten::minimum", binary, "minimum"},
      {"aten::mul.Scalar", binary, "multiply"},
      {"aten::mul.Tensor", binary, "multiply"},
      {"aten::ne.Scalar", compare, "NE"},
      {"aten::ne.Tensor", compare, "NE"},
      {"aten::neg", unary, "negate"},
      {"aten::pow.Scalar", power},
      {"aten::pow.Tensor_Scalar", power},
      {"aten::pow.Tensor_Tensor", power},
      {"aten::reciprocal", reciprocal},
      {"aten::remainder.Scalar", remainder},
      {"aten::remainder.Tensor", remainder},
      {"aten::round", rounded, "round_nearest_even"},
      {"aten::rsqrt", wide_unary, "rsqrt"},
      {"aten::rsub.Scalar", subtract_from},
      {"aten::sigmoid", wide_unary, "logistic"},
      {"aten::sign", sign},
      {"aten::sin", wide_unary, "sine"},
      {"aten::sqrt", wide_unary, "sqrt"},
      {"aten::sub.Scalar", add_scaled, "subtract"},
      {"aten::sub.Tensor", add_scaled, "subtract"},
      {"aten::tanh", wide_unary, "tanh"},
      {"aten::where.self", where},
  };
  return all;
}

}  // namespace nxd
