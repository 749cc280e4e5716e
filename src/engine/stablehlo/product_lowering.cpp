// Products of matrices. A product of 16 bits has a result in f32, which is rounded once: XLA's CPU
// compiler is faster so, and the result is the same.
#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

// The product of two arguments, the last of which may be matrices of a batch.
HloValue product(const NodeLowering& n, int a, int b) {
  const HloValue &x = n.tensor(a), &y = n.tensor(b);
  const int64_t batch = x.dim() == 3 ? 1 : 0;
  return n.hlo.dot(x, y, batch, x.dim() - 1, batch);
}

void multiply(NodeLowering& n) { n.give(product(n, 0, 1)); }

// (added, a, b, beta, alpha): beta added + alpha a b. With beta 0, added may be no number.
void multiply_add(NodeLowering& n) {
  HloBuilder& hlo = n.hlo;
  HloValue out = product(n, 1, 2);
  if (!n.is_default(4)) out = hlo.times(out, n.scalar_operand(4, out.dtype));
  HloValue added = n.operand(0, out.dtype);
  if (!n.is_default(3)) {
    const HloValue beta = n.scalar_operand(3, out.dtype), zero = hlo.filled_like(added, 0);
    added = hlo.select(hlo.compare("EQ", beta, zero), zero, hlo.times(beta, added));
  }
  n.give(hlo.plus(out, added));
}

}  // namespace

const Lowerings& product_lowerings() {
  static const Lowerings all = {
      {"aten::addmm", multiply_add}, {"aten::addmv", multiply_add}, {"aten::baddbmm", multiply_add},
      {"aten::bmm", multiply},       {"aten::dot", multiply},       {"aten::mm", multiply},
      {"aten::mv", multiply},
  };
  return all;
}

}  // namespace nxd
