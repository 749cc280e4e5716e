// Dimensions that go: sums, extremes, norms.
#include <cmath>

#include "core/base/error.h"
#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

double count_of(const HloValue& x, const HloSizes& dims) {
  double count = 1;
  for (const int64_t dim : dims) count *= static_cast<double>(x.size(dim));
  return count;
}

// Sums of 16 bits go on in f32.
HloValue summand(const NodeLowering& n) {
  return n.hlo.convert(n.tensor(0), wide_dtype(n.dtype()));
}

void give_reduced(NodeLowering& n, const HloValue& reduced) {
  n.give(n.hlo.reshape(reduced, n.sizes()));
}

void sum_of_all(NodeLowering& n) {
  const HloValue x = summand(n);
  give_reduced(n, n.hlo.sum(x, all_dims(x.dim()), false));
}

void sum(NodeLowering& n) {
  const HloValue x = summand(n);
  give_reduced(n, n.hlo.sum(x, named_dims(n, 1, x.dim()), false));
}

void give_mean(NodeLowering& n, const HloSizes& dims) {
  const HloValue x = summand(n), total = n.hlo.sum(x, dims, false);
  give_reduced(n, n.hlo.over(total, n.hlo.filled_like(total, count_of(x, dims))));
}

void mean_of_all(NodeLowering& n) { give_mean(n, all_dims(n.tensor(0).dim())); }
void mean(NodeLowering& n) { give_mean(n, named_dims(n, 1, n.tensor(0).dim())); }

HloValue extreme(const NodeLowering& n, const HloSizes& dims) {
  const HloValue& x = n.tensor(0);
  const HloValue initial =
      n.operation == "maximum" ? n.hlo.lowest(x.dtype) : n.hlo.highest(x.dtype);
  return n.hlo.reduce(n.operation, initial, x, dims, false);
}

void extreme_of_all(NodeLowering& n) { give_reduced(n, extreme(n, all_dims(n.tensor(0).dim()))); }

void extreme_of_dims(NodeLowering& n) {
  give_reduced(n, extreme(n, named_dims(n, 1, n.tensor(0).dim())));
}

// Where the extreme is for the first time along one dimension, which the reduction has left out.
HloValue place_of(const NodeLowering& n, const HloValue& found, int64_t dim) {
  HloBuilder& hlo = n.hlo;
  const HloValue& x = n.tensor(0);
  HloSizes others = all_dims(x.dim());
  others.erase(others.begin() + dim);
  const HloValue all = hlo.broadcast_in_dim(found, others, x.sizes);
  // One that is no number is the extreme, and does not equal itself.
  HloValue hit = hlo.compare("EQ", x, all);
  if (at::isFloatingType(x.dtype)) hit = hlo.binary("or", hit, hlo.compare("NE", x, x));
  const HloValue places = hlo.iota(at::kLong, x.sizes, dim);
  const HloValue missed = hlo.constant(x.size(dim), at::kLong, x.sizes);
  return hlo.reduce("minimum", hlo.highest(at::kLong), hlo.select(hit, places, missed), {dim},
                    false);
}

// (x, dim, keep): values and places
void extreme_with_place(NodeLowering& n) {
  if (n.tensor(0).dim() == 0) return n.leave_to_host();
  const int64_t dim = positive_dim(n.integer(1), n.tensor(0).dim());
  const HloValue found = extreme(n, {dim});
  n.give(n.hlo.reshape(found, n.sizes(0)), 0);
  n.give(n.hlo.reshape(place_of(n, found, dim), n.sizes(1)), 1);
}

// (x, dim or none for all elements, keep)
void place_of_extreme(NodeLowering& n) {
  if (n.is_none(1) || n.tensor(0).dim() == 0) return n.leave_to_host();
  const int64_t dim = positive_dim(n.integer(1), n.tensor(0).dim());
  give_reduced(n, place_of(n, extreme(n, {dim}), dim));
}

HloValue reduced_bools(const NodeLowering& n, const HloSizes& dims) {
  const bool is_all = n.operation == "and";
  return n.hlo.reduce(n.operation, n.hlo.constant(int64_t{is_all}, at::kBool),
                      n.hlo.convert(n.tensor(0), at::kBool), dims, false);
}

void bools_of_all(NodeLowering& n) {
  give_reduced(n, reduced_bools(n, all_dims(n.tensor(0).dim())));
}
void bools_of_dim(NodeLowering& n) {
  give_reduced(n, reduced_bools(n, named_dims(n, 1, n.tensor(0).dim())));
}

// The order of a norm is part of the graph.
void give_norm(NodeLowering& n, double order, const HloSizes& dims) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = hlo.convert(n.tensor(0), wide_dtype(n.dtype())), size = hlo.unary("abs", x);
  if (std::isinf(order) && order > 0) {
    // That of no elements is 0.
    return give_reduced(n, hlo.reduce("maximum", hlo.constant(0.0, x.dtype), size, dims, false));
  }
  if (order == 1) return give_reduced(n, hlo.sum(size, dims, false));
  if (order != 2) return n.leave_to_host();
  if (dims.empty()) return give_reduced(n, size);
  give_reduced(n, hlo.unary("sqrt", hlo.sum(hlo.times(x, x), dims, false)));
}

double order_of(const NodeLowering& n) {
  return n.is_none(1) ? 2 : n.argument_at(1).toScalar().toDouble();
}

void norm_of_all(NodeLowering& n) { give_norm(n, order_of(n), all_dims(n.tensor(0).dim())); }
// (x, order, dims, ...)
void norm(NodeLowering& n) { give_norm(n, order_of(n), named_dims(n, 2, n.tensor(0).dim())); }

// (x, dims, correction, keep): the variance, or its root; and the mean where it is asked for
void variance(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0);
  const HloSizes dims = named_dims(n, 1, x.dim());
  const double count = count_of(x, dims);
  const double correction = n.is_none(2) ? 1 : n.argument_at(2).toScalar().toDouble();
  const HloValue total = hlo.sum(x, dims, true);
  const HloValue mean_kept = hlo.over(total, hlo.filled_like(total, count));
  const HloValue centered =
      hlo.minus(x, hlo.broadcast_in_dim(mean_kept, all_dims(x.dim()), x.sizes));
  const HloValue squares = hlo.sum(hlo.times(centered, centered), dims, false);
  HloValue out = hlo.over(squares, hlo.filled_like(squares, std::fmax(count - correction, 0)));
  if (n.operation == "sqrt") out = hlo.unary("sqrt", out);
  give_reduced(n, out);
  if (n.node.call->results.size() == 2) n.give(hlo.reshape(mean_kept, n.sizes(1)), 1);
}

// (x, dims, keep)
void logsumexp(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = summand(n);
  const HloSizes dims = named_dims(n, 1, x.dim());
  const HloValue top = hlo.maximum_of(x, dims, true);
  // Where all are -inf, or one is inf, the difference would be no number.
  const HloValue zero = hlo.filled_like(top, 0);
  const HloValue base = hlo.select(
      hlo.compare("EQ", hlo.unary("abs", top), hlo.filled_like(top, INFINITY)), zero, top);
  const HloValue shifted = hlo.minus(x, hlo.broadcast_in_dim(base, all_dims(x.dim()), x.sizes));
  const HloValue total = hlo.sum(hlo.unary("exponential", shifted), dims, true);
  give_reduced(n, hlo.plus(hlo.unary("log", total), base));
}

}  // namespace

const Lowerings& reduction_lowerings() {
  static const Lowerings all = {
      {"aten::all", bools_of_all, "and"},
      {"aten::all.dim", bools_of_dim, "and"},
      {"aten::amax", extreme_of_dims, "maximum"},
      {"aten::amin", extreme_of_dims, "minimum"},
      {"aten::any", bools_of_all, "or"},
      {"aten::any.dim", bools_of_dim, "or"},
      {"aten::argmax", place_of_extreme, "maximum"},
      {"aten::argmin", place_of_extreme, "minimum"},
      {"aten::linalg_vector_norm", norm},
      {"aten::logsumexp", logsumexp},
      {"aten::max", extreme_of_all, "maximum"},
      {"aten::max.dim", extreme_with_place, "maximum"},
      {"aten::mean", mean_of_all},
      {"aten::mean.dim", mean},
      {"aten::min", extreme_of_all, "minimum"},
      {"aten::min.dim", extreme_with_place, "minimum"},
      {"aten::norm.Scalar", norm_of_all},
      {"aten::norm.ScalarOpt_dim", norm},
      {"aten::std.correction", variance, "sqrt"},
      {"aten::std_mean.correction", variance, "sqrt"},
      {"aten::sum", sum_of_all},
      {"aten::sum.dim_IntList", sum},
      {"aten::var.correction", variance},
      {"aten::var_mean.correction", variance},
  };
  return all;
}

}  // namespace nxd
