// Views, which the recorder has made copies of, and tensors put together.
#include <algorithm>
#include <utility>

#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

// The same elements in the same order.
void reshape(NodeLowering& n) { n.give(n.hlo.reshape(n.tensor(0), n.sizes())); }

void expand(NodeLowering& n) { n.give(n.hlo.broadcast(n.tensor(0), n.sizes())); }

void give_transposed(NodeLowering& n, int64_t a, int64_t b) {
  const HloValue& x = n.tensor(0);
  HloSizes order = all_dims(x.dim());
  if (!order.empty()) std::swap(order.at(static_cast<size_t>(a)), order.at(static_cast<size_t>(b)));
  n.give(n.hlo.transpose(x, order));
}

void transpose(NodeLowering& n) {
  const int64_t dims = n.tensor(0).dim();
  give_transposed(n, positive_dim(n.integer(1), dims), positive_dim(n.integer(2), dims));
}

void transpose_matrix(NodeLowering& n) {
  give_transposed(n, 0, std::max<int64_t>(n.tensor(0).dim() - 1, 0));
}

void permute(NodeLowering& n) {
  HloSizes order = n.integers(1);
  for (int64_t& dim : order) dim = positive_dim(dim, n.tensor(0).dim());
  n.give(n.hlo.transpose(n.tensor(0), order));
}

struct Range {
  int64_t dim, begin, end, step;
};

// (dim, start, end, step) from an argument on, of a tensor of these sizes: as libtorch clamps them
Range range_of(const NodeLowering& n, int first, const HloSizes& sizes) {
  Range out{};
  out.dim = positive_dim(n.integer(first), static_cast<int64_t>(sizes.size()));
  const int64_t size = sizes[static_cast<size_t>(out.dim)];
  const auto bound = [&](int64_t at, int64_t least) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, least, std::max(size, least));
  };
  out.begin = bound(n.integer_or(first + 1, 0), 0);
  out.end = bound(n.integer_or(first + 2, size), out.begin);
  out.step = n.integer(first + 3);
  return out;
}

void slice(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  const Range range = range_of(n, 1, x.sizes);
  n.give(n.hlo.slice(x, range.dim, range.begin, range.end, range.step));
}

// The gradient of a slice: zeros elsewhere.
HloValue spread(const NodeLowering& n, const HloValue& x, const Range& range, int64_t size) {
  const int64_t count = x.size(range.dim);
  const int64_t covered = count == 0 ? 0 : (count - 1) * range.step + 1;
  return n.hlo.pad(x, range.dim, range.begin, size - range.begin - covered, range.step - 1);
}

// (gradient, sizes, dim, start, end, step)
void slice_backward(NodeLowering& n) {
  const Range range = range_of(n, 2, n.integers(1));
  n.give(spread(n, n.tensor(0), range, n.integers(1)[static_cast<size_t>(range.dim)]));
}

Range one_of(int64_t dim, int64_t index, const HloSizes& sizes) {
  dim = positive_dim(dim, static_cast<int64_t>(sizes.size()));
  index = positive_dim(index, sizes[static_cast<size_t>(dim)]);
  return {dim, index, index + 1, 1};
}

HloValue with_dim(const NodeLowering& n, const HloValue& x, int64_t dim) {
  HloSizes sizes = x.sizes;
  sizes.insert(sizes.begin() + dim, 1);
  return n.hlo.reshape(x, sizes);
}

void select(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  const Range range = one_of(n.integer(1), n.integer(2), x.sizes);
  n.give(n.hlo.reshape(n.hlo.slice(x, range.dim, range.begin, range.end), n.sizes()));
}

// (gradient, sizes, dim, index)
void select_backward(NodeLowering& n) {
  const HloSizes sizes = n.integers(1);
  const Range range = one_of(n.integer(2), n.integer(3), sizes);
  n.give(
      spread(n, with_dim(n, n.tensor(0), range.dim), range, sizes[static_cast<size_t>(range.dim)]));
}

// (x, part, dim, start, end, step)
void slice_scatter(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  const Range range = range_of(n, 2, x.sizes);
  if (range.step != 1) return n.leave_to_host();
  n.give(n.hlo.overwritten(x, n.hlo.convert(n.tensor(1), x.dtype), range.dim,
                           n.hlo.constant(range.begin, at::kLong)));
}

// (x, part, dim, index)
void select_scatter(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  const Range range = one_of(n.integer(2), n.integer(3), x.sizes);
  const HloValue part = with_dim(n, n.hlo.convert(n.tensor(1), x.dtype), range.dim);
  n.give(n.hlo.overwritten(x, part, range.dim, n.hlo.constant(range.begin, at::kLong)));
}

// Where a part begins: argument 1 is its number.
HloValue begin_of_part(const NodeLowering& n, int64_t size) {
  const HloValue& number = n.tensor(1);
  return n.hlo.times(number, n.hlo.constant(size, number.dtype));
}

void part_at(NodeLowering& n) {
  const int64_t dim = n.attribute("dim"), size = n.sizes()[static_cast<size_t>(dim)];
  n.give(n.hlo.window(n.tensor(0), dim, begin_of_part(n, size), size));
}

void placed_part(NodeLowering& n) {
  const HloValue& part = n.tensor(0);
  const int64_t dim = n.attribute("dim");
  const HloValue zeros = n.hlo.constant(int64_t{0}, part.dtype, n.sizes());
  n.give(n.hlo.overwritten(zeros, part, dim, begin_of_part(n, part.size(dim))));
}

// Parts along a dimension, one after the other, as long as the results say.
void give_parts(NodeLowering& n, int64_t dim) {
  int64_t begin = 0;
  for (size_t i = 0; i < n.node.call->results.size(); ++i) {
    const int result = static_cast<int>(i);
    const int64_t end = begin + n.sizes(result)[static_cast<size_t>(dim)];
    n.give(n.hlo.slice(n.tensor(0), dim, begin, end), result);
    begin = end;
  }
}

void split(NodeLowering& n) { give_parts(n, positive_dim(n.integer(2), n.tensor(0).dim())); }

void unbind(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  const int64_t dim = positive_dim(n.integer(1), x.dim());
  for (size_t i = 0; i < n.node.call->results.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    n.give(n.hlo.reshape(n.hlo.slice(x, dim, at, at + 1), n.sizes(0)), static_cast<int>(i));
  }
}

// libtorch lets an empty vector stand beside tensors of any shape.
void cat(NodeLowering& n) {
  std::vector<HloValue> parts;
  for (const HloValue& part : n.list(0)) {
    if (part.sizes != HloSizes{0}) parts.push_back(n.hlo.convert(part, n.dtype()));
  }
  const int64_t dims = static_cast<int64_t>(n.sizes().size());
  if (parts.empty()) return n.leave_to_host();
  n.give(n.hlo.concatenate(parts, positive_dim(n.integer(1), dims)));
}

void stack(NodeLowering& n) {
  const int64_t dim = positive_dim(n.integer(1), static_cast<int64_t>(n.sizes().size()));
  std::vector<HloValue> parts;
  for (const HloValue& part : n.list(0)) {
    parts.push_back(with_dim(n, n.hlo.convert(part, n.dtype()), dim));
  }
  n.give(n.hlo.concatenate(parts, dim));
}

// Each dimension as two, the outer of which counts the copies.
void repeat(NodeLowering& n) {
  HloValue x = n.tensor(0);
  const HloSizes counts = n.integers(1);
  HloSizes whole(counts.size() - x.sizes.size(), 1), apart, dims;
  whole.insert(whole.end(), x.sizes.begin(), x.sizes.end());
  x = n.hlo.reshape(x, whole);
  for (size_t d = 0; d < counts.size(); ++d) {
    apart.push_back(counts[d]);
    dims.push_back(static_cast<int64_t>(apart.size()));
    apart.push_back(whole[d]);
  }
  n.give(n.hlo.reshape(n.hlo.broadcast_in_dim(x, dims, apart), n.sizes()));
}

void flip(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  HloSizes dims = n.integers(1);
  for (int64_t& dim : dims) dim = positive_dim(dim, x.dim());
  n.give(n.hlo.add("reverse", {x}, x.dtype, x.sizes, "dimensions = " + hlo_array(dims)));
}

// (x, diagonal): what lies on it or below, or on it or above; zeros elsewhere
void triangle(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  const HloValue rows = n.hlo.iota(at::kLong, x.sizes, x.dim() - 2);
  const HloValue columns = n.hlo.iota(at::kLong, x.sizes, x.dim() - 1);
  const HloValue offset = n.hlo.constant(n.integer(1), at::kLong, x.sizes);
  const HloValue kept = n.hlo.compare(n.operation, n.hlo.minus(columns, rows), offset);
  n.give(n.hlo.select(kept, x, n.hlo.filled_like(x, 0)));
}

}  // namespace

const Lowerings& shape_lowerings() {
  static const Lowerings all = {
      {"aten::_unsafe_view", reshape},
      {"aten::alias_copy", reshape},
      {"aten::cat", cat},
      {"aten::detach_copy", reshape},
      {"aten::expand_copy", expand},
      {"aten::flip", flip},
      {"aten::permute_copy", permute},
      {"aten::repeat", repeat},
      {"aten::select_backward", select_backward},
      {"aten::select_copy.int", select},
      {"aten::select_scatter", select_scatter},
      {"aten::slice_backward", slice_backward},
      {"aten::slice_copy.Tensor", slice},
      {"aten::slice_scatter", slice_scatter},
      {"aten::split_copy.Tensor", split},
      {"aten::split_with_sizes_copy", split},
      {"aten::squeeze_copy", reshape},
      {"aten::squeeze_copy.dim", reshape},
      {"aten::squeeze_copy.dims", reshape},
      {"aten::stack", stack},
      {"aten::t_copy", transpose_matrix},
      {"aten::transpose_copy.int", transpose},
      {"aten::tril", triangle, "LE"},
      {"aten::triu", triangle, "GE"},
      {"aten::unbind_copy.int", unbind},
      {"aten::unsqueeze_copy", reshape},
      {"aten::view_copy", reshape},
      {"nxd::part_at", part_at},
      {"nxd::placed_part", placed_part},
  };
  return all;
}

}  // namespace nxd
