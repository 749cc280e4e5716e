// Softmax, norms and losses, with their gradients: in f32 for 16 bits, and rounded once.
#include <ATen/core/Reduction.h>

#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

// Repeats a value that a reduction has kept with size 1.
HloValue spread_over(HloBuilder& hlo, const HloValue& kept, const HloValue& x) {
  return hlo.broadcast_in_dim(kept, all_dims(x.dim()), x.sizes);
}

// A tensor without dimensions has one class.
HloValue with_classes(const NodeLowering& n, int argument) {
  const HloValue x = n.wide(argument);
  return x.dim() == 0 ? n.hlo.reshape(x, {1}) : x;
}

HloSizes class_dim(const NodeLowering& n, int argument, const HloValue& x) {
  return {positive_dim(n.integer(argument), x.dim())};
}

// (x, dim, half to float)
void softmax(NodeLowering& n) {
  // The CPU takes integers where there are none.
  if (!at::isFloatingType(n.dtype())) return n.leave_to_host();
  HloBuilder& hlo = n.hlo;
  const HloValue x = with_classes(n, 0);
  const HloSizes dim = class_dim(n, 1, x);
  const HloValue top = hlo.maximum_of(x, dim, true);
  const HloValue shifted = hlo.minus(x, spread_over(hlo, top, x));
  const HloValue powers = hlo.unary("exponential", shifted);
  const HloValue total = hlo.sum(powers, dim, true);
  const HloValue out = n.operation == "log"
                           ? hlo.minus(shifted, spread_over(hlo, hlo.unary("log", total), x))
                           : hlo.over(powers, spread_over(hlo, total, x));
  n.give(hlo.reshape(out, n.sizes()));
}

// (gradient, output, dim, dtype of the input)
void softmax_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = with_classes(n, 0), y = with_classes(n, 1);
  const HloSizes dim = class_dim(n, 2, y);
  const HloValue product = hlo.times(gradient, y);
  const HloValue total = spread_over(hlo, hlo.sum(product, dim, true), y);
  n.give(hlo.reshape(hlo.minus(product, hlo.times(y, total)), n.sizes()));
}

void log_softmax_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = with_classes(n, 0), y = with_classes(n, 1);
  const HloValue total = spread_over(hlo, hlo.sum(gradient, class_dim(n, 2, y), true), y);
  const HloValue share = hlo.times(hlo.unary("exponential", y), total);
  n.give(hlo.reshape(hlo.minus(gradient, share), n.sizes()));
}

struct NormDims {
  HloSizes normalized, others;
  double count = 1;
};

// The last dimensions, as many as the argument names.
NormDims norm_dims(const NodeLowering& n, int argument, const HloValue& x) {
  NormDims out;
  const auto named = static_cast<int64_t>(n.integers(argument).size());
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d < x.dim() - named) {
      out.others.push_back(d);
    } else {
      out.normalized.push_back(d);
      out.count *= static_cast<double>(x.size(d));
    }
  }
  return out;
}

HloValue mean_over(HloBuilder& hlo, const HloValue& x, const NormDims& dims) {
  return hlo.times(hlo.sum(x, dims.normalized, true), 1 / dims.count);
}

// (x, normalized sizes, weight, bias, eps): output, mean, 1 / deviation
void layer_norm(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0);
  const NormDims dims = norm_dims(n, 1, x);
  const HloValue mean = mean_over(hlo, x, dims);
  const HloValue centered = hlo.minus(x, spread_over(hlo, mean, x));
  const HloValue variance = mean_over(hlo, hlo.times(centered, centered), dims);
  const HloValue scale = hlo.unary("rsqrt", hlo.plus(variance, n.number(4)));
  HloValue y = hlo.times(centered, spread_over(hlo, scale, x));
  if (n.has(2)) y = hlo.times(y, hlo.broadcast_in_dim(n.wide(2), dims.normalized, x.sizes));
  if (n.has(3)) y = hlo.plus(y, hlo.broadcast_in_dim(n.wide(3), dims.normalized, x.sizes));
  n.give(y, 0);
  n.give(mean, 1);
  n.give(scale, 2);
}

// (gradient, x, normalized sizes, mean, 1 / deviation, weight, bias, wanted)
void layer_norm_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1);
  const NormDims dims = norm_dims(n, 2, x);
  const HloValue scale = spread_over(hlo, n.wide(4), x);
  const HloValue unit = hlo.times(hlo.minus(x, spread_over(hlo, n.wide(3), x)), scale);
  if (n.wants(0)) {
    HloValue weighted = gradient;
    if (n.has(5)) {
      weighted = hlo.times(gradient, hlo.broadcast_in_dim(n.wide(5), dims.normalized, x.sizes));
    }
    const HloValue mean = spread_over(hlo, mean_over(hlo, weighted, dims), x);
    const HloValue along = spread_over(hlo, mean_over(hlo, hlo.times(weighted, unit), dims), x);
    n.give(hlo.times(scale, hlo.minus(hlo.minus(weighted, mean), hlo.times(unit, along))), 0);
  }
  if (n.wants(1)) n.give(hlo.sum(hlo.times(gradient, unit), dims.others, false), 1);
  if (n.wants(2)) n.give(hlo.sum(gradient, dims.others, false), 2);
}

// Dimensions but that of channels, and how many elements a channel has.
NormDims batch_norm_dims(const HloValue& x) {
  NormDims out;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d == 1) continue;
    out.normalized.push_back(d);
    out.count *= static_cast<double>(x.size(d));
  }
  return out;
}

// A value of each channel, repeated.
HloValue over_channels(HloBuilder& hlo, const HloValue& each, const HloValue& x) {
  return hlo.broadcast_in_dim(each, {1}, x.sizes);
}

HloValue inverse_deviation(const NodeLowering& n, const HloValue& variance, int eps) {
  return n.hlo.unary("rsqrt", n.hlo.plus(variance, n.number(eps)));
}

// (x, weight, bias, running mean, running variance, training, momentum, eps): output, mean,
// 1 / deviation; the last two are empty in evaluation
void batch_norm(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0);
  const bool training = n.flag(5);
  if (!training && (!n.has(3) || !n.has(4))) return n.leave_to_host();
  const NormDims dims = batch_norm_dims(x);
  const HloValue mean = training ? hlo.times(hlo.sum(x, dims.normalized, false), 1 / dims.count)
                                 : hlo.convert(n.tensor(3), x.dtype);
  const HloValue centered = hlo.minus(x, over_channels(hlo, mean, x));
  const HloValue variance =
      training ? hlo.times(hlo.sum(hlo.times(centered, centered), dims.normalized, false),
                           1 / dims.count)
               : hlo.convert(n.tensor(4), x.dtype);
  const HloValue scale = inverse_deviation(n, variance, 7);
  HloValue y = hlo.times(centered, over_channels(hlo, scale, x));
  if (n.has(1)) y = hlo.times(y, over_channels(hlo, hlo.convert(n.tensor(1), x.dtype), x));
  if (n.has(2)) y = hlo.plus(y, over_channels(hlo, hlo.convert(n.tensor(2), x.dtype), x));
  n.give(y, 0);
  n.give(training ? mean : hlo.constant(0.0, n.dtype(1), n.sizes(1)), 1);
  n.give(training ? scale : hlo.constant(0.0, n.dtype(2), n.sizes(2)), 2);
}

// (gradient, x, weight, running mean, running variance, mean, 1 / deviation, training, eps, wanted)
void batch_norm_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = n.wide(1);
  const bool training = n.flag(7);
  if (!n.has(training ? 5 : 3) || !n.has(training ? 6 : 4)) return n.leave_to_host();
  const NormDims dims = batch_norm_dims(x);
  const HloValue mean = hlo.convert(n.tensor(training ? 5 : 3), x.dtype);
  const HloValue scale = training ? hlo.convert(n.tensor(6), x.dtype)
                                  : inverse_deviation(n, hlo.convert(n.tensor(4), x.dtype), 8);
  const HloValue unit =
      hlo.times(hlo.minus(x, over_channels(hlo, mean, x)), over_channels(hlo, scale, x));
  const HloValue total = hlo.sum(gradient, dims.normalized, false);
  const HloValue along = hlo.sum(hlo.times(gradient, unit), dims.normalized, false);
  if (n.wants(0)) {
    HloValue left = gradient;
    if (training) {
      left = hlo.minus(left, over_channels(hlo, hlo.times(total, 1 / dims.count), x));
      left =
          hlo.minus(left, hlo.times(unit, over_channels(hlo, hlo.times(along, 1 / dims.count), x)));
    }
    const HloValue factor = n.has(2) ? hlo.times(scale, hlo.convert(n.tensor(2), x.dtype)) : scale;
    n.give(hlo.times(left, over_channels(hlo, factor, x)), 0);
  }
  if (n.wants(1)) n.give(along, 1);
  if (n.wants(2)) n.give(total, 2);
}

// True at the class of each row, but in rows whose class is ignored.
HloValue at_targets(const NodeLowering& n, const HloValue& x, const HloValue& targets,
                    int64_t ignored) {
  HloBuilder& hlo = n.hlo;
  const HloValue hit = hlo.compare("EQ", hlo.broadcast_in_dim(targets, {0}, x.sizes),
                                   hlo.iota(targets.dtype, x.sizes, 1));
  const HloValue counts =
      hlo.compare("NE", targets, hlo.constant(ignored, targets.dtype, targets.sizes));
  return hlo.binary("and", hit, hlo.broadcast_in_dim(counts, {0}, x.sizes));
}

// Classes may be bytes, which the class that is ignored need not fit.
HloValue classes_of(const NodeLowering& n, int argument) {
  return n.hlo.convert(n.tensor(argument), at::kLong);
}

// (log probabilities, targets, weight, reduction, ignored class): loss, weight in all
void nll_loss(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0), targets = classes_of(n, 1);
  if (n.has(2) || x.dim() != 2) return n.leave_to_host();
  const HloValue hits = at_targets(n, x, targets, n.integer(4));
  const HloValue chosen = hlo.select(hits, x, hlo.filled_like(x, 0));
  const int64_t reduction = n.integer(3);
  if (reduction == at::Reduction::None) {
    n.give(hlo.unary("negate", hlo.sum(chosen, {1}, false)), 0);
    return n.give(hlo.constant(int64_t{0}, n.dtype(1)), 1);
  }
  const HloValue valid =
      hlo.compare("NE", targets, hlo.constant(n.integer(4), targets.dtype, targets.sizes));
  const HloValue count = hlo.sum(hlo.convert(valid, x.dtype), {0}, false);
  const HloValue total = hlo.unary("negate", hlo.sum(chosen, {0, 1}, false));
  n.give(reduction == at::Reduction::Mean ? hlo.over(total, count) : total, 0);
  n.give(count, 1);
}

// (gradient, log probabilities, targets, weight, reduction, ignored class, weight in all)
void nll_loss_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(1);
  if (n.has(3) || x.dim() != 2) return n.leave_to_host();
  HloValue each = hlo.unary("negate", n.wide(0));
  if (n.integer(4) == at::Reduction::Mean) each = hlo.over(each, n.wide(6));
  const HloSizes rows = each.dim() == 0 ? HloSizes{} : HloSizes{0};
  n.give(hlo.select(at_targets(n, x, classes_of(n, 2), n.integer(5)),
                    hlo.broadcast_in_dim(each, rows, x.sizes), hlo.filled_like(x, 0)));
}

double elements(const HloValue& x) {
  double count = 1;
  for (const int64_t size : x.sizes) count *= static_cast<double>(size);
  return count;
}

// (x, target, reduction)
void mse_loss(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0), target = n.wide(1);
  if (x.sizes != target.sizes || x.dtype != target.dtype) return n.leave_to_host();
  const HloValue difference = hlo.minus(x, target);
  const HloValue squares = hlo.times(difference, difference);
  if (n.integer(2) == at::Reduction::None) return n.give(squares);
  const HloValue total = hlo.sum(squares, all_dims(x.dim()), false);
  n.give(n.integer(2) == at::Reduction::Mean ? hlo.times(total, 1 / elements(x)) : total);
}

// (gradient, x, target, reduction)
void mse_loss_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(1), target = n.wide(2);
  if (x.sizes != target.sizes || x.dtype != target.dtype) return n.leave_to_host();
  const HloValue gradient = hlo.broadcast(n.wide(0), x.sizes);
  const double factor = n.integer(3) == at::Reduction::Mean ? 2 / elements(x) : 2;
  n.give(hlo.times(hlo.times(hlo.minus(x, target), factor), gradient));
}

}  // namespace

const Lowerings& normalization_lowerings() {
  static const Lowerings all = {
      {"aten::_log_softmax", softmax, "log"},
      {"aten::_log_softmax_backward_data", log_softmax_backward},
      {"aten::_softmax", softmax},
      {"aten::_softmax_backward_data", softmax_backward},
      {"aten::mse_loss", mse_loss},
      {"aten::mse_loss_backward", mse_loss_backward},
      {"aten::native_batch_norm", batch_norm},
      {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::nll_loss_backward", nll_loss_backward},
      {"aten::nll_loss_forward", nll_loss},
  };
  return all;
}

}  // namespace nxd
