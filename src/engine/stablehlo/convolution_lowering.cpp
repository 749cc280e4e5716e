// Convolutions and their gradients, which are convolutions too. With strides s, a kernel of K and a
// dilation d, an output of Y comes of an input of X by
//   y = x * w             windows of d (K - 1) + 1 elements, s apart
//   gradient of x         that of y with s - 1 zeros between its elements, and w from its end on
//   gradient of w         x * the gradient of y, whose elements are s apart, with windows d apart
// A transposed convolution is the gradient of x of one with the same weight, and the other way
// round.
#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

struct Convolution {
  HloSizes stride, padding, dilation;  // of each dimension of space
  int64_t groups = 1;
};

int64_t of_dim(const HloSizes& numbers, int64_t dim) {
  return numbers.size() == 1 ? numbers[0] : numbers.at(static_cast<size_t>(dim));
}

// Arguments from the given one on: stride, padding and dilation; groups come last.
Convolution convolution_of(const NodeLowering& n, int first, int64_t space) {
  Convolution out;
  for (int64_t d = 0; d < space; ++d) {
    out.stride.push_back(of_dim(n.integers(first), d));
    out.padding.push_back(of_dim(n.integers(first + 1), d));
    out.dilation.push_back(of_dim(n.integers(first + 2), d));
  }
  out.groups = n.integer(first + 5);
  return out;
}

// One operation of StableHLO. Paddings may be negative: then elements are left out.
struct Window {
  const char* dims;  // of the operands and the result before those of space, as in "bfoibf"
  HloSizes stride, low, high, between_x, between_w;
  int64_t groups = 1, batch_groups = 1;
};

std::string dims_of(const char* two, int64_t space) {
  std::string out = std::string("[") + two[0] + ", " + two[1];
  for (int64_t d = 0; d < space; ++d) out += ", " + std::to_string(d);
  return out + "]";
}

HloValue convolved(HloBuilder& hlo, const HloValue& x, const HloValue& w, const HloSizes& sizes,
                   const Window& window) {
  const int64_t space = x.dim() - 2;
  HloValue padded = x;
  HloSizes low = window.low, high = window.high;
  for (size_t d = 0; d < low.size(); ++d) {
    const auto dim = static_cast<int64_t>(d) + 2;
    // An end that is left out cuts elements alone where there are no zeros between them.
    if (window.between_x[d] != 1 || (low[d] >= 0 && high[d] >= 0)) continue;
    const int64_t cut_low = std::max<int64_t>(-low[d], 0),
                  cut_high = std::max<int64_t>(-high[d], 0);
    padded = hlo.slice(padded, dim, cut_low, padded.size(dim) - cut_high);
    low[d] = std::max<int64_t>(low[d], 0);
    high[d] = std::max<int64_t>(high[d], 0);
  }
  std::string padding;
  for (size_t d = 0; d < low.size(); ++d) {
    padding += text(d == 0 ? "" : ", ", "[", low[d], ", ", high[d], "]");
  }
  const std::string numbers = "#stablehlo.conv<" + dims_of(window.dims, space) + "x" +
                              dims_of(window.dims + 2, space) + "->" +
                              dims_of(window.dims + 4, space) + ">";
  return hlo.add("convolution", {padded, w}, x.dtype, sizes,
                 text("window_strides = ", hlo_array(window.stride), ", padding = dense<[", padding,
                      "]> : tensor<", space, "x2xi64>, lhs_dilation = ",
                      hlo_array(window.between_x), ", rhs_dilation = ", hlo_array(window.between_w),
                      ", dimension_numbers = ", numbers, ", feature_group_count = ", window.groups,
                      " : i64, batch_group_count = ", window.batch_groups, " : i64"));
}

HloSizes ones(int64_t space) { return HloSizes(static_cast<size_t>(space), 1); }

// Up to the last window that gives an output. More may fit: as the gradient of a transposed
// convolution it has as many as that had inputs, whatever its output padding added.
HloValue forward(HloBuilder& hlo, const HloValue& x, const HloValue& w, const HloSizes& sizes,
                 const Convolution& c) {
  Window window{"bfoibf", c.stride, c.padding, {}, ones(x.dim() - 2), c.dilation, c.groups, 1};
  for (int64_t d = 0; d < x.dim() - 2; ++d) {
    const auto at = static_cast<size_t>(d);
    window.high.push_back((sizes[at + 2] - 1) * c.stride[at] +
                          c.dilation[at] * (w.size(d + 2) - 1) + 1 - x.size(d + 2) - c.padding[at]);
  }
  return convolved(hlo, x, w, sizes, window);
}

// The weight from its end on, with its inputs as outputs.
HloValue turned(HloBuilder& hlo, const HloValue& w, int64_t groups) {
  const int64_t space = w.dim() - 2, outputs = w.size(0) / groups, inputs = w.size(1);
  HloSizes dims, parts{groups, outputs, inputs}, swapped{groups * inputs, outputs}, order{0, 2, 1};
  for (int64_t d = 0; d < space; ++d) {
    dims.push_back(d + 2);
    parts.push_back(w.size(d + 2));
    swapped.push_back(w.size(d + 2));
    order.push_back(d + 3);
  }
  const HloValue reversed =
      hlo.add("reverse", {w}, w.dtype, w.sizes, "dimensions = " + hlo_array(dims));
  return hlo.reshape(hlo.transpose(hlo.reshape(reversed, parts), order), swapped);
}

HloValue input_gradient(HloBuilder& hlo, const HloValue& gradient, const HloValue& w,
                        const HloSizes& sizes, const Convolution& c) {
  Window window{"bfoibf", ones(gradient.dim() - 2), {}, {}, c.stride, c.dilation, c.groups, 1};
  for (int64_t d = 0; d < gradient.dim() - 2; ++d) {
    const auto at = static_cast<size_t>(d);
    const int64_t reach = c.dilation[at] * (w.size(d + 2) - 1);
    window.low.push_back(reach - c.padding[at]);
    window.high.push_back(sizes[at + 2] - 1 + reach - window.low[at] -
                          (gradient.size(d + 2) - 1) * c.stride[at]);
  }
  return convolved(hlo, gradient, turned(hlo, w, c.groups), sizes, window);
}

HloValue weight_gradient(HloBuilder& hlo, const HloValue& x, const HloValue& gradient,
                         const HloSizes& sizes, const Convolution& c) {
  const int64_t space = x.dim() - 2;
  Window window{"fbiobf", c.dilation, c.padding, {}, ones(space), c.stride, 1, c.groups};
  HloSizes found{sizes[1], sizes[0]}, order{1, 0};
  for (int64_t d = 0; d < space; ++d) {
    const auto at = static_cast<size_t>(d);
    window.high.push_back((sizes[at + 2] - 1) * c.dilation[at] +
                          (gradient.size(d + 2) - 1) * c.stride[at] + 1 - x.size(d + 2) -
                          c.padding[at]);
    found.push_back(sizes[at + 2]);
    order.push_back(d + 2);
  }
  return hlo.transpose(convolved(hlo, x, gradient, found, window), order);
}

bool has_elements(const HloValue& x) {
  return std::find(x.sizes.begin(), x.sizes.end(), 0) == x.sizes.end();
}

// (x, weight, bias, stride, padding, dilation, is it transposed, output padding, groups)
void convolution(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue x = n.wide(0), w = hlo.convert(n.tensor(1), x.dtype);
  if (!at::isFloatingType(x.dtype) || !has_elements(x)) return n.leave_to_host();
  const Convolution c = convolution_of(n, 3, x.dim() - 2);
  HloValue y =
      n.flag(6) ? input_gradient(hlo, x, w, n.sizes(), c) : forward(hlo, x, w, n.sizes(), c);
  if (n.has(2)) {
    y = hlo.plus(y, hlo.broadcast_in_dim(hlo.convert(n.tensor(2), x.dtype), {1}, y.sizes));
  }
  n.give(y);
}

// (gradient, x, weight, sizes of the bias, stride, padding, dilation, is it transposed, output
// padding, groups, wanted)
void convolution_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue gradient = n.wide(0), x = hlo.convert(n.tensor(1), gradient.dtype),
                 w = hlo.convert(n.tensor(2), gradient.dtype);
  if (!at::isFloatingType(x.dtype) || !has_elements(x)) return n.leave_to_host();
  const Convolution c = convolution_of(n, 4, x.dim() - 2);
  const bool transposed = n.flag(7);
  if (n.wants(0)) {
    n.give(transposed ? forward(hlo, gradient, w, x.sizes, c)
                      : input_gradient(hlo, gradient, w, x.sizes, c),
           0);
  }
  if (n.wants(1)) {
    n.give(transposed ? weight_gradient(hlo, gradient, x, w.sizes, c)
                      : weight_gradient(hlo, x, gradient, w.sizes, c),
           1);
  }
  if (n.wants(2)) {
    HloSizes dims = all_dims(gradient.dim());
    dims.erase(dims.begin() + 1);
    n.give(hlo.sum(gradient, dims, false), 2);
  }
}

}  // namespace

const Lowerings& convolution_lowerings() {
  static const Lowerings all = {
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
  };
  return all;
}

}  // namespace nxd
