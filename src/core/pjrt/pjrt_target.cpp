#include "core/pjrt/pjrt_target.h"

#include <algorithm>

namespace nxd {
namespace {

// As PyTorch/XLA has them for the device type NEURON.
constexpr DtypeMapping kNeuronDtypes[] = {
    {NXD_DTYPE_F64, NXD_DTYPE_F32, nullptr},
    {NXD_DTYPE_I16, NXD_DTYPE_I32, nullptr},
    {NXD_DTYPE_I64, NXD_DTYPE_I32, "XLA_USE_32BIT_LONG"},
};

constexpr QuirkOfTarget kNeuronQuirks[] = {
    {PjrtQuirk::kUnorderedDevices, "lists its devices in no order",
     "they are sorted by their hardware's numbers", "ZML"},
    {PjrtQuirk::kIndicesOutOfRange,
     "fails at an index that is out of range, where StableHLO has a rule",
     "indices are clamped, and a scatter adds 0 there", "aws-neuron-sdk 1335, JAX on Neuron"},
    {PjrtQuirk::kIntegerSplats, "folds a scalar integer that is broadcast, which spoils scatters",
     "the scalar passes an optimization_barrier", "ZML"},
    {PjrtQuirk::kIntegerProducts, "has no products of integers", "an error names the dtype",
     "JAX on Neuron"},
};

}  // namespace

std::span<const DtypeMapping> neuron_dtypes() { return kNeuronDtypes; }

std::span<const QuirkOfTarget> neuron_quirks() { return kNeuronQuirks; }

PjrtTarget PjrtTarget::neuron(const Variables& variables) {
  PjrtTarget out;
  out.is_neuron_ = true;
  for (const DtypeMapping& mapping : kNeuronDtypes) {
    if (!mapping.variable || variables(mapping.variable) == "1") out.dtypes_.push_back(mapping);
  }
  return out;
}

bool PjrtTarget::has(PjrtQuirk quirk) const {
  return is_neuron_ &&
         std::any_of(std::begin(kNeuronQuirks), std::end(kNeuronQuirks),
                     [quirk](const QuirkOfTarget& known) { return known.quirk == quirk; });
}

nxd_dtype_t PjrtTarget::on_device(nxd_dtype_t dtype) const {
  for (const DtypeMapping& mapping : dtypes_) {
    if (mapping.dtype == dtype) return mapping.on_device;
  }
  return dtype;
}

}  // namespace nxd
