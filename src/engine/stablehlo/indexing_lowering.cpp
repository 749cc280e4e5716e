// Elements and rows by their indices. StableHLO clamps an index that is out of range where libtorch
// would fail; a layer that is given ids checks them by a call of its own.
#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

// (rows, ids, ...)
void embedding(NodeLowering& n) { n.give(n.hlo.gather_slices(n.tensor(0), 0, n.tensor(1))); }

// (gradient, ids, number of rows, padding id, scaled by frequency)
void embedding_backward(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  if (n.flag(4)) return n.leave_to_host();
  HloValue gradient = n.wide(0);
  const HloValue& ids = n.tensor(1);
  if (const int64_t padding = n.integer(3); padding >= 0) {
    const HloValue counts = hlo.compare("NE", ids, hlo.constant(padding, ids.dtype, ids.sizes));
    gradient = hlo.select(hlo.broadcast_in_dim(counts, all_dims(ids.dim()), gradient.sizes),
                          gradient, hlo.filled_like(gradient, 0));
  }
  const HloValue zeros = hlo.constant(int64_t{0}, gradient.dtype, n.sizes());
  n.give(hlo.scatter_rows("add", zeros, ids, gradient));
}

// Indices below 0 count from the end.
HloValue from_the_end(const NodeLowering& n, const HloValue& index, int64_t size) {
  HloBuilder& hlo = n.hlo;
  const HloValue shifted = hlo.plus(index, hlo.constant(size, index.dtype, index.sizes));
  return hlo.select(hlo.compare("LT", index, hlo.filled_like(index, 0)), shifted, index);
}

// (x, dim, index)
void index_select(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  if (x.dim() == 0) return n.leave_to_host();
  const HloValue index = n.hlo.reshape(
      n.tensor(2), {n.sizes()[static_cast<size_t>(positive_dim(n.integer(1), x.dim()))]});
  n.give(n.hlo.gather_slices(x, positive_dim(n.integer(1), x.dim()), index));
}

// (x, a list of indices or none for each dimension): one of them alone
void index(NodeLowering& n) {
  const HloValue& x = n.tensor(0);
  int64_t dim = -1;
  const auto count = static_cast<int>(n.node.call->lists.at(1).size);
  for (int i = 0; i < count; ++i) {
    if (!n.has_element(1, i)) continue;
    if (dim >= 0) return n.leave_to_host();
    dim = i;
  }
  if (dim < 0) return n.leave_to_host();
  const HloValue& at = n.element(1, static_cast<int>(dim));
  n.give(n.hlo.gather_slices(x, dim, from_the_end(n, at, x.size(dim))));
}

// For each element of an index along dim: the indices of the element that it names.
HloValue full_indices(const NodeLowering& n, const HloValue& index, int64_t dim) {
  HloSizes sizes = index.sizes;
  sizes.push_back(1);
  std::vector<HloValue> parts;
  for (int64_t d = 0; d < index.dim(); ++d) {
    const HloValue at = d == dim ? index : n.hlo.iota(index.dtype, index.sizes, d);
    parts.push_back(n.hlo.reshape(at, sizes));
  }
  return n.hlo.concatenate(parts, index.dim());
}

// (x, dim, index)
void gather(NodeLowering& n) {
  const HloValue &x = n.tensor(0), &at = n.tensor(2);
  if (x.dim() == 0 || at.dim() != x.dim()) return n.leave_to_host();
  const int64_t dim = positive_dim(n.integer(1), x.dim());
  n.give(n.hlo.gather_elements(x, full_indices(n, at, dim)));
}

// (x, dim, index, source or number)
void scatter(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue &x = n.tensor(0), &at = n.tensor(2);
  if (x.dim() == 0 || at.dim() != x.dim()) return n.leave_to_host();
  const int64_t dim = positive_dim(n.integer(1), x.dim());
  HloValue updates;
  if (n.has(3)) {
    updates = hlo.convert(n.tensor(3), x.dtype);
    for (int64_t d = 0; d < at.dim(); ++d) updates = hlo.slice(updates, d, 0, at.size(d));
  } else {
    updates = hlo.broadcast(n.scalar(3, x.dtype), at.sizes);
  }
  n.give(hlo.scatter_elements(n.operation, x, full_indices(n, at, dim), updates));
}

// (x, dim, index, source, alpha)
void index_add(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  const HloValue& x = n.tensor(0);
  const bool has_rows = n.tensor(2).dim() == 1 && n.tensor(3).dim() == x.dim();
  if (x.dim() == 0 || !has_rows || positive_dim(n.integer(1), x.dim()) != 0) {
    return n.leave_to_host();
  }
  const HloValue sums = hlo.convert(x, wide_dtype(x.dtype));
  HloValue source = hlo.convert(n.tensor(3), sums.dtype);
  if (!n.is_default(4)) {
    source = hlo.times(source, hlo.broadcast(n.scalar(4, sums.dtype), source.sizes));
  }
  n.give(hlo.scatter_rows("add", sums, n.tensor(2), source));
}

}  // namespace

const Lowerings& indexing_lowerings() {
  static const Lowerings all = {
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::gather", gather},
      {"aten::index.Tensor", index},
      {"aten::index_add", index_add},
      {"aten::index_select", index_select},
      {"aten::scatter.src", scatter, ""},
      {"aten::scatter.value", scatter, ""},
      {"aten::scatter_add", scatter, "add"},
  };
  return all;
}

}  // namespace nxd
