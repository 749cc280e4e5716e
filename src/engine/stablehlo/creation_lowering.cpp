// Tensors made of nothing but their shapes, dtypes and a number, and copies.
#include "engine/stablehlo/lowering.h"

namespace nxd {
namespace {

void zeros(NodeLowering& n) { n.give(n.hlo.constant(int64_t{0}, n.dtype(), n.sizes())); }

void ones(NodeLowering& n) { n.give(n.hlo.constant(int64_t{1}, n.dtype(), n.sizes())); }

void scalar_tensor(NodeLowering& n) { n.give(n.scalar_operand(0, n.dtype())); }

// The number comes second, or the tensor that a copy has the values of.
void filled(NodeLowering& n) {
  n.give(n.has(1) ? n.operand(1, n.dtype()) : n.scalar_operand(1, n.dtype()));
}

// The number comes third.
void new_full(NodeLowering& n) { n.give(n.scalar_operand(2, n.dtype())); }

// first + step i, in the dtype of the result, or in f64 as libtorch does for floats
HloValue counted(NodeLowering& n, int first, int step) {
  const at::ScalarType dtype = at::isFloatingType(n.dtype()) ? at::kDouble : at::kLong;
  HloValue out = n.hlo.iota(dtype, n.sizes(), 0);
  if (step >= 0) out = n.hlo.times(out, n.scalar_operand(step, dtype));
  return first >= 0 ? n.hlo.plus(out, n.scalar_operand(first, dtype)) : out;
}

void arange(NodeLowering& n) { n.give(counted(n, -1, -1)); }
void arange_from(NodeLowering& n) { n.give(counted(n, 0, -1)); }
void arange_by_step(NodeLowering& n) { n.give(counted(n, 0, 2)); }

void eye(NodeLowering& n) {
  n.give(n.hlo.compare("EQ", n.hlo.iota(at::kLong, n.sizes(), 0),
                       n.hlo.iota(at::kLong, n.sizes(), 1)));
}

void same(NodeLowering& n) { n.give(n.operand(0, n.dtype())); }

}  // namespace

const Lowerings& creation_lowerings() {
  static const Lowerings all = {
      {"aten::_to_copy", same},
      {"aten::arange", arange},
      {"aten::arange.start", arange_from},
      {"aten::arange.start_step", arange_by_step},
      {"aten::clone", same},
      {"aten::copy", filled},
      {"aten::empty.memory_format", zeros},
      {"aten::eye", eye},
      {"aten::eye.m", eye},
      {"aten::fill.Scalar", filled},
      {"aten::fill.Tensor", filled},
      {"aten::full", filled},
      {"aten::full_like", filled},
      {"aten::new_empty_strided", zeros},
      {"aten::new_full", new_full},
      {"aten::new_ones", ones},
      {"aten::new_zeros", zeros},
      {"aten::ones", ones},
      {"aten::ones_like", ones},
      {"aten::scalar_tensor", scalar_tensor},
      {"aten::zero", zeros},
      {"aten::zeros", zeros},
      {"aten::zeros_like", zeros},
  };
  return all;
}

}  // namespace nxd
