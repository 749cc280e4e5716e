// The end of a training step; recorded_step.cpp and recorded_parts.cpp of engine/training say what
// these nodes take.
#include <c10/util/accumulate.h>

#include <limits>

#include "engine/stablehlo/random_words.h"

namespace nxd {
namespace {

// One of the numbers of a vector, as a tensor.
HloValue number_of(NodeLowering& n, int argument, int64_t index, at::ScalarType dtype,
                   const HloSizes& sizes) {
  const HloValue one = n.hlo.slice(n.tensor(argument), 0, index, index + 1);
  return n.hlo.broadcast(n.hlo.convert(n.hlo.reshape(one, {}), dtype), sizes);
}

// Takes gradients, and last of all a vector that says which of them count.
void norm_of_gradients(NodeLowering& n) {
  const bool largest = n.has_attribute("type inf");
  const bool squares = !largest && !n.has_attribute("type 1");
  HloValue total = n.hlo.constant(0.0, at::kDouble);
  const HloValue none = total;
  const int counts = static_cast<int>(n.node.inputs.size()) - 1;
  for (int i = 0; i < counts; ++i) {
    HloValue x = n.hlo.convert(n.tensor(i), at::kDouble);
    x = squares ? n.hlo.times(x, x) : n.hlo.unary("abs", x);
    const HloSizes dims = all_dims(x.dim());
    if (!dims.empty()) x = largest ? n.hlo.maximum_of(x, dims, false) : n.hlo.sum(x, dims, false);
    const HloValue is_counted = n.hlo.compare("NE", number_of(n, counts, i, at::kDouble, {}), none);
    x = n.hlo.select(is_counted, x, none);
    total = largest ? n.hlo.binary("maximum", total, x) : n.hlo.plus(total, x);
  }
  n.give(total);
}

void clip_factor(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue scale = number_of(n, 1, 0, at::kDouble, {});
  const HloValue joined = n.tensor(0);
  const HloValue root = n.has_attribute("type 2") ? hlo.unary("sqrt", joined) : joined;
  const HloValue norm = hlo.times(hlo.unary("abs", scale), root);
  // Not-a-number is not less than anything.
  const HloValue largest = hlo.constant(std::numeric_limits<double>::max(), at::kDouble);
  const HloValue is_finite = hlo.compare("LE", norm, largest);
  HloValue clip = hlo.constant(1.0, at::kDouble);
  if (n.has_attribute("clips")) {
    const HloValue most = number_of(n, 1, 1, at::kDouble, {});
    const HloValue ratio = hlo.over(most, hlo.plus(norm, 1e-6));
    clip = hlo.select(is_finite, hlo.binary("minimum", clip, ratio), clip);
  }
  // The rules of factor_of().
  using Limits = std::numeric_limits<float>;
  const HloValue factor = hlo.times(scale, clip);
  const HloValue fits =
      hlo.compare("LE", hlo.times(norm, clip), hlo.constant(double{Limits::max()}, at::kDouble));
  const HloValue is_normal =
      hlo.compare("GE", hlo.unary("abs", factor), hlo.constant(double{Limits::min()}, at::kDouble));
  const HloValue is_zero = hlo.compare("LE", norm, hlo.constant(0.0, at::kDouble));
  n.give(norm, 0);
  n.give(factor, 1);
  n.give(hlo.binary("and", fits, hlo.binary("or", is_normal, is_zero)), 2);
}

// An update on its way: what it takes, in the dtype in which it computes.
struct UpdateLowering {
  explicit UpdateLowering(NodeLowering& lowering)
      : n(lowering),
        dtype(wide_dtype(n.dtype(0))),
        sizes(n.sizes(0)),
        old(n.hlo.convert(n.tensor(4), dtype)),
        gradient(n.hlo.times(n.hlo.convert(n.tensor(0), dtype),
                             n.hlo.broadcast(n.hlo.convert(n.tensor(1), dtype), sizes))) {}

  HloValue number(int64_t index) { return number_of(n, 3, index, dtype, sizes); }
  const HloValue& state(int index) { return n.tensor(5 + index); }

  // The old value stays where the norm was not finite.
  void give(const HloValue& value, int result) {
    const HloValue out = n.hlo.convert(value, n.dtype(result));
    if (!n.has(2)) return n.give(out, result);
    n.give(n.hlo.select(n.hlo.broadcast(n.tensor(2), sizes), out, n.tensor(4 + result)), result);
  }
  void give_value(const HloValue& value) {
    if (n.has_attribute("stochastic")) {
      const HloValue words = random_words(n, 4 + results(), WordBits::k16);
      return give(rounded_by(n.hlo, value, n.hlo.reshape(words, sizes)), 0);
    }
    give(value, 0);
    if (has_master()) give(value, results() - 1);
  }
  int results() const { return static_cast<int>(n.node.call->results.size()); }
  bool has_master() const { return n.has_attribute("master"); }
  bool has_states() const { return results() > (has_master() ? 2 : 1); }

  NodeLowering& n;
  const at::ScalarType dtype;
  const HloSizes sizes;
  const HloValue old, gradient;
};

// Values of a shard without rows of random words are the host's to round.
bool is_left(NodeLowering& n) {
  const bool is_left = n.has_attribute("stochastic") && !has_random_words(n);
  if (is_left) n.leave_to_host();
  return is_left;
}

void adamw(NodeLowering& n) {
  if (is_left(n)) return;
  UpdateLowering u(n);
  HloBuilder& hlo = n.hlo;
  const HloValue m =
      hlo.plus(hlo.times(u.number(0), u.state(0)), hlo.times(u.number(1), u.gradient));
  const HloValue v = hlo.plus(hlo.times(u.number(2), u.state(1)),
                              hlo.times(hlo.times(u.number(3), u.gradient), u.gradient));
  const HloValue denominator = hlo.plus(hlo.times(hlo.unary("sqrt", v), u.number(7)), u.number(4));
  u.give_value(
      hlo.minus(hlo.times(u.number(5), u.old), hlo.times(u.number(6), hlo.over(m, denominator))));
  u.give(m, 1);
  u.give(v, 2);
}

void sgd(NodeLowering& n) {
  if (is_left(n)) return;
  UpdateLowering u(n);
  HloBuilder& hlo = n.hlo;
  // Without a decay an infinite parameter would become a NaN.
  const HloValue decay = u.number(3);
  const HloValue decays = hlo.compare("NE", decay, hlo.filled_like(decay, 0));
  HloValue d = hlo.select(decays, hlo.plus(hlo.times(decay, u.old), u.gradient), u.gradient);
  if (!n.has_attribute("plain")) {
    const HloValue momentum = u.number(1);
    const HloValue is_first = hlo.compare("GT", u.number(4), hlo.filled_like(d, 0));
    const HloValue later = hlo.plus(hlo.times(momentum, u.state(0)), hlo.times(u.number(2), d));
    const HloValue kept = hlo.select(is_first, d, later);
    u.give(kept, 1);
    d = n.has_attribute("nesterov") ? hlo.plus(d, hlo.times(momentum, kept)) : kept;
  } else if (u.has_states()) {
    n.give(u.state(0), 1);  // a momentum of 0 leaves its state as it is
  }
  u.give_value(hlo.minus(u.old, hlo.times(u.number(0), d)));
}

void padded_elements(NodeLowering& n) {
  const int64_t elements = c10::multiply_integers(n.tensor(0).sizes);
  const HloValue flat = n.hlo.reshape(n.tensor(0), {elements});
  n.give(n.hlo.pad(flat, 0, 0, n.sizes()[0] - elements, 0));
}

void put_parameters(NodeLowering& n) {
  const HloSizes sizes = n.sizes();
  n.give(n.hlo.reshape(n.hlo.slice(n.tensor(0), 0, 0, c10::multiply_integers(sizes)), sizes));
}

}  // namespace

const Lowerings& update_lowerings() {
  static const Lowerings all = {
      {"nxd::adamw", adamw},
      {"nxd::clip_factor", clip_factor},
      {"nxd::norm_of_gradients", norm_of_gradients},
      {"nxd::padded_elements", padded_elements},
      {"nxd::put_parameters", put_parameters},
      {"nxd::sgd", sgd},
  };
  return all;
}

}  // namespace nxd
